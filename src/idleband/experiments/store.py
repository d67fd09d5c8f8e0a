"""Results on disk: nothing finished is lost, nothing stale is reused, anybody can read them.

    DIR/experiment.toml    the experiment as it was run, complete; policies/ and models/ beside it hold users' own
    DIR/units/KEY.npz      one finished unit of work each; KEY is a hash of everything that shapes its numbers
    DIR/times.csv          the processor time of each unit
    DIR/results.parquet    the tidy table, DIR/plays.parquet the plays per channel
    DIR/manifest.json      versions, machine, processor time, keys, and the digests of the two tables; written last

Every file is written beside its place, synced, and renamed into it, so a file that is there is whole.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from idleband import validation
from idleband.durable import TEMPORARY, write_durably
from idleband.errors import InputError
from idleband.experiments.spec import Experiment, read_experiment
from idleband.kernels.compile import source_hash
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.build import from_table, read_toml
from idleband.scenario.scenario import Scenario
from idleband.scenario.user_models import stored_model
from idleband.simulation.simulate import COLUMNS, MAX_SEED, Outcome, Result, Unit
from idleband.user_code import file_of

try:
    import fcntl
except ImportError:  # a system without such locks: two processes in one folder are not kept apart there
    fcntl = None  # type: ignore[assignment]

SCHEMA = 1
TIMES = "times.csv"
TABLES = ("results.parquet", "plays.parquet")


def unit_keys(experiment: Experiment, units: Iterable[Unit]) -> dict[Unit, str]:
    """For each unit a hash of everything that shapes its numbers. The number of replications does not."""
    shared = {
        "schema": SCHEMA,
        "sources": source_hash(),
        "scenario": experiment.scenario.identity(),
        "horizon": experiment.horizon,
        "seed": experiment.seed,
    }
    keys = {}
    for unit in units:
        case = None if unit.case is None else [*unit.case.policy.key, unit.case.values]
        content = shared | {"replication": unit.replication, "case": case}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        keys[unit] = hashlib.sha256(text.encode()).hexdigest()[:40]
    return keys


class Store:
    """The folder of an experiment. Use `open_store`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, key: str) -> bool:
        return self._unit(key).exists()

    def _unit(self, key: str) -> Path:
        return self.folder / "units" / f"{key}.npz"

    def save(self, key: str, outcome: Outcome) -> None:
        buffer = io.BytesIO()
        header = np.frombuffer(json.dumps({"schema": SCHEMA, "key": key, "note": outcome.note}).encode(), np.uint8)
        np.savez(buffer, header=header, curves=outcome.curves, plays=outcome.plays)
        write_durably(self._unit(key), buffer.getvalue())
        # Apart from the unit, which is the same whenever it is computed. One write, so that lines stay whole.
        with contextlib.suppress(OSError), (self.folder / TIMES).open("a") as file:
            file.write(f"{key},{outcome.seconds:.4f}\n")

    def times(self) -> dict[str, float]:
        """Processor time of units, by their keys, as far as it is known."""
        times: dict[str, float] = {}
        with contextlib.suppress(OSError):
            for line in (self.folder / TIMES).read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    key, _, time = line.partition(",")
                    times[key] = float(time)
        return times

    def seconds(self, keys: Iterable[str]) -> float:
        """Processor time of units together, as far as it is known."""
        times = self.times()
        return sum(times.get(key, 0.0) for key in keys)

    def load(self, key: str, seconds: float = math.nan) -> Outcome:
        path = self._unit(key)
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as data:
                header = json.loads(data["header"].tobytes())
                outcome = Outcome(data["curves"], data["plays"], None, str(header["note"]), seconds)
            if header["schema"] != SCHEMA or header["key"] != key:
                raise ValueError("its header is another unit's")
        except Exception as error:  # whatever a damaged archive makes its reader stumble over
            raise InputError(f"{path}: damaged ({error}); delete it to compute it again") from None
        return outcome

    def write_experiment(self, experiment: Experiment) -> None:
        """experiment.toml, with copies of users' own files, so that it is complete."""
        copies = {c.label: self._copy("policies", c.policy.name, c.policy.source) for c in experiment.cases}
        where = {label: copy for label, copy in copies.items() if copy is not None}
        model = experiment.scenario.perturbation.model
        table = experiment.to_table(where, self._copy("models", model.name, model.source))
        write_durably(self.folder / "experiment.toml", tomli_w.dumps(table).encode())

    def _copy(self, kind: str, name: str, source: str | None) -> str | None:
        """Keep the file that a user's policy or model was loaded from; file.py:name of the copy. None: no such file."""
        found = file_of(source)
        if found is None:
            return None
        stem, text = found
        copy = Path(kind) / f"{stem.split('@')[0]}@{(source or '')[:12]}.py"
        if not (self.folder / copy).exists():
            write_durably(self.folder / copy, text)
        return f"{copy.as_posix()}:{name}"

    def write_results(self, experiment: Experiment, results: Sequence[Result]) -> None:
        import pyarrow
        import pyarrow.parquet

        plays = [_plays_columns(result) for result in results]
        together = pyarrow.table({name: np.concatenate([part[name] for part in plays]) for name in plays[0]})
        digests = {}
        for name, table in zip(TABLES, (tidy(results), together), strict=True):
            buffer = io.BytesIO()
            table = table.replace_schema_metadata({b"idleband_schema": str(SCHEMA).encode()})
            pyarrow.parquet.write_table(table, buffer)
            write_durably(self.folder / name, buffer.getvalue())
            digests[name] = hashlib.sha256(buffer.getvalue()).hexdigest()
        keys = unit_keys(experiment, experiment.units)
        manifest = {
            "schema": SCHEMA,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("idleband", "numpy", "numba", "llvmlite", "pyarrow")},
            "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
            "seed": experiment.seed,
            "seconds": round(self.seconds(keys.values()), 3),
            "sources": source_hash(),
            "sha256": digests,
            "units": [
                {
                    "key": key,
                    "case": unit.case.label if unit.case else "references",
                    "replication": unit.replication,
                }
                for unit, key in keys.items()
            ],
        }
        write_durably(self.folder / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())


@contextlib.contextmanager
def open_store(folder: Path, experiment: Experiment) -> Iterator[tuple[Store, Experiment]]:
    """Claim a folder for an experiment, and give the store and the experiment as extended by what is there.

    More policies or more replications extend what is there; another scenario, seed or horizon is refused.
    """
    check_folder(folder, experiment)
    try:
        (folder / "units").mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written to: {error.strerror or error}") from None
    with lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{folder}: in use by another run") from None
        merged = check_folder(folder, experiment)
        for place in (folder, *(folder / part for part in ("units", "policies", "models"))):
            for leftover in place.glob(f"{TEMPORARY}*"):  # of a run that was killed: nobody else holds the lock
                leftover.unlink(missing_ok=True)
        yield Store(folder), merged


def check_place(folder: Path) -> None:
    """Refuse a folder that cannot be one."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"{folder}: {'is' if place == folder else f'lies below {place}, which is'} a file")


def check_folder(folder: Path, experiment: Experiment) -> Experiment:
    """The experiment merged with the one that a folder holds, or the reason why the folder cannot be used."""
    check_place(folder)
    file = folder / "experiment.toml"
    if not file.exists():
        taken = [name for name in (*TABLES, "manifest.json") if (folder / name).exists()]
        if taken:
            raise InputError(f"{folder}: holds {taken[0]} but no experiment.toml; choose another folder")
        return experiment
    if not any((folder / "units").glob("*.npz")):  # nothing was ever finished there
        return experiment
    held = read_experiment(file)
    if held.scenario != experiment.scenario:
        raise InputError(f"{folder}: holds another experiment (another scenario: {_unlike(held, experiment)})")
    for what in ("horizon", "seed"):
        if getattr(held, what) != getattr(experiment, what):
            raise InputError(
                f"{folder}: holds another experiment ({what} {getattr(held, what)}, not {getattr(experiment, what)});"
                " choose another folder"
            )
    # Of what the folder holds, what has been run counts: a policy that only ever failed, or replications that were
    # asked for by mistake and stopped, do not come back with every later command.
    store = Store(folder)
    run: dict[str, list[int]] = {case.label: [] for case in held.cases}
    for unit, key in unit_keys(held, held.units).items():
        if unit.case is not None and store.has(key):
            run[unit.case.label].append(unit.replication)
    labels = {case.label for case in experiment.cases}
    kept: list[ConfiguredPolicy] = [case for case in held.cases if case.label not in labels and run[case.label]]
    replications = max([experiment.replications, *(i + 1 for finished in run.values() for i in finished)])
    return Experiment(
        experiment.scenario, (*kept, *experiment.cases), experiment.horizon, replications, experiment.seed
    )


def _unlike(held: Experiment, given: Experiment) -> str:
    a, b = held.scenario.identity(), given.scenario.identity()
    return ", ".join(key for key in {**a, **b} if a.get(key) != b.get(key)) + " differs"


# --- tables ----------------------------------------------------------------------------------------------------------


def tidy(results: Sequence[Result]) -> Any:
    """The tidy table of several results; a parameter that a policy does not have is null."""
    import pyarrow

    parts = [result.columns() for result in results]
    lengths = [len(part["t"]) for part in parts]
    names = list(dict.fromkeys(name for part in parts for name in part))
    columns: dict[str, Any] = {}
    for name in names:
        if all(isinstance(part.get(name), np.ndarray) for part in parts):
            columns[name] = np.concatenate([part[name] for part in parts])
        else:
            values = [v for part, n in zip(parts, lengths, strict=True) for v in part.get(name, [None] * n)]
            kinds = {type(v) for v in values if v is not None}
            if len(kinds) > 1:  # two policies use one name for unlike things
                values = [None if v is None else str(v) for v in values]
            columns[name] = values
    return pyarrow.table(columns)


def _plays_columns(result: Result) -> dict[str, Any]:
    R, K = result.plays.shape
    return {
        "scenario": np.array([result.scenario.name] * (R * K)),
        "policy": np.array([result.policy] * (R * K)),
        "label": np.array([result.label] * (R * K)),
        "replication": np.repeat(np.arange(R), K),
        "channel": np.tile(np.arange(K), R),
        "plays": result.plays.ravel(),
    }


def read_results(folder: Path) -> tuple[Scenario, int, list[Result], bool]:
    """Scenario, seed and results of a study, from its files alone, without users' own code; and whether that is all
    that its experiment asks for."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not (folder / "experiment.toml").exists():
        raise InputError(f"{folder}: holds no experiment (experiment.toml is missing)")
    data = read_toml(folder / "experiment.toml")
    validation.whole(data.get("schema"), f"{folder / 'experiment.toml'}: schema", 1, SCHEMA)
    scenario = from_table(
        validation.table(data.get("scenario"), f"{folder / 'experiment.toml'}: scenario"), stored_model
    )
    size = validation.table(data.get("experiment"), f"{folder / 'experiment.toml'}: experiment")
    seed = validation.whole(size.get("seed"), f"{folder / 'experiment.toml'}: experiment.seed", 0, MAX_SEED)
    table, plays = (_checked(folder, name) for name in TABLES)
    fixed = ("scenario", "policy", "label", "replication", "t", *COLUMNS)
    labels = table.column("label").to_numpy(zero_copy_only=False)
    play_labels = plays.column("label").to_numpy(zero_copy_only=False)
    results = []
    for label in dict.fromkeys(labels):
        rows = np.flatnonzero(labels == label)
        part = table.take(rows)
        t = np.unique(part.column("t").to_numpy())
        first = part.slice(0, 1).to_pylist()[0]
        results.append(
            Result(
                scenario,
                first["policy"],
                str(label),
                {k: v for k, v in first.items() if k not in fixed and v is not None},
                seed,
                t,
                {name: _curve(part, name).reshape(-1, len(t)) for name in COLUMNS},
                plays.column("plays").to_numpy()[play_labels == label].reshape(-1, scenario.K),
            )
        )
    asked = len(data.get("policy", [])), size.get("replications")
    return scenario, seed, results, asked == (len(results), len(results[0].plays))


def _curve(part: Any, name: str) -> npt.NDArray[np.float64]:
    """A column; nan, if it was not yet there when the study was stored."""
    if name not in part.column_names:
        return np.full(len(part), np.nan)
    return np.asarray(part.column(name).to_numpy(), float)


AGAIN = "the command that made it makes it anew"


def read_manifest(folder: Path) -> dict[str, Any]:
    """manifest.json of a finished study."""
    file = folder / "manifest.json"
    try:
        data: dict[str, Any] = json.loads(file.read_bytes())
        tables = all(isinstance(data[key], dict) for key in ("sha256", "machine", "versions"))
        if tables and isinstance(data["seconds"], int | float):
            return data
    except (ValueError, KeyError, TypeError):
        pass
    raise InputError(f"{file}: damaged; {AGAIN}")


def _checked(folder: Path, name: str) -> Any:
    """A table of a finished study, if it is the one that the manifest speaks of."""
    import pyarrow.parquet

    path, manifest = folder / name, folder / "manifest.json"
    for file in (path, manifest):
        if not file.exists():
            raise InputError(f"{folder}: not finished ({file.name} is missing); the same run command goes on with it")
    digest = read_manifest(folder)["sha256"].get(name)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(f"{path}: damaged, or not of the same moment as manifest.json; {AGAIN}")
    return pyarrow.parquet.read_table(io.BytesIO(content))


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
