"""The command advise: from a recording to a recommended policy."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from idleband import validation
from idleband.advice.advise import advise as find_advice
from idleband.advice.text import advice_text
from idleband.cli.arguments import dask_client, thread_count
from idleband.cli.progress import ProgressBar
from idleband.errors import InputError
from idleband.experiments.store import check_place
from idleband.trace.importing import import_trace
from idleband.trace.parquet import TraceFile, is_trace_file

IMPORT_OPTIONS = ("format", "threshold", "channels", "occupancy", "values", "bins", "link", "fill", "source", "license")


def advise(options: argparse.Namespace) -> None:
    """Import recordings if necessary, replay policies on them, and print and write the recommendation."""
    files = [Path(file) for file in options.files]
    out = Path(options.out or f"results/advice-{files[0].name.split('.')[0]}")
    if options.out == "":
        raise InputError("--out: must be the name of a folder")
    check_place(out)
    replications = validation.whole(options.replications, "--replications", 1, 1000)
    validation.whole(options.users, "--users", 1, 10**6)  # before the import; the number of channels is known after it
    seed = validation.whole(options.seed, "--seed", 0, 2**63 - 1)
    threads = thread_count(options)
    with dask_client(options) as client, ProgressBar(announce=not options.json) as bar:
        path = _trace_file(files, options, out, bar)
        users = validation.whole(options.users, "--users", 1, TraceFile(path).metadata.K)
        advice = find_advice(
            path, users=users, policies=options.policy, replications=replications, seed=seed, out=out,
            threads=threads, client=client, progress=bar,
        )  # fmt: skip
    if options.json:
        print(json.dumps({**advice.to_dict(), "report": str(out / "report.html")}, indent=1, allow_nan=False))
        return
    print(f"\n{advice_text(advice)}\n\nreport: {out / 'report.html'}")


def _trace_file(files: Sequence[Path], options: argparse.Namespace, out: Path, bar: ProgressBar) -> Path:
    """Return the trace file: the one given, or a new one in the folder of results."""
    given = {key: getattr(options, key) for key in IMPORT_OPTIONS}
    if len(files) == 1 and is_trace_file(files[0]):
        for key, value in {**given, "slot": options.slot}.items():
            if value is not None:
                raise InputError(f"--{key}: only for recordings; {files[0]} is a trace file")
        return files[0]
    path = out / f"{files[0].name.split('.')[0]}.parquet"
    import_trace(files, path, bar, slot_s=options.slot, **given)
    return path
