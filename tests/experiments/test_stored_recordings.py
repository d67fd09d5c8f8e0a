"""Results folders of replayed traces contain all that is needed to read, continue and extend them."""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

import idleband as ib
from idleband.experiments.spec import read_experiment
from idleband.experiments.store import task_keys
from tests.stored_tasks import remove_tasks, stored_tasks

T, K = 100, 4
SIZE = {"replications": 2}


def make_trace(seed: int = 0) -> ib.Trace:
    rng = np.random.default_rng(seed)
    return ib.Trace.from_arrays(
        busy=rng.random((T, K)) < 0.4, power=rng.random((T, K)), channel_names=["a", "b", "c", "d"]
    )


def same(a: ib.Study, b: ib.Study, label: str = "mp-random") -> bool:
    return np.array_equal(a[label].reward, b[label].reward) and np.array_equal(a[label].plays, b[label].plays)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_folder_can_be_moved_loaded_and_extended(tmp_path: Path, in_memory: bool) -> None:
    trace, source = make_trace(), tmp_path / "source.parquet"
    trace.save(source)
    scenario = ib.scenario(trace if in_memory else source, users=2)
    study = ib.compare(scenario, ["mp-random"], out=tmp_path / "out", **SIZE)
    source.unlink()
    shutil.move(tmp_path / "out", tmp_path / "moved")
    (copy,) = (tmp_path / "moved" / "traces").iterdir()
    stem = "trace" if in_memory else "source"
    assert copy.name == f"{stem}@{scenario.recording.digest[:12]}.parquet"
    table = tomllib.loads((tmp_path / "moved" / "experiment.toml").read_text())["scenario"]
    assert table["trace"]["file"] == f"traces/{copy.name}"
    loaded = ib.load(tmp_path / "moved")
    assert loaded.complete
    assert same(loaded, study)
    assert loaded.scenario == scenario
    assert np.array_equal(loaded.scenario.recording.trace.power, trace.power)
    assert str(loaded.interval("mp-random")) == str(study.interval("mp-random"))

    times = (tmp_path / "moved" / "times.csv").read_text()
    extended = ib.compare(scenario, ["mp-random", "mp-ucb"], out=tmp_path / "moved", **SIZE)
    assert same(extended, study)
    assert (tmp_path / "moved" / "times.csv").read_text().startswith(times)
    assert len((tmp_path / "moved" / "times.csv").read_text().splitlines()) == len(times.splitlines()) + 2
    assert [path.name for path in (tmp_path / "moved" / "traces").iterdir()] == [copy.name]
    again = ib.compare(loaded.scenario, ["mp-random"], out=tmp_path / "third", **SIZE)
    assert same(again, study)
    assert [path.name for path in (tmp_path / "third" / "traces").iterdir()] == [copy.name]


def test_experiment_file_of_a_folder_describes_the_same_experiment(tmp_path: Path) -> None:
    scenario = ib.scenario(make_trace(), users=2)
    ib.compare(scenario, ["mp-random"], out=tmp_path / "out", **SIZE)
    held = read_experiment(tmp_path / "out" / "experiment.toml")
    assert (held.scenario, held.horizon) == (scenario, T)
    assert set(task_keys(held, held.tasks).values()) == set(stored_tasks(tmp_path / "out"))


def test_another_trace_is_another_experiment(tmp_path: Path) -> None:
    ib.compare(ib.scenario(make_trace(), users=2), ["mp-random"], out=tmp_path / "out", **SIZE)
    with pytest.raises(ib.InputError, match=r"another experiment \(another scenario: trace differs"):
        ib.compare(ib.scenario(make_trace(1), users=2), ["mp-random"], out=tmp_path / "out", **SIZE)


def test_a_missing_copy_of_the_trace_is_named(tmp_path: Path) -> None:
    ib.compare(ib.scenario(make_trace(), users=2), ["mp-random"], out=tmp_path / "out", **SIZE)
    (copy,) = (tmp_path / "out" / "traces").iterdir()
    copy.unlink()
    with pytest.raises(ib.InputError, match=rf"{copy.name}: cannot be read: No such file"):
        ib.load(tmp_path / "out")


@pytest.mark.parametrize("form", ["npy", "parquet"])
def test_recorded_contexts_are_copied(tmp_path: Path, form: str) -> None:
    contexts = np.random.default_rng(2).random((50, K, 3)).astype(np.float32)
    if form == "npy":
        np.save(tmp_path / "csi.npy", contexts)
    else:
        ib.Trace.from_arrays(busy=np.zeros((50, K)), contexts=contexts).save(tmp_path / "csi.parquet")
    context = {"kind": "recorded", "file": str(tmp_path / f"csi.{form}")}
    scenario = ib.scenario(p01=[0.2] * K, p10=[0.1] * K, users=2, context=context)
    study = ib.compare(scenario, ["mp-random"], out=tmp_path / "out", horizon=40, replications=1)
    (tmp_path / f"csi.{form}").unlink()
    shutil.move(tmp_path / "out", tmp_path / "moved")
    (copy,) = (tmp_path / "moved" / "contexts").iterdir()
    assert copy.name.startswith("csi@")
    assert copy.suffix == ".npy"
    assert ib.load(tmp_path / "moved").scenario == scenario
    more = ib.compare(
        ib.load(tmp_path / "moved").scenario, ["mp-ucb"], out=tmp_path / "moved", horizon=40, replications=1
    )
    assert same(more, study)


def test_contexts_of_the_trace_are_in_its_copy(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    trace = ib.Trace.from_arrays(busy=rng.random((60, 3)) < 0.5, contexts=rng.random((60, 3, 2)))
    scenario = ib.scenario(trace, users=1, perturbation={"theta": [0.5, 0.5]})
    study = ib.compare(scenario, ["mp-random"], out=tmp_path / "out", replications=1)
    loaded = ib.load(tmp_path / "out")
    assert loaded.scenario == scenario
    assert same(loaded, study)
    assert not (tmp_path / "out" / "contexts").exists()


def test_an_interrupted_replay_continues(tmp_path: Path) -> None:
    scenario, out = ib.scenario(make_trace(), users=2), tmp_path / "out"
    study = ib.compare(scenario, ["mp-random"], out=out, **SIZE)
    times = (out / "times.csv").read_text().splitlines()
    for name in ("results.parquet", "plays.parquet", "manifest.json"):
        (out / name).unlink()
    remove_tasks(out, [times[-1].split(",")[0]])
    copy = next((out / "traces").iterdir())
    (out / "traces" / ".tmp-left").write_bytes(b"half a trace")
    made = copy.stat().st_mtime_ns
    assert same(ib.compare(scenario, ["mp-random"], out=out, **SIZE), study)
    assert len((out / "times.csv").read_text().splitlines()) == len(times) + 1
    assert [path.name for path in (out / "traces").iterdir()] == [copy.name]
    assert copy.stat().st_mtime_ns == made
