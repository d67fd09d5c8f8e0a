"""The commands trace import, trace show and trace fit."""

import argparse
import json
from pathlib import Path

import numpy as np

from idleband import validation
from idleband.cli.parser import MODELS
from idleband.cli.progress import ProgressBar
from idleband.errors import InputError
from idleband.reporting.trace import trace_json, trace_text
from idleband.trace.importing import import_trace
from idleband.trace.parquet import TraceFile
from idleband.trace.statistics import statistics_of
from idleband.trace.waterfall import waterfall_of

FIGURES = (".png", ".svg")


def import_recording(options: argparse.Namespace) -> None:
    """Import recordings into a trace file and print what was found."""
    if not options.out:
        raise InputError("--out: must be the name of a file")
    keys = ("format", "threshold", "channels", "occupancy", "values", "bins", "link", "fill", "source", "license")
    given = {key: getattr(options, key) for key in keys}
    out = Path(options.out)
    with ProgressBar(announce=not options.json) as bar:
        import_trace([Path(file) for file in options.files], out, bar, slot_s=options.slot, **given)
    _print(out, options.json)
    if not options.json:
        print(f"\ntrace:  {out}")


def show(options: argparse.Namespace) -> None:
    """Describe a trace and, with --out, draw it."""
    figure = None if options.out is None else Path(options.out)
    if figure is not None and (figure.suffix not in FIGURES or figure.is_dir()):
        raise InputError(f"--out {options.out}: must be the name of a file that ends in {' or '.join(FIGURES)}")
    path = Path(options.trace)
    _print(path, options.json, figure)
    if figure is not None and not options.json:
        print(f"\nfigure:  {figure}")


def fit(options: argparse.Namespace) -> None:
    """Fit a trace, write the scenario file and print what was found."""
    from idleband.reporting.trace_fit import fit_json, fit_text
    from idleband.trace.fit.fit import fit_trace, scenario_name

    figure = None if options.figure is None else Path(options.figure)
    if figure is not None and (figure.suffix not in FIGURES or figure.is_dir()):
        raise InputError(f"--figure {options.figure}: must be the name of a file that ends in {' or '.join(FIGURES)}")
    out = Path(options.out)
    if out.suffix != ".toml" or out.is_dir():
        raise InputError(f"--out {options.out}: must be the name of a file that ends in .toml")
    path = Path(options.trace)
    file = TraceFile(path)
    users = None if options.users is None else validation.whole(options.users, "--users", 1, file.metadata.K)
    model = validation.choice(options.model, "--model", MODELS)
    busy = np.concatenate([chunk["busy"] for chunk in file.chunks(["busy"])])
    found = fit_trace(busy, file.metadata, users=users, name=scenario_name(path.stem), model=model)
    found.save(out)
    if figure is not None:
        from idleband.reporting.plots import write_figure
        from idleband.reporting.trace_fit_figure import fit_figure

        write_figure(fit_figure(path.name, found), figure)
    if options.json:
        print(json.dumps(fit_json(found, path, out), indent=1, allow_nan=False))
        return
    print(fit_text(found, path))
    print(f"\nscenario:  {out}")
    if figure is not None:
        print(f"figure:    {figure}")


def _print(path: Path, as_json: bool, figure: Path | None = None) -> None:
    """Print the description of a trace file, which may be larger than the memory; draw it first."""
    file = TraceFile(path)
    about = file.metadata
    busy = (chunk["busy"] for chunk in file.chunks(["busy"]))
    found = statistics_of(busy, about.K, about.slot_s, about.channel_names)
    if figure is not None:
        from idleband.reporting.plots import write_figure
        from idleband.reporting.trace_figures import trace_figure

        image = waterfall_of(file.chunks(["busy", "power", "reward"]), file.T, about.K)
        write_figure(trace_figure(path.name, about, found, image), figure)
    if as_json:
        print(json.dumps(trace_json(about, found, file.layers, path), indent=1, allow_nan=False))
    else:
        print(trace_text(about, found, file.layers, path))
