"""Results folders: store finished tasks, resume an experiment, write and read its tables.

    DIR/experiment.toml    the complete experiment; policies/ and models/ contain copies of users' files, traces/ and
                           contexts/ those of recordings that are replayed
    DIR/tasks.log          finished tasks, each under a key, a hash of everything that determines its numbers
    DIR/times.csv          processor time of each task
    DIR/results.parquet    the tidy table
    DIR/plays.parquet      plays per channel
    DIR/manifest.json      versions, machine, processor time, keys and the digests of the two tables; written last

Files are written under a temporary name, synced and renamed, so that a file is never incomplete. tasks.log is appended
to (`task_log.py`): if the process is killed, only tasks that were not finished are lost; if the machine stops, those of
the last second may be lost, too. In both cases the same command continues.

Before that each task was a file: DIR/tasks/KEY.npz, which is still read, and in version 0.1 DIR/units/KEY.npz.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from idleband import validation
from idleband.durable import TEMPORARY, write_durably, writing_durably
from idleband.errors import InputError, StorageError
from idleband.experiments.held import read_held
from idleband.experiments.spec import Experiment
from idleband.experiments.task_log import TaskLog
from idleband.kernels.compile import source_hash
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.build import read_toml, with_data_files
from idleband.scenario.scenario import Scenario
from idleband.scenario.table import from_table
from idleband.scenario.user_models import stored_model
from idleband.simulation.devices import CPU
from idleband.simulation.loop import CURVES, REFERENCES
from idleband.simulation.path import checkpoints
from idleband.simulation.result import Result, columns_for
from idleband.simulation.scheduler import Task, TaskResult
from idleband.simulation.simulate import MAX_SEED
from idleband.simulation.users_loop import USER_CURVES
from idleband.user_code import file_of

try:
    import fcntl
except ImportError:  # no file locks on this system: two processes can use one folder at the same time
    fcntl = None  # type: ignore[assignment]

NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # flag for opening files; 0 on a system without it
SCHEMA = 1
LOG, LOCK = "tasks.log", ".lock"
TASKS, TASKS_0_1 = "tasks", "units"
TRACES, CONTEXTS = "traces", "contexts"
TIMES = "times.csv"
TABLES = ("results.parquet", "plays.parquet")


def task_keys(experiment: Experiment, tasks: Iterable[Task]) -> dict[Task, str]:
    """Return for each task a hash of everything that determines its numbers; the number of replications does not.

    Hashed is a JSON object with sorted keys. Most of it is the same for all tasks and written once.
    """
    device = "" if experiment.device == CPU else f'"device":{_json(experiment.device)},'
    before = f'{{{device}"horizon":{_json(experiment.horizon)},"policy":'
    after = "".join(
        f',"{key}":{_json(value)}'
        for key, value in (
            ("scenario", experiment.scenario.identity()),
            ("schema", SCHEMA),
            ("seed", experiment.seed),
            ("sources", source_hash()),
        )
    )
    policies: dict[int, str] = {}
    keys = {}
    for task in tasks:
        configured = task.configured
        policy = policies.get(id(configured))
        if policy is None:
            policy = _json(None if configured is None else [*configured.policy.key, configured.values])
            policies[id(configured)] = policy
        text = f'{before}{policy},"replication":{task.replication}{after}}}'
        keys[task] = hashlib.sha256(text.encode()).hexdigest()[:40]
    return keys


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Store:
    """The results folder of an experiment. Use `open_store`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = TaskLog(folder / LOG)

    @cached_property
    def _logged(self) -> dict[str, int]:
        """Positions in the log by key."""
        return {_header(content)["key"]: position for position, content in self._log.records()}

    @cached_property
    def _files(self) -> dict[str, Path]:
        """Files of tasks by key."""
        return {path.stem: path for path in (self.folder / TASKS).glob("*.npz")}

    @property
    def empty(self) -> bool:
        """Whether no task is stored, by no version of this package."""
        return not (self._logged or self._files or any((self.folder / TASKS_0_1).glob("*.npz")))

    def has(self, key: str) -> bool:
        return key in self._logged or key in self._files

    def save(self, key: str, result: TaskResult) -> None:
        curves, plays = np.ascontiguousarray(result.curves, "<f8"), np.ascontiguousarray(result.plays, "<i8")
        header = {"schema": SCHEMA, "key": key, "note": result.note, "curves": curves.shape, "plays": len(plays)}
        header["digest"] = _content_digest(header, curves.tobytes() + plays.tobytes())
        text = json.dumps(header).encode()
        known = self._logged  # read before anything is appended
        known[key] = self._log.append(b"".join((len(text).to_bytes(4, "little"), text, curves.data, plays.data)))
        # The time is kept elsewhere: a task is stored with the same bytes whenever it is computed. A single write keeps
        # lines whole.
        with contextlib.suppress(OSError):
            os.write(self._times_file, f"{key},{result.seconds:.4f}\n".encode())

    @cached_property
    def _times_file(self) -> int:
        """Descriptor of the file of times."""
        return os.open(self.folder / TIMES, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK, 0o644)

    def sync(self) -> None:
        """Wait until all tasks have reached the disk."""
        self._log.sync()

    def close(self) -> None:
        """Sync and close the files that `save` has opened."""
        with contextlib.suppress(OSError):
            if "_times_file" in vars(self):
                os.close(vars(self).pop("_times_file"))
        self._log.close()

    def times(self) -> dict[str, float]:
        """Return the processor time of tasks by key, as far as it is known."""
        times: dict[str, float] = {}
        with contextlib.suppress(OSError):
            for line in (self.folder / TIMES).read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    key, _, time = line.partition(",")
                    times[key] = float(time)
        return times

    def seconds(self, keys: Iterable[str]) -> float:
        """Return the total processor time of tasks, as far as it is known."""
        times = self.times()
        return sum(times.get(key, 0.0) for key in keys)

    def load(self, key: str, seconds: float = math.nan) -> TaskResult:
        """Return a stored task; raise InputError if it is damaged or was altered."""
        if key not in self._logged:
            return _read_file(self._files[key], key, seconds)
        content = self._log.read(self._logged[key])
        header = _header(content)
        if header["schema"] != SCHEMA or header["key"] != key:
            raise InputError(f"{self._log.path}: belongs to another version; delete it to compute its tasks again")
        first = 4 + int.from_bytes(content[:4], "little")
        last = len(content) - 8 * header["plays"]
        try:
            # Logs of version 0.2 and before have no digests.
            if "digest" in header and header.pop("digest") != _content_digest(header, content[first:]):
                raise ValueError("its digest differs")
            curves = np.frombuffer(content[first:last], "<f8").reshape(header["curves"]).astype(float)
            plays = np.frombuffer(content[last:], "<i8").astype(np.int64)
            result = TaskResult(curves, plays, None, header["note"], seconds)
            _check_kinds(result)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{self._log.path}: task {key} was altered ({error}); delete the file to compute its tasks again"
            ) from None
        return result

    def check_shape(self, task: Task, result: TaskResult, experiment: Experiment) -> None:
        """Refuse a stored task whose arrays are not those of the experiment."""
        found = (result.curves.shape, result.plays.shape)
        needed = _shapes(task, experiment)
        if found != needed:
            what = "the references" if task.configured is None else f"policy {task.configured.label}"
            raise InputError(
                f"{self.folder}: stored task of {what}, replication {task.replication}, has curves and plays of shapes"
                f" {found[0]} and {found[1]}; must have {needed[0]} and {needed[1]}; choose another folder"
            )

    def write_experiment(self, experiment: Experiment) -> None:
        """Write experiment.toml and copies of the files that it refers to, so that the folder can be moved."""
        copies = {c.label: self._copy("policies", c.policy.name, c.policy.source) for c in experiment.policies}
        where = {label: copy for label, copy in copies.items() if copy is not None}
        model = experiment.scenario.perturbation.model
        copy = self._copy("models", model.name, model.source)
        table = experiment.to_table(where, copy, self._copy_recordings(experiment.scenario))
        write_durably(self.folder / "experiment.toml", tomli_w.dumps(table).encode())

    def _copy(self, kind: str, name: str, source: str | None) -> str | None:
        """Copy the file of a user's policy or model and return file.py:name of the copy, or None without a file."""
        found = file_of(source)
        if found is None:
            return None
        stem, text = found
        copy = Path(kind) / f"{stem.split('@')[0]}@{(source or '')[:12]}.py"
        with contextlib.suppress(OSError):
            if (self.folder / copy).read_bytes() == text:
                return f"{copy.as_posix()}:{name}"
        write_durably(self.folder / copy, text)
        return f"{copy.as_posix()}:{name}"

    def _copy_recordings(self, scenario: Scenario) -> dict[str, str]:
        """Write the trace and the recorded contexts, as they were used, once; return the names of the copies."""
        copies: dict[str, Path] = {}
        recording, contexts = scenario.recording, scenario.contexts
        if recording is not None:
            stem = Path(recording.file).stem.split("@")[0] or "trace"
            copies["trace"] = Path(TRACES) / f"{stem}@{recording.digest[:12]}.parquet"
            if not (self.folder / copies["trace"]).exists():
                recording.trace.save(self.folder / copies["trace"])
        if contexts.file:
            copies["context"] = Path(CONTEXTS) / f"{Path(contexts.file).stem.split('@')[0]}@{contexts.digest[:12]}.npy"
            if not (self.folder / copies["context"]).exists():
                with writing_durably(self.folder / copies["context"]) as file:
                    np.save(file, np.asarray(contexts.recorded))
        return {key: path.as_posix() for key, path in copies.items()}

    def write_results(self, experiment: Experiment, results: Sequence[Result]) -> None:
        import pyarrow
        import pyarrow.parquet

        self.sync()  # tables are never ahead of tasks
        plays = [_plays_columns(result) for result in results]
        together = pyarrow.table({name: np.concatenate([part[name] for part in plays]) for name in plays[0]})
        digests = {}
        for name, table in zip(TABLES, (tidy(results), together), strict=True):
            buffer = io.BytesIO()
            table = table.replace_schema_metadata({b"idleband_schema": str(SCHEMA).encode()})
            pyarrow.parquet.write_table(table, buffer)
            write_durably(self.folder / name, buffer.getvalue())
            digests[name] = hashlib.sha256(buffer.getvalue()).hexdigest()
        keys = task_keys(experiment, experiment.tasks)
        manifest = {
            "schema": SCHEMA,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("idleband", "numpy", "numba", "llvmlite", "pyarrow")},
            "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
            "seed": experiment.seed,
            "device": experiment.device._asdict(),
            "seconds": round(self.seconds(keys.values()), 3),
            "sources": source_hash(),
            "sha256": digests,
            "tasks": [
                {
                    "key": key,
                    "policy": task.configured.label if task.configured else "references",
                    "replication": task.replication,
                }
                for task, key in keys.items()
            ],
        }
        write_durably(self.folder / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())


def _header(content: bytes) -> dict[str, Any]:
    """Return the header of a task in the log."""
    try:
        header = json.loads(content[4 : 4 + int.from_bytes(content[:4], "little")])
        if {"schema", "key", "note", "curves", "plays"} <= header.keys() and isinstance(header["key"], str):
            header["plays"] = validation.whole(header["plays"], "plays", 0, len(content) // 8)
            return dict(header)
    except (ValueError, AttributeError, InputError):
        pass
    raise InputError(f"{LOG}: has a task with an invalid header; delete the file to compute its tasks again")


def _content_digest(header: dict[str, Any], data: bytes) -> str:
    """Return the digest of a task: of its header and its arrays."""
    return hashlib.sha256(json.dumps(header).encode() + data).hexdigest()


def _check_kinds(result: TaskResult) -> None:
    if result.curves.ndim != 2 or result.plays.ndim != 1 or not isinstance(result.note, str):
        raise ValueError("must have a table of curves, a list of plays and a note")


def _shapes(task: Task, experiment: Experiment) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the curves and of the plays of a task."""
    scenario, configured = experiment.scenario, task.configured
    C = len(checkpoints(experiment.horizon, scenario.recording))
    if configured is None:
        return (len(REFERENCES), C), (0,)
    if scenario.uncoordinated is not None and configured.policy.decentralised:
        return (len(USER_CURVES) + scenario.users + scenario.K, C), (scenario.K,)
    return (len(CURVES), C), (scenario.K,)


def _read_file(path: Path, key: str, seconds: float) -> TaskResult:
    """Return a task that was stored as a file."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as data:
            header = json.loads(data["header"].tobytes())
            result = TaskResult(data["curves"], data["plays"], None, str(header["note"]), seconds)
        if header["schema"] != SCHEMA or header["key"] != key:
            raise ValueError("the header belongs to another task")
        _check_kinds(result)
    except Exception as error:  # a damaged archive can raise almost anything
        raise InputError(f"{path}: damaged ({error}); delete it to compute it again") from None
    return result


@contextlib.contextmanager
def open_store(folder: Path, experiment: Experiment) -> Iterator[tuple[Store, Experiment]]:
    """Lock a folder for an experiment; return the store and the experiment merged with the one in the folder.

    More policies or more replications extend the stored experiment. Another scenario, seed or horizon is refused.
    """
    check_folder(folder, experiment)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Not through a link, and not truncated: it may be another file of the user.
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | NO_LINK, 0o644)
    except OSError as error:
        if (folder / LOCK).is_symlink():
            raise InputError(f"{folder / LOCK}: is a symbolic link; remove it") from None
        raise InputError(f"{folder}: cannot be written to: {error.strerror or error}") from None
    with os.fdopen(lock, "wb"):
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{folder}: in use by another run") from None
        merged = check_folder(folder, experiment)
        for place in (folder, *(folder / part for part in (TASKS, "policies", "models", TRACES, CONTEXTS))):
            for leftover in place.glob(f"{TEMPORARY}*"):  # of a run that was killed, as this process has the lock
                leftover.unlink(missing_ok=True)
        store = Store(folder)
        try:
            yield store, merged
        except BaseException:
            with contextlib.suppress(StorageError):  # the first error is reported
                store.close()
            raise
        store.close()


def check_place(folder: Path) -> None:
    """Refuse a path that is a file or lies below a file."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"{folder}: {'is' if place == folder else f'lies below {place}, which is'} a file")


def check_folder(folder: Path, experiment: Experiment) -> Experiment:
    """Return the experiment merged with the one in a folder; raise InputError if the folder cannot be used."""
    check_place(folder)
    file = folder / "experiment.toml"
    if not file.exists():
        taken = [name for name in (*TABLES, "manifest.json") if (folder / name).exists()]
        if taken:
            raise InputError(f"{folder}: holds {taken[0]} but no experiment.toml; choose another folder")
        return experiment
    store = Store(folder)
    if store.empty:  # nothing was finished
        return experiment
    held = read_held(folder, experiment)
    if held.scenario is None or held.scenario.identity() != experiment.scenario.identity():
        unlike = "perturbation differs" if held.scenario is None else _unlike(held.scenario, experiment.scenario)
        raise InputError(f"{folder}: holds another experiment (another scenario: {unlike})")
    for what in ("horizon", "seed", "device"):
        if getattr(held, what) != getattr(experiment, what):
            raise InputError(
                f"{folder}: holds another experiment ({what} {getattr(held, what)}, not {getattr(experiment, what)});"
                " choose another folder"
            )
    # Only finished tasks count: a policy that always failed, or replications that were requested by mistake, are not
    # added to every later run.
    policies = (*held.policies, *held.absent)
    tasks = [Task(one, i) for one in policies for i in range(held.replications)]
    finished = {task for task, key in task_keys(experiment, tasks).items() if store.has(key)}
    for one in held.absent:
        if any(task.configured is one for task in finished):
            file_name = held.files[one.policy.name]
            raise InputError(
                f"{folder}: holds results of the policy {file_name}, whose code is not run unless it is given; add"
                f" --policy {folder / file_name} to continue with it, or choose another folder"
            )
    run = {one.label: [i for i in range(held.replications) if Task(one, i) in finished] for one in held.policies}
    labels = {one.label for one in experiment.policies}
    kept: list[ConfiguredPolicy] = [one for one in held.policies if one.label not in labels and run[one.label]]
    replications = max([experiment.replications, *(i + 1 for replications in run.values() for i in replications)])
    return replace(experiment, policies=(*kept, *experiment.policies), replications=replications)


def _unlike(held: Scenario, given: Scenario) -> str:
    a, b = held.identity(), given.identity()
    return ", ".join(key for key in {**a, **b} if a.get(key) != b.get(key)) + " differs"


# --- tables ----------------------------------------------------------------------------------------------------------


def tidy(results: Sequence[Result]) -> Any:
    """Return the tidy table of several results; parameters that a policy does not have are null."""
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
            if len(kinds) > 1:  # two policies have parameters of the same name and different types
                values = [None if v is None else str(v) for v in values]
            columns[name] = values
    return pyarrow.table(columns)


def _plays_columns(result: Result) -> dict[str, Any]:
    R, K = result.plays.shape
    names = result.scenario.channel_names
    return {
        "scenario": np.array([result.scenario.name] * (R * K)),
        "policy": np.array([result.policy] * (R * K)),
        "label": np.array([result.label] * (R * K)),
        "replication": np.repeat(np.arange(R), K),
        "channel": np.tile(np.arange(K), R),
        **({"channel_name": np.array(names * R)} if names else {}),
        "plays": result.plays.ravel(),
        **({} if result.scenario.uncoordinated is None else {"user_collisions": _collisions_column(result)}),
    }


def _collisions_column(result: Result) -> Any:
    """Return the collisions of users on each channel; nan for a policy that selects for all users."""
    found = result.channel_collisions
    return np.full(result.plays.size, np.nan) if found is None else found.ravel().astype(float)


def read_results(folder: Path) -> tuple[Scenario, int, list[Result], bool]:
    """Return scenario, seed and results of a stored study, and whether all of its experiment has been run.

    Users' code is not needed.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not (folder / "experiment.toml").exists():
        raise InputError(f"{folder}: is not a results folder (experiment.toml is missing)")
    data = read_toml(folder / "experiment.toml")
    validation.whole(data.get("schema"), f"{folder / 'experiment.toml'}: schema", 1, SCHEMA)
    table = validation.table(data.get("scenario"), f"{folder / 'experiment.toml'}: scenario")
    scenario = from_table(with_data_files(table, folder), stored_model, stored=True)
    size = validation.table(data.get("experiment"), f"{folder / 'experiment.toml'}: experiment")
    seed = validation.whole(size.get("seed"), f"{folder / 'experiment.toml'}: experiment.seed", 0, MAX_SEED)
    curves, plays = (_checked(folder, name) for name in TABLES)
    columns = columns_for(scenario)
    fixed = ("scenario", "policy", "label", "replication", "t", *columns)
    labels = curves.column("label").to_numpy(zero_copy_only=False)
    play_labels = plays.column("label").to_numpy(zero_copy_only=False)
    results = []
    for label in dict.fromkeys(labels):
        rows = np.flatnonzero(labels == label)
        part = curves.take(rows)
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
                {name: _curve(part, name).reshape(-1, len(t)) for name in columns},
                plays.column("plays").to_numpy()[play_labels == label].reshape(-1, scenario.K),
                _channel_collisions(plays, play_labels == label, scenario),
            )
        )
    asked = len(data.get("policy", [])), size.get("replications")
    return scenario, seed, results, asked == (len(results), len(results[0].plays))


def _channel_collisions(plays: Any, rows: Any, scenario: Scenario) -> Any:
    """Return the collisions of users on each channel; None for a policy that selects for all users."""
    if "user_collisions" not in plays.column_names:
        return None
    found = plays.column("user_collisions").to_numpy(zero_copy_only=False)[rows].astype(float)
    return None if np.isnan(found).any() else found.astype(np.int64).reshape(-1, scenario.K)


def _curve(part: Any, name: str) -> npt.NDArray[np.float64]:
    """Return a column; nan if the version that stored the study did not have it."""
    if name not in part.column_names:
        return np.full(len(part), np.nan)
    return np.asarray(part.column(name).to_numpy(), float)


AGAIN = "run the same command again to restore it"


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return manifest.json of a finished study."""
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
    """Return a table of a finished study after comparing its digest with the manifest."""
    import pyarrow.parquet

    path, manifest = folder / name, folder / "manifest.json"
    for file in (path, manifest):
        if not file.exists():
            raise InputError(f"{folder}: not finished ({file.name} is missing); run the same command again to continue")
    digest = read_manifest(folder)["sha256"].get(name)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(f"{path}: damaged, or it does not belong to manifest.json; {AGAIN}")
    return pyarrow.parquet.read_table(io.BytesIO(content))


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
