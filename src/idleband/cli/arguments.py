"""Conversion of command-line arguments that several commands share."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from idleband import validation
from idleband.cluster.connect import connected, local_workers
from idleband.errors import InputError, unknown
from idleband.scenario.build import scenario
from idleband.scenario.presets import PRESETS
from idleband.scenario.scenario import Scenario
from idleband.scenario.table import MAX_CHANNELS
from idleband.scenario.uncoordinated import COORDINATION
from idleband.simulation.devices import CPU, Device

if TYPE_CHECKING:
    from distributed import Client

FILES = (".toml", ".parquet")  # endings of scenario files and trace files


def read_scenario(
    what: str, model: str | None = None, users: str | None = None, coordination: str | None = None
) -> Scenario:
    """Return a preset, the scenario of a file, or a trace that is replayed.

    `users` replaces the scenario's, and must be given for a trace. With another perturbation model, or with users who
    choose channels themselves instead of a base station, it is another scenario, whose name says so.
    """
    if not what.endswith(FILES) and what not in PRESETS:
        if Path(what).is_file():
            raise InputError(
                f"{what}: must end in {' or '.join(FILES)}; a recording in another format becomes a trace with"
                f" `idleband trace import {what} --out TRACE.parquet`"
            )
        raise unknown("scenario", what, [*PRESETS, "FILE.toml", "TRACE.parquet"])
    changes = {} if users is None else {"users": validation.whole(users, "--users", 1, MAX_CHANNELS)}
    if what.endswith(".parquet") and not changes:
        raise InputError(f"--users: must be given for a trace ({what}): the number of channels to select in a slot")
    found = scenario(what, **changes)
    if coordination is not None:
        validation.choice(coordination, "--coordination", COORDINATION)
        if (coordination == "none") != (found.uncoordinated is not None):
            name = f"{found.name}-{'uncoordinated' if coordination == 'none' else 'coordinated'}"
            found = scenario(found, users={"coordination": coordination}, name=name)
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
    if not dots or what.endswith(FILES):
        return [what]
    if first not in PRESETS or last not in PRESETS or presets.index(first) > presets.index(last):
        raise InputError(f"scenario {what}: must be FIRST..LAST, two of {', '.join(presets)} in this order")
    return presets[presets.index(first) : presets.index(last) + 1]


def output_folder(options: argparse.Namespace, name: str) -> Path:
    """Return the folder given with --out, or results/NAME."""
    if options.out == "":
        raise InputError("--out: must be the name of a folder")
    return Path(options.out or f"results/{name}")


@contextlib.contextmanager
def dask_client(options: argparse.Namespace, device: Device = CPU) -> "Iterator[Client | None]":
    """Yield a client of the cluster given with --cluster or --workers, or None."""
    given = [name for name in ("threads", "workers", "cluster") if getattr(options, name) is not None]
    if device.name == "cuda" and given:
        raise InputError(f"device = cuda and --{given[0]}: only one of them can be given")
    if len(given) > 1:
        raise InputError(f"--{given[0]} and --{given[1]}: only one of them can be given")
    if options.cluster is not None:
        with connected(options.cluster) as client:
            yield client
    elif options.workers is not None:
        with local_workers(options.workers) as client:
            yield client
    else:
        yield None


def thread_count(options: argparse.Namespace) -> int | None:
    """Return the number given with --threads, or None."""
    return None if options.threads is None else validation.whole(options.threads, "--threads", 1, 1024)
