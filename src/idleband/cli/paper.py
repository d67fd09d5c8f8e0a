"""Commands of the reproduction: reproduce and report."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

from idleband.cli.arguments import dask_client, output_folder, thread_count
from idleband.cli.progress import ProgressBar
from idleband.cluster.connect import executor_for
from idleband.errors import unknown
from idleband.paper.folder import check_size
from idleband.paper.parts import PARTS
from idleband.paper.plan import QUICK, Size
from idleband.paper.report import Report, write_report
from idleband.paper.reproduce import reproduce as run_parts
from idleband.paper.summary import claim_rows, summary_text


def reproduce(options: argparse.Namespace) -> None:
    """Run the parts of the reproduction that are not stored yet and write the report."""
    for part in options.only or ():
        if part not in PARTS:
            raise unknown("part", part, PARTS)
    values = asdict(QUICK if options.quick else Size()) | {"seed": options.seed}
    if options.replications is not None:
        values |= dict.fromkeys(("replications", "fewer", "fewest", "neural", "neural_fewer"), options.replications)
    size = check_size(where="--", **values)
    out = output_folder(options, "paper-quick" if options.quick else "paper")
    start, threads = perf_counter(), thread_count(options)
    with dask_client(options) as client, ProgressBar(rate=False) as bar:
        executor = executor_for(threads, client)
        run_parts(out, size, options.only or tuple(PARTS), executor=executor, progress=bar)
        bar.message("drawing")
        written = write_report(out)
    _print_report(options, written, f"{perf_counter() - start:.0f} s; ")


def report(options: argparse.Namespace) -> None:
    """Write the report again from stored results."""
    _print_report(options, write_report(Path(options.folder)))


def _print_report(options: argparse.Namespace, written: Report, elapsed: str = "") -> None:
    if options.json:
        answer = {
            "report": str(written.path),
            "size": asdict(written.size),
            "missing": written.missing,
            "seconds": written.seconds,
            "claims": claim_rows(written.claims),
        }
        print(json.dumps(answer, indent=1, allow_nan=False))
        return
    print(summary_text(written.claims))
    if written.missing:
        print(f"\nnot run: {', '.join(written.missing)}\nto continue: {written.command}")
    if written.size.horizon < Size().horizon:
        print(f"\nshort version ({written.size.horizon:,} slots): verdicts at this size are not conclusive")
    print(f"\n{elapsed}{written.seconds / 60:.1f} minutes of processor time in the results")
    print(f"report:  {written.path}\nclaims:  {written.path.with_name('claims.csv')}")
