"""Stored results: task keys, durable files, damaged files, and folders of other experiments."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.experiments.spec import Experiment, experiment
from idleband.experiments.store import LOG, Store, check_folder, open_store, task_keys, write_durably
from idleband.experiments.task_log import TaskLog
from idleband.kernels.compile import source_hash
from idleband.policies.registry import POLICIES
from idleband.simulation.path import checkpoints
from idleband.simulation.scheduler import Task, TaskResult
from tests.own_model import LOUD
from tests.own_policy import MINE
from tests.stored_tasks import as_files, stored_tasks

S1 = ib.scenario("S1")
UCB = ib.policy("mp-ucb")
BASE = experiment(S1, [UCB], horizon=100, replications=2, seed=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished study. Tests must not change it."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    ib.compare(S1, ["mp-random", "mp-ucb"], horizon=100, replications=2, out=folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished study, which tests may change."""
    return shutil.copytree(finished, tmp_path / "out")


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in sorted(folder.rglob("*"))}


def task_key(experiment: Experiment, task: Task) -> str:
    return task_keys(experiment, [task])[task]


# --- keys ------------------------------------------------------------------------------------------------------------


def on(**changes: Any) -> tuple[Experiment, Task]:
    """Return the base experiment with a changed scenario, and its first task."""
    return replace(BASE, scenario=ib.scenario(S1, **changes)), Task(UCB, 0)


CHANGES: dict[str, tuple[Experiment, Task]] = {
    "nothing": (BASE, Task(UCB, 0)),
    "scenario": (replace(BASE, scenario=ib.scenario("S2")), Task(UCB, 0)),
    "name": on(name="mine"),
    "p01": on(p01=[0.011, *S1.to_dict()["p01"][1:]]),
    "p10": on(p10=[0.081, *S1.to_dict()["p10"][1:]]),
    "p01 in its last bit": on(p01=[float(np.nextafter(0.01, 1)), *S1.to_dict()["p01"][1:]]),
    "rewards": on(reward="additive", rewards=[0.2, 1.0]),
    "users": on(users=4),
    "sensing": on(sensing="all"),
    "feedback": on(feedback="reward"),
    "reward": on(reward="additive"),
    "dimension": on(context={"dimension": 7}),
    "no perturbation": on(perturbation="none"),
    "clear": on(perturbation={"clear": 0.8}),
    "theta_norm": on(perturbation={"theta_norm": 0.7}),
    "theta": on(perturbation={"theta": [0.7, *[0.0] * 7]}),
    "theta in another place": on(perturbation={"theta": [0.0, 0.7, *[0.0] * 6]}),
    "per_channel": on(perturbation={"per_channel": True}),
    "availability": on(availability=[[1] * 10, [0, *[1] * 9]]),
    "policy": (BASE, Task(ib.policy("mp-ts"), 0)),
    "references": (BASE, Task(None, 0)),
    "parameter": (BASE, Task(ib.policy("mp-ucb", L=1.4), 0)),
    "parameter in its last bit": (BASE, Task(ib.policy("mp-ucb", L=float(np.nextafter(1.5, 2))), 0)),
    "replication": (BASE, Task(UCB, 1)),
    "seed": (replace(BASE, seed=1), Task(UCB, 0)),
    "horizon": (replace(BASE, horizon=101), Task(UCB, 0)),
}


def test_every_change_changes_the_key() -> None:
    keys: dict[str, list[str]] = {}
    for name, (spec, task) in CHANGES.items():
        keys.setdefault(task_key(spec, task), []).append(name)
    assert [names for names in keys.values() if len(names) > 1] == []


@pytest.mark.parametrize("task", [Task(UCB, 0), Task(None, 17), Task(ib.policy("mp-lucb", beta=0.5), 3)])
def test_key_is_the_hash_of_sorted_json(task: Task) -> None:
    policy = None if task.configured is None else [*task.configured.policy.key, task.configured.values]
    content = {"schema": 1, "sources": source_hash(), "scenario": S1.identity(), "horizon": 100, "seed": 0}
    content |= {"replication": task.replication, "policy": policy}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert task_keys(BASE, [Task(UCB, 5), task])[task] == hashlib.sha256(text.encode()).hexdigest()[:40]


def test_other_policies_and_replications_do_not_change_the_key() -> None:
    more = replace(BASE, replications=50, policies=(ib.policy("mp-random"), UCB))
    assert task_key(more, Task(ib.policy("mp-ucb", L=1.5), 0)) == task_key(BASE, Task(UCB, 0))


def test_key_depends_on_the_source_of_a_user_policy(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    keys = []
    for source in (MINE, MINE + "# a comment\n", MINE):
        path.write_text(source)
        keys.append(task_key(BASE, Task(ib.policy(f"{path}:mine"), 0)))
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]
    shutil.copy(path, tmp_path / "elsewhere.py")  # the path of the file does not matter
    assert task_key(BASE, Task(ib.policy(f"{tmp_path / 'elsewhere.py'}:mine"), 0)) == keys[0]


def test_key_depends_on_the_source_of_a_user_model(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"

    def key(path: Path, name: str = "loud") -> str:
        return task_key(replace(BASE, scenario=ib.scenario(S1, perturbation=f"{path}:{name}")), Task(None, 0))

    keys = []
    for source in (LOUD, LOUD + "# a comment\n", LOUD):
        path.write_text(source)
        keys.append(key(path))
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]
    shutil.copy(path, tmp_path / "elsewhere.py")  # the path of the file does not matter
    assert key(tmp_path / "elsewhere.py") == keys[0]
    path.write_text(LOUD + LOUD.replace("loud", "soft").replace("Loud", "Soft"))
    assert key(path, "soft") != key(path)


@pytest.mark.parametrize(
    ("changed", "same"),
    [(None, True), ("kernels/kl.py", False), ("scenario/user_models.py", False), ("reporting/text.py", True)],
)
def test_key_depends_on_the_sources_of_the_package(tmp_path: Path, changed: str | None, same: bool) -> None:
    package = Path(ib.__file__).parent
    shutil.copytree(package, tmp_path / "idleband", ignore=shutil.ignore_patterns("__pycache__"))
    if changed is not None:
        with (tmp_path / "idleband" / changed).open("a") as file:
            file.write("# a comment\n")
    program = """
import idleband as ib
from idleband.experiments.spec import experiment
from idleband.experiments.store import Task, task_keys
ucb = ib.policy("mp-ucb")
print(task_keys(experiment(ib.scenario("S1"), [ucb], 100, 2, 0), [Task(ucb, 0)])[Task(ucb, 0)])
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert (found.stdout.strip() == task_key(BASE, Task(UCB, 0))) == same


# --- files -----------------------------------------------------------------------------------------------------------


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_durably(path, b"old")
    with path.open("rb") as reader:
        write_durably(path, b"new and longer")
        assert reader.read() == b"old"  # an open reader keeps the old content
    assert contents(tmp_path / "deep") == {"file": b"new and longer"}
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("place", ["file/below", "folder"])
def test_path_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    before = contents(tmp_path)
    with pytest.raises(ib.StorageError, match=f"{place}: cannot be written: .*; what was finished is kept"):
        write_durably(tmp_path / place, b"new")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("place", ["same store", "another store", "file"])
def test_stored_task_is_loaded_unchanged(tmp_path: Path, place: str) -> None:
    rng = np.random.default_rng(0)
    given = TaskResult(rng.normal(size=(5, 7)), rng.integers(0, 100, 10), None, "it uses a set: {1}")
    store = Store(tmp_path)
    assert not store.has("key")
    store.save("key", given)
    store.close()
    if place == "file":
        as_files(tmp_path)
    if place != "same store":
        store = Store(tmp_path)
    assert store.has("key")
    found = store.load("key")
    assert found.curves.tobytes() == given.curves.tobytes()
    assert found.plays.tobytes() == given.plays.tobytes()
    assert (found.curves.dtype, found.plays.dtype) == (np.float64, np.int64)
    assert (found.state, found.note) == (None, given.note)


def test_processor_time_of_tasks_is_summed(tmp_path: Path) -> None:
    """The sum is over the requested tasks with known times; the last time counts if a task was computed twice."""
    store = Store(tmp_path)
    assert store.seconds(["a"]) == 0
    result = TaskResult(np.zeros((5, 7)), np.zeros(10, np.int64), None, "")
    for key, seconds in (("a", 1.25), ("b", 0.5), ("c", 8.0), ("a", 2.0)):
        store.save(key, result._replace(seconds=seconds))
    assert store.seconds(["a", "b", "unknown"]) == 2.5
    with (tmp_path / "times.csv").open("ab") as file:
        file.write(b"d,")  # as left by a crash of the machine
        file.write(b"\xff\0\ne\n\nf,1.5,2\n,\n")
    assert store.seconds("abcdef") == 10.5
    store.save("g", result._replace(seconds=4.0))
    assert store.seconds("abcdefg") == 14.5
    with (tmp_path / "times.csv").open("a") as file:
        file.write("h,1.")  # no end of line: only this line and the next are lost
    store.save("i", result)
    store.save("j", result._replace(seconds=1.0))
    assert store.seconds("abcdefghij") == 15.5
    store.close()


def test_manifest_contains_the_time_of_the_tasks(folder: Path) -> None:
    times = [float(line.split(",")[1]) for line in (folder / "times.csv").read_text().splitlines()]
    assert len(times) == 2 * 3
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["seconds"] == pytest.approx(sum(times), abs=0.001)


def test_stored_task_does_not_depend_on_its_time(tmp_path: Path) -> None:
    result = TaskResult(np.ones((5, 7)), np.ones(10, np.int64), None, "")
    for name, seconds in (("slow", 9.0), ("fast", 0.1)):
        store = Store(tmp_path / name)
        store.save("key", result._replace(seconds=seconds))
        store.close()
    assert (tmp_path / "slow" / LOG).read_bytes() == (tmp_path / "fast" / LOG).read_bytes()


def pickled(data: bytes) -> bytes:
    """Return a task file that contains a pickled object."""
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([{}], object), curves=np.zeros((5, 3)), plays=np.zeros(10, int))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:-1],
        lambda data: b"text\n",
        lambda data: b"\0" * len(data),
        lambda data: data.replace(b'"schema": 1', b'"schema": 2'),
        lambda data: data[:900] + bytes([data[900] ^ 1]) + data[901:],
        pickled,
    ],
    ids=["empty", "first 100 bytes", "last byte missing", "text", "zeros", "other schema", "one bit", "pickle"],
)
def test_damaged_task_is_named(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    as_files(folder)
    path = min((folder / "tasks").iterdir())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ib.InputError, match=f"{path}: damaged .*; delete it to compute it again"):
        Store(folder).load(path.stem)


def test_damaged_task_file_is_closed(folder: Path) -> None:
    as_files(folder)
    path = min((folder / "tasks").iterdir())
    path.write_bytes(path.read_bytes()[:100])
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ib.InputError) as caught:
        Store(folder).load(path.stem)
    assert len(os.listdir("/proc/self/fd")) == before
    del caught  # kept until here so that an open file would have been counted


def test_task_under_a_wrong_name_is_refused(folder: Path) -> None:
    as_files(folder)
    one, other = sorted((folder / "tasks").iterdir())[:2]
    shutil.copy(one, other)
    with pytest.raises(ib.InputError, match="the header belongs to another task"):
        Store(folder).load(other.stem)


def harmless_or_named(
    read: Callable[[], Any], same: Callable[[Any], bool], path: Path, places: Sequence[int]
) -> dict[str, int]:
    """Flip one bit in each of some bytes of a file, one at a time, and count the outcomes."""
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    counts = {"harmless or named": 0}
    for i in places:
        path.write_bytes(data[:i] + bytes([data[i] ^ (1 << int(rng.integers(8)))]) + data[i + 1 :])
        try:
            outcome = "harmless or named" if same(read()) else "wrong"
        except ib.InputError:
            outcome = "harmless or named"
        except Exception as error:
            outcome = type(error).__name__
        counts[outcome] = counts.get(outcome, 0) + 1
    path.write_bytes(data)
    return counts


def test_flipped_bit_of_a_task_is_harmless_or_named(folder: Path) -> None:
    as_files(folder)
    path = min((folder / "tasks").iterdir())
    store, size = Store(folder), path.stat().st_size
    places = [*range(0, size - 256, 8), *range(size - 256, size)]  # the directory of the archive is at its end
    whole = store.load(path.stem)

    def same(found: TaskResult) -> bool:
        return found.curves.tobytes() == whole.curves.tobytes() and found.plays.tolist() == whole.plays.tolist()

    assert set(harmless_or_named(lambda: store.load(path.stem), same, path, places)) == {"harmless or named"}


@pytest.mark.parametrize("name", ["results.parquet", "plays.parquet"])
def test_flipped_bit_of_a_table_is_harmless_or_named(folder: Path, name: str) -> None:
    whole = ib.load(folder)

    def same(found: ib.Study) -> bool:
        return found.to_pandas().equals(whole.to_pandas()) and all(
            np.array_equal(a.plays, b.plays) for a, b in zip(found.results, whole.results, strict=True)
        )

    places = range(0, (folder / name).stat().st_size, 40)
    assert set(harmless_or_named(lambda: ib.load(folder), same, folder / name, places)) == {"harmless or named"}


def test_tables_of_different_runs_are_not_mixed(folder: Path) -> None:
    """A run that extends a folder and is killed between the two files leaves such tables."""
    old = (folder / "plays.parquet").read_bytes()
    ib.compare(S1, ["mp-random", "mp-ucb"], horizon=100, replications=3, out=folder)
    (folder / "plays.parquet").write_bytes(old)
    with pytest.raises(ib.InputError):
        ib.load(folder)


# --- folders ---------------------------------------------------------------------------------------------------------


def test_new_folder_accepts_any_experiment(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "new" / "deep", BASE) == BASE
    assert contents(tmp_path) == {}


def test_more_policies_and_replications_extend_a_folder(folder: Path) -> None:
    merged = check_folder(folder, experiment(S1, [ib.policy("mp-ts")], 100, 5, 0))
    assert [one.label for one in merged.policies] == ["mp-random", "mp-ucb", "mp-ts"]
    assert merged.replications == 5
    fewer = check_folder(folder, experiment(S1, [UCB], 100, 1, 0))
    assert {one.label for one in fewer.policies} == {"mp-random", "mp-ucb"}
    assert fewer.replications == 2


def test_value_that_differs_in_the_seventh_digit_extends_a_folder(folder: Path) -> None:
    for L in (1.2345671, 1.2345672):
        ib.compare(S1, [ib.policy("mp-ucb", L=L)], horizon=100, replications=2, out=folder)
    assert {result.parameters.get("L") for result in ib.load(folder).results} >= {1.2345671, 1.2345672}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(BASE, seed=1), r"holds another experiment \(seed 0, not 1\)"),
        (replace(BASE, horizon=99), r"holds another experiment \(horizon 100, not 99\)"),
        (replace(BASE, scenario=ib.scenario(S1, users=4)), r"another scenario: users differs"),
        (replace(BASE, scenario=ib.scenario(S1, name="mine")), r"another scenario: name differs"),
        (
            replace(BASE, scenario=ib.scenario(S1, perturbation={"clear": 0.8})),
            "another scenario: perturbation differs",
        ),
    ],
)
def test_folder_of_another_experiment_is_refused(folder: Path, other: Experiment, message: str) -> None:
    before = contents(folder)
    with pytest.raises(ib.InputError, match=message), open_store(folder, other):
        pass
    assert contents(folder) == before


def test_folder_is_used_by_one_run_at_a_time(folder: Path) -> None:
    with open_store(folder, BASE):
        before = contents(folder)
        with pytest.raises(ib.InputError, match="in use by another run"), open_store(folder, BASE):
            pass
        command = [sys.executable, "-m", "idleband", "run", "S1", "--policy", "mp-ucb", "--horizon", "100"]
        second = subprocess.run([*command, "--out", str(folder)], capture_output=True, text=True, timeout=60)
        assert (second.returncode, second.stdout) == (2, "")
        assert second.stderr == f"idleband: {folder}: in use by another run\n"
        assert contents(folder) == before
    with open_store(folder, BASE):  # the folder can be used again
        pass


def test_temporary_files_of_a_killed_run_are_removed(folder: Path) -> None:
    leftovers = [folder / ".tmp-abc", folder / "tasks" / ".tmp-def"]
    (folder / "tasks").mkdir()
    for path in leftovers:
        path.write_text("half a file")
    with open_store(folder, BASE):
        assert not any(path.exists() for path in leftovers)


def test_other_files_below_the_folder_are_not_changed(tmp_path: Path) -> None:
    precious = tmp_path / "thesis" / ".tmp-notes"
    precious.parent.mkdir()
    precious.write_text("precious")
    with open_store(tmp_path, BASE):
        assert precious.read_text() == "precious"


def test_run_killed_before_the_experiment_file_was_written_can_restart(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(MINE)
    spec = experiment(S1, [ib.policy(f"{path}:mine")], 100, 2, 0)
    with open_store(tmp_path / "out", spec) as (store, merged):
        store.write_experiment(merged)
    (tmp_path / "out" / "experiment.toml").unlink()  # as after a kill: the policy is copied first
    with open_store(tmp_path / "out", spec):
        pass


def test_manifest_lists_versions_machine_and_tasks(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema"] == 1
    assert manifest["seed"] == 0
    assert manifest["seconds"] > 0
    assert set(manifest["versions"]) >= {"python", "idleband", "numpy", "numba"}
    assert manifest["versions"]["idleband"] == ib.__version__
    assert set(manifest["machine"]) == {"system", "processor", "cores"}
    tasks = {(task["policy"], task["replication"]): task["key"] for task in manifest["tasks"]}
    assert set(tasks) == {(policy, i) for policy in ("references", "mp-random", "mp-ucb") for i in range(2)}
    assert tasks["mp-ucb", 1] == task_key(BASE, Task(UCB, 1))
    assert set(tasks.values()) == set(stored_tasks(folder))


# --- folders of others -----------------------------------------------------------------------------------------------


def test_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "out"
    precious.write_text("precious")
    folder.mkdir()
    (folder / ".lock").symlink_to(precious)
    with pytest.raises(ib.InputError, match=r"\.lock: is a symbolic link; remove it"), open_store(folder, BASE):
        pytest.fail("the folder was opened")
    assert precious.read_text() == "precious"


def store_tasks(folder: Path, spec: Experiment) -> None:
    """Store an experiment in a folder, with zeros as results."""
    with open_store(folder, spec) as (store, merged):
        store.write_experiment(merged)
        for task, key in task_keys(spec, spec.tasks).items():
            rows, channels = (3, 0) if task.configured is None else (5, 10)
            curves = np.zeros((rows, len(checkpoints(spec.horizon))))
            store.save(key, TaskResult(curves, np.zeros(channels, np.int64), None, ""))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """A folder of another process with results of a user's policy; its file; and a file that its code writes."""
    folder, file, trace = tmp_path / "out", tmp_path / "own.py", tmp_path / "trace"
    file.write_text(f"open({str(trace)!r}, 'w').close()\n{MINE}")
    store_tasks(folder, experiment(S1, [ib.policy(f"{file}:mine"), UCB], 100, 2, 0))
    trace.unlink()
    monkeypatch.delitem(POLICIES, "mine")
    return folder, file, trace


def test_code_in_a_folder_is_not_run_unless_it_is_given(own: tuple[Path, Path, Path]) -> None:
    folder, file, trace = own
    (copy,) = (folder / "policies").iterdir()
    before = contents(folder)
    with pytest.raises(ib.InputError, match=f"results of the policy policies/{copy.name}:mine, whose code is not run"):
        check_folder(folder, BASE)
    assert (contents(folder), trace.exists()) == (before, False)
    merged = check_folder(folder, experiment(S1, [ib.policy(f"{file}:mine", first=1)], 100, 1, 0))
    assert [one.label for one in merged.policies] == ["mine", "mp-ucb", "mine first=1"]
    assert merged.replications == 2


def test_changed_code_in_a_folder_is_not_run(own: tuple[Path, Path, Path]) -> None:
    folder, file, trace = own
    (copy,) = (folder / "policies").iterdir()
    copy.write_text(f"raise SystemExit\n{MINE}")
    # No task belongs to this code. The given policy of the same name takes its place, and the copy is written again.
    for given in ([UCB], [ib.policy(f"{file}:mine"), UCB]):
        with open_store(folder, experiment(S1, given, 100, 2, 0)) as (store, merged):
            assert [one.label for one in merged.policies] == [one.label for one in given]
            store.write_experiment(merged)
    assert copy.read_text() == file.read_text()
    assert not trace.exists()


def test_model_in_a_folder_is_not_run_unless_it_is_given(tmp_path: Path) -> None:
    file, folder = tmp_path / "own.py", tmp_path / "out"
    file.write_text(f"{LOUD}# {tmp_path}\n")
    given = experiment(ib.scenario(S1, perturbation=f"{file}:loud"), [UCB], 100, 2, 0)
    store_tasks(folder, given)
    assert check_folder(folder, given) == given
    (copy,) = (folder / "models").iterdir()
    copy.write_text(f"raise SystemExit\n{LOUD}")
    with pytest.raises(ib.InputError, match="another scenario: perturbation differs"):
        check_folder(folder, given)


# --- altered tasks ---------------------------------------------------------------------------------------------------


def alter(folder: Path, change: Callable[[dict[str, Any], bytearray], Any], digest: bool) -> None:
    """Change the header and the arrays of each task of a policy; without `digest` as in logs without digests."""
    tasks = stored_tasks(folder)
    (folder / LOG).unlink()
    log = TaskLog(folder / LOG)
    for content in tasks.values():
        length = int.from_bytes(content[:4], "little")
        header, data = json.loads(content[4 : 4 + length]), bytearray(content[4 + length :])
        if header["plays"]:
            change(header, data)
        if not digest:
            header.pop("digest")
        text = json.dumps(header).encode()
        log.append(len(text).to_bytes(4, "little") + text + bytes(data))
    log.close()


ALTERED: dict[str, Callable[[dict[str, Any], bytearray], Any]] = {
    "one checkpoint less": lambda header, data: (
        header.update(curves=[5, header["curves"][1] - 1]), data.__delitem__(slice(0, 40))
    ),
    "transposed": lambda header, data: header.update(curves=header["curves"][::-1]),
    "another size": lambda header, data: header.update(curves=[5, 7]),
    "one channel more": lambda header, data: (header.update(plays=11), data.extend(bytes(8))),
    "a shape in words": lambda header, data: header.update(curves="many"),
    "a shape that is negative": lambda header, data: header.update(curves=[-1, 5]),
    "one dimension": lambda header, data: header.update(curves=[150]),
    "plays in words": lambda header, data: header.update(plays="many"),
    "too many plays": lambda header, data: header.update(plays=10**9),
    "a number as note": lambda header, data: header.update(note=5),
    "no key": lambda header, data: header.pop("key"),
    "a list as key": lambda header, data: header.update(key=[1]),
}  # fmt: skip


@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED)
def test_task_of_another_shape_is_refused_in_one_line(folder: Path, change: Any) -> None:
    alter(folder, change, digest=False)
    with pytest.raises(ib.InputError, match=r"delete the file to compute|choose another folder") as refused:
        ib.compare(S1, ["mp-random", "mp-ucb"], horizon=100, replications=2, out=folder)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "change",
    [
        lambda header, data: data.__setitem__(7, data[7] ^ 1),
        lambda header, data: data.__setitem__(-8, data[-8] ^ 1),
        lambda header, data: header.update(note="interpreted"),
    ],
    ids=["reward", "plays", "note"],
)
def test_altered_task_is_refused(folder: Path, change: Any) -> None:
    alter(folder, change, digest=True)
    with pytest.raises(ib.InputError, match=r"task [0-9a-f]{40} was altered \(its digest differs\)"):
        ib.compare(S1, ["mp-random", "mp-ucb"], horizon=100, replications=2, out=folder)


def test_log_without_digests_is_read(folder: Path) -> None:
    study = ib.load(folder)
    alter(folder, lambda header, data: None, digest=False)
    again = ib.compare(S1, ["mp-random", "mp-ucb"], horizon=100, replications=2, out=folder)
    assert (again["mp-ucb"].reward == study["mp-ucb"].reward).all()
    assert not any(
        b'"digest"' in content for content in list(stored_tasks(folder).values()) if b'"plays": 10' in content
    )
