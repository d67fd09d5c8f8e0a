"""Conversion of command-line arguments that several commands share."""

import argparse
from pathlib import Path

from idleband import validation
from idleband.errors import InputError, unknown
from idleband.scenario.build import scenario
from idleband.scenario.presets import PRESETS
from idleband.scenario.scenario import Scenario


def read_scenario(what: str, model: str | None = None) -> Scenario:
    """Return a preset or the scenario of a file, under another perturbation model if one is given.

    With another model it is another scenario, whose name ends in the name of the model.
    """
    if not what.endswith(".toml") and what not in PRESETS:
        raise unknown("scenario", what, [*PRESETS, "FILE.toml"])
    found = scenario(what)
    if model is None or model == found.perturbation.kind:
        return found
    return scenario(found, perturbation=model, name=f"{found.name}-{model.rpartition(':')[2]}")


def preset_range(what: str) -> list[str]:
    """Return the presets of a range FIRST..LAST, or the argument itself if it is not a range.

    >>> preset_range("S1..S3"), preset_range("mine.toml")
    (['S1', 'S2', 'S3'], ['mine.toml'])
    """
    first, dots, last = what.partition("..")
    presets = list(PRESETS)
    if not dots or what.endswith(".toml"):
        return [what]
    if first not in PRESETS or last not in PRESETS or presets.index(first) > presets.index(last):
        raise InputError(f"scenario {what}: must be FIRST..LAST, two of {', '.join(presets)} in this order")
    return presets[presets.index(first) : presets.index(last) + 1]


def output_folder(options: argparse.Namespace, name: str) -> Path:
    """Return the folder given with --out, or results/NAME."""
    if options.out == "":
        raise InputError("--out: must be the name of a folder")
    return Path(options.out or f"results/{name}")


def thread_count(options: argparse.Namespace) -> int | None:
    """Return the number given with --threads, or None."""
    return None if options.threads is None else validation.whole(options.threads, "--threads", 1, 1024)
