"""Studies: stored results, resumed and extended experiments, tables, differences and figures."""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import stats

import idleband as ib
from idleband.experiments.run import StudyRequest, run_experiment, run_experiments
from idleband.experiments.spec import Experiment, experiment, read_experiment
from idleband.experiments.store import CONTEXTS, LOG, TRACES
from idleband.progress import Progress
from idleband.simulation.scheduler import ThreadExecutor
from tests.cli.calls import contents
from tests.conftest import ROOT
from tests.own_model import LOUD
from tests.own_policy import MINE
from tests.stored_tasks import as_files, remove_tasks, stored_tasks

CONFIGURED = [ib.policy("mp-random"), ib.policy("mp-ucb"), ib.policy("mp-ucb", L=0.5)]
Run = Callable[..., subprocess.CompletedProcess[str]]
LABELS = ["mp-random", "mp-ucb", "mp-ucb L=0.5"]
SIZE: dict[str, Any] = {"horizon": 300, "replications": 3, "seed": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the stored study. Tests must not change it."""
    return tmp_path_factory.mktemp("study") / "out"


@pytest.fixture(scope="module")
def study(folder: Path) -> ib.Study:
    return ib.compare("S4", CONFIGURED, out=folder, **SIZE)


def table(folder: Path, name: str = "results.parquet") -> pyarrow.Table:
    """Read a table of a results folder."""
    return pyarrow.parquet.read_table(folder / name)


def assert_equal(a: ib.Study, b: ib.Study) -> None:
    """Check that two studies are equal bit by bit; the order of policies may differ."""
    assert (a.scenario, a.seed) == (b.scenario, b.seed)
    assert_equal_results(a, b)


def assert_equal_results(a: ib.Study, b: ib.Study) -> None:
    """Check that the results of two studies are equal bit by bit."""
    assert sorted(a.labels) == sorted(b.labels)
    for result in a.results:
        other = b[result.label]
        assert (result.policy, result.parameters, result.seed) == (other.policy, other.parameters, other.seed)
        assert result.t.tolist() == other.t.tolist()
        assert result.plays.tolist() == other.plays.tolist()
        assert set(result.curves) == set(other.curves)
        for name, values in result.curves.items():
            assert values.tobytes() == np.ascontiguousarray(other.curves[name]).tobytes(), name


# --- files -----------------------------------------------------------------------------------------------------------


def test_columns_are_those_of_the_documentation(study: ib.Study, folder: Path) -> None:
    text, whole, real = "string", "int64", "double"
    documented = {
        **dict.fromkeys(["scenario", "policy", "label"], text),
        **dict.fromkeys(["replication", "t"], whole),
        **dict.fromkeys(
            ["reward", "regret_static", "regret_contextual", "regret_genie", "regret_table", "regret_bound"], real
        ),
        **dict.fromkeys(["suboptimal_static", "suboptimal_contextual", "collisions"], whole),
        "L": real,
    }
    found = table(folder).schema
    assert list(zip(found.names, map(str, found.types), strict=True)) == list(documented.items())


def test_one_row_per_policy_replication_and_checkpoint(study: ib.Study, folder: Path) -> None:
    rows = table(folder).select(["label", "replication", "t"]).to_pylist()
    expected = itertools.product(LABELS, range(3), study.results[0].t.tolist())
    assert [tuple(row.values()) for row in rows] == list(expected)
    assert study.results[0].t[-1] == 300


def test_stored_table_equals_the_table_of_the_study(study: ib.Study, folder: Path) -> None:
    found = table(folder).to_pandas()
    assert found.equals(study.to_pandas())
    assert set(found.scenario) == {"S4"}
    parameters = found[["label", "policy", "L"]].drop_duplicates().set_index("label")
    assert parameters.policy.to_dict() == {"mp-random": "mp-random", "mp-ucb": "mp-ucb", "mp-ucb L=0.5": "mp-ucb"}
    assert np.array_equal(parameters.L, [np.nan, 1.5, 0.5], equal_nan=True)
    assert not found.drop(columns="L").isna().to_numpy().any()


def test_plays_add_up_to_m_per_slot(study: ib.Study, folder: Path) -> None:
    plays = table(folder, "plays.parquet")
    assert plays.schema.names == ["scenario", "policy", "label", "replication", "channel", "channel_name", "plays"]
    frame = plays.to_pandas()
    assert len(frame) == len(frame[["label", "replication", "channel"]].drop_duplicates()) == 3 * 3 * 10
    sums = frame.groupby(["label", "replication"]).plays.sum()
    assert sums.tolist() == [5 * 300] * 9


def test_files_of_a_results_folder(study: ib.Study, folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {
        ".lock",
        "experiment.toml",
        "manifest.json",
        "plays.parquet",
        "results.parquet",
        "times.csv",
        "tasks.log",
    }
    assert len(stored_tasks(folder)) == 3 * 4  # three policies and the references


def test_every_file_of_a_results_folder_is_documented(study: ib.Study, folder: Path) -> None:
    page = (ROOT / "docs/reference/results.md").read_text().partition("## Columns")[0]
    described = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for path in folder.iterdir():
        assert path.name == ".lock" or f"`{path.name}" in described, path.name
    for part in (TRACES, CONTEXTS, "policies", "models"):
        assert f"`{part}/" in described, part
    (row,) = (line for line in page.splitlines() if line.startswith("| `plays.parquet`"))
    assert f"`{', '.join(pyarrow.parquet.read_schema(folder / 'plays.parquet').names)}`" in row


def test_stored_experiment_file_reproduces_the_results(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "experiment.toml", tmp_path / "again.toml")
    assert_equal(run_experiment(read_experiment(tmp_path / "again.toml"), tmp_path / "out"), study)
    assert (tmp_path / "out/experiment.toml").read_bytes() == (folder / "experiment.toml").read_bytes()
    assert table(tmp_path / "out").equals(table(folder), check_metadata=True)


def test_loaded_study_equals_the_study(study: ib.Study, folder: Path) -> None:
    loaded = ib.load(folder)
    assert loaded.labels == study.labels
    assert_equal(loaded, study)
    assert loaded.table().equals(study.table())
    assert loaded.difference("mp-ucb", "mp-random") == study.difference("mp-ucb", "mp-random")


def test_stored_study_loads_without_its_policies(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(
        MINE + "# gone\n"
    )  # unlike the source in any other test: see test_stored_policy_is_the_one_that_ran
    study = ib.compare("S4", [f"{path}:mine", "mp-ucb"], out=tmp_path / "out", **SIZE)
    path.unlink()
    shutil.rmtree(tmp_path / "out" / "policies")
    del ib.POLICIES["mine"]
    assert_equal(ib.load(tmp_path / "out"), study)


# --- equal results of different ways to run ---------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_threads(study: ib.Study, threads: int) -> None:
    assert_equal(ib.compare("S4", CONFIGURED, threads=threads, **SIZE), study)


def test_results_do_not_depend_on_the_order_of_policies(study: ib.Study) -> None:
    assert_equal(ib.compare("S4", CONFIGURED[::-1], **SIZE), study)


def test_results_do_not_depend_on_other_policies_or_replications(study: ib.Study) -> None:
    alone = ib.compare("S4", CONFIGURED[1:2], **{**SIZE, "replications": 1})["mp-ucb"]
    assert alone.reward.tobytes() == study["mp-ucb"].reward[:1].tobytes()
    assert alone.plays.tolist() == study["mp-ucb"].plays[:1].tolist()


def test_another_seed_gives_other_results(study: ib.Study) -> None:
    other = ib.compare("S4", CONFIGURED, **{**SIZE, "seed": 6})
    assert not np.array_equal(other["mp-ucb"].reward, study["mp-ucb"].reward)


def test_extending_step_by_step_equals_one_run(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept: dict[str, bytes] = {}
    log = b""
    steps: list[tuple[list[Any], int]] = [
        (CONFIGURED[:1], 1),
        (CONFIGURED[1:2], 1),
        (CONFIGURED[2:], 2),
        (CONFIGURED, 3),
    ]
    for policies, replications in steps:
        extended = ib.compare("S4", policies, out=out, **{**SIZE, "replications": replications})
        tasks = stored_tasks(out)
        assert kept.items() <= tasks.items()
        assert len(tasks) > len(kept)
        assert (out / "tasks.log").read_bytes().startswith(log)
        kept, log = tasks, (out / "tasks.log").read_bytes()
    assert_equal(extended, study)
    assert table(out).equals(table(folder), check_metadata=True)
    assert table(out, "plays.parquet").equals(table(folder, "plays.parquet"), check_metadata=True)


def test_smaller_request_keeps_stored_results(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder, tmp_path / "out")
    assert_equal(ib.compare("S4", CONFIGURED[:1], out=out, **{**SIZE, "replications": 1}), study)
    assert_equal(ib.load(out), study)


def test_folder_with_a_file_per_task_is_continued(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ib.compare("S4", CONFIGURED[:2], out=out, **{**SIZE, "replications": 2})
    as_files(out)
    (out / "results.parquet").unlink()
    kept = contents(out / "tasks")
    assert_equal(ib.compare("S4", CONFIGURED, out=out, **SIZE), study)
    assert contents(out / "tasks") == kept
    assert len(stored_tasks(out)) == 3 * 4 - len(kept)
    assert table(out).equals(table(folder), check_metadata=True)


def test_deleted_task_is_computed_again(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder, tmp_path / "out")
    tasks = stored_tasks(out)
    remove_tasks(out, [min(tasks)])
    (out / "results.parquet").unlink()
    assert_equal(ib.compare("S4", CONFIGURED, out=out, **SIZE), study)
    assert stored_tasks(out) == tasks
    assert table(out).equals(table(folder))


def test_grid_in_a_file_equals_listed_policies(study: ib.Study, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        """
        [scenario]
        base = "S4"
        [experiment]
        horizon = 300
        replications = 3
        seed = 5
        [[policy]]
        name = "mp-random"
        [[policy]]
        name = "mp-ucb"
        L = [1.5, 0.5]
        """
    )
    assert_equal(run_experiment(read_experiment(tmp_path / "grid.toml")), study)


# --- several experiments together ------------------------------------------------------------------------------------


def three() -> list[Experiment]:
    """Return experiments that differ in scenario, model, policies and size, and share some tasks."""
    scenarios = [ib.scenario("S4"), ib.scenario("S1", perturbation="none"), ib.scenario("S4")]
    return [experiment(scenario, CONFIGURED[i:], 40 + i // 2, 2 + i, 5) for i, scenario in enumerate(scenarios)]


def results(folder: Path) -> dict[str, bytes | None]:
    """Return the tasks of a folder, whose order depends on threads, and all other files that do not depend on time."""
    timed = ("times.csv", "manifest.json", LOG)
    return {name: data for name, data in contents(folder).items() if name not in timed} | stored_tasks(folder)


class Recorder(Progress):
    """Records the slots that were announced and run, and the messages; stops a run after `stop_after` slots."""

    def __init__(self, stop_after: float = np.inf) -> None:
        self.expected: list[float] = []
        self.slots: list[float] = []
        self.messages: list[str] = []
        self.stop_after = stop_after

    def expect(self, slots: float) -> None:
        self.expected.append(slots)

    def advance(self, slots: float) -> None:
        self.slots.append(slots)
        if sum(self.slots) > self.stop_after:
            raise KeyboardInterrupt

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.mark.parametrize("threads", [1, 2])
def test_experiments_run_together_give_the_results_of_single_runs(tmp_path: Path, threads: int) -> None:
    recorders = [Recorder() for _ in three()]
    requests = [StudyRequest(spec, tmp_path / str(i), recorders[i]) for i, spec in enumerate(three())]
    together = run_experiments(requests, executor=ThreadExecutor(threads))
    for i, spec in enumerate(three()):
        alone = run_experiment(spec, tmp_path / f"alone-{i}", executor=ThreadExecutor(1))
        assert_equal(together[i], alone)
        assert together[i].labels == alone.labels
        assert_equal(ib.load(tmp_path / str(i)), alone)
        assert results(tmp_path / str(i)) == results(tmp_path / f"alone-{i}")
        assert sum(recorders[i].slots) == sum(recorders[i].expected) == len(spec.tasks) * spec.horizon


def test_experiments_run_together_without_folders() -> None:
    for study, spec in zip(
        run_experiments([StudyRequest(spec) for spec in three()], executor=ThreadExecutor(2)), three(), strict=True
    ):
        assert_equal(study, run_experiment(spec))
    assert run_experiments([]) == []


def test_first_experiment_is_complete_when_the_second_is_stopped(tmp_path: Path) -> None:
    """Tasks run policy by policy, and the first experiment has fewer policies."""
    size = {"horizon": 40, "replications": 2}
    first = experiment(ib.scenario("S4"), CONFIGURED[:1], **size)
    second = experiment(ib.scenario("S4", users=3), CONFIGURED[:2], **size)
    stopped = StudyRequest(second, tmp_path / "2", Recorder(4 * 40))  # the references and the first policy are done
    with pytest.raises(KeyboardInterrupt):
        run_experiments([StudyRequest(first, tmp_path / "1"), stopped], executor=ThreadExecutor(1))
    study = ib.load(tmp_path / "1")
    assert study.complete
    assert_equal(study, run_experiment(first))
    assert not (tmp_path / "2/manifest.json").exists()
    kept = stored_tasks(tmp_path / "2")
    assert len(kept) == 4
    before = stored_tasks(tmp_path / "1")

    recorder = Recorder()
    requests = [StudyRequest(spec, tmp_path / name, recorder) for name, spec in (("1", first), ("2", second))]
    for study, spec in zip(run_experiments(requests), (first, second), strict=True):
        assert_equal(study, run_experiment(spec))
    assert recorder.expected == [0, 2 * 40]
    assert recorder.messages == [
        "S4: 1 policy x 2 replications x 40 slots, 4 of 4 tasks already there",
        "S4: 2 policies x 2 replications x 40 slots, 4 of 6 tasks already there",
    ]
    assert stored_tasks(tmp_path / "1") == before
    assert kept.items() < stored_tasks(tmp_path / "2").items()


def test_no_experiment_starts_if_one_is_refused(tmp_path: Path) -> None:
    first, second, _ = three()
    run_experiment(second, tmp_path / "2")
    before = contents(tmp_path / "2")
    other = experiment(second.scenario, second.policies, 99)
    with pytest.raises(ib.InputError, match="2: holds another experiment"):
        run_experiments([StudyRequest(first, tmp_path / "1"), StudyRequest(other, tmp_path / "2")])
    assert contents(tmp_path / "2") == before
    assert not stored_tasks(tmp_path / "1")
    assert not (tmp_path / "1/experiment.toml").exists()


def test_two_experiments_cannot_share_a_folder(tmp_path: Path) -> None:
    first = three()[0]
    with pytest.raises(ib.InputError, match="in use by another run"):
        run_experiments([StudyRequest(first, tmp_path / "1")] * 2)


# --- user policies and models -----------------------------------------------------------------------------------------


def test_user_policy_is_stored_with_its_results(idleband: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(MINE)
    study = ib.compare("S4", [ib.policy(f"{path}:mine", first=2)], out=out, **SIZE)
    assert study.labels == ["mine first=2"]
    assert study.results[0].plays.tolist() == [[0, 0, 300, 300, 300, 300, 300, 0, 0, 0]] * 3
    (copy,) = (out / "policies").iterdir()
    assert copy.read_text() == MINE
    assert f"{copy.relative_to(out)}:mine" in (out / "experiment.toml").read_text()

    path.unlink()  # the folder is complete without it: the experiment can be repeated elsewhere and extended
    assert idleband("run", out / "experiment.toml", "--out", "again").returncode == 0
    assert_equal(ib.load(tmp_path / "again"), study)
    more = ib.compare("S4", ["mp-random"], out=tmp_path / "again", **{**SIZE, "replications": 4})
    assert more.labels == ["mine first=2", "mp-random"]
    assert more["mine first=2"].replications == 4


@pytest.mark.parametrize("meanwhile", [Path.unlink, lambda path: path.write_text("changed = True\n")])
def test_stored_policy_is_the_one_that_ran(tmp_path: Path, meanwhile: Any) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    source = MINE + f"# {tmp_path}\n"
    path.write_text(source)
    configured = ib.policy(f"{path}:mine")
    meanwhile(path)
    ib.compare("S4", [configured], out=out, **SIZE)
    assert [copy.read_text() for copy in (out / "policies").iterdir()] == [source]


def test_only_a_changed_policy_is_computed_again(tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    counts = []
    for first in (0, 3, 0):
        path.write_text(MINE.replace("setup.params.first", str(first)))
        study = ib.compare("S4", [f"{path}:mine", "mp-random"], out=out, **SIZE)
        assert study["mine"].plays[0].tolist() == [300 * (first <= k < first + 5) for k in range(10)]
        assert_equal(ib.load(out), study)
        counts.append(len(stored_tasks(out)))
    assert counts == [9, 12, 12]  # the third run finds all tasks


def test_user_model_is_stored_with_its_results(idleband: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(LOUD)
    scenario = ib.scenario("S4", perturbation={"kind": f"{path}:loud", "clear": 0.6})
    study = ib.compare(scenario, ["mp-random"], out=out, **SIZE)
    (copy,) = (out / "models").iterdir()
    assert copy.read_text() == LOUD
    assert f'kind = "{copy.relative_to(out)}:loud"' in (out / "experiment.toml").read_text()
    tasks = stored_tasks(out)

    path.unlink()  # the folder is complete without it: the experiment can be repeated elsewhere
    assert idleband("run", out / "experiment.toml", "--out", "again").returncode == 0
    assert_equal_results(ib.load(tmp_path / "again"), study)
    assert stored_tasks(tmp_path / "again") == tasks
    more = ib.compare(ib.scenario(out / "experiment.toml"), ["mp-random"], out=out, **{**SIZE, "replications": 4})
    assert stored_tasks(out).items() > tasks.items()
    assert more["mp-random"].replications == 4
    assert len(list((out / "models").iterdir())) == 1


def test_changed_model_is_a_different_experiment(tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(LOUD)
    scenario = ib.scenario("S4", perturbation=f"{path}:loud")
    ib.compare(scenario, ["mp-random"], out=out, **SIZE)
    before = contents(out)
    path.write_text(LOUD.replace("+ theta[1]", "- theta[1]"))
    changed = ib.scenario("S4", perturbation=f"{path}:loud")
    with pytest.raises(ib.InputError, match="holds another experiment \\(another scenario: perturbation differs\\)"):
        ib.compare(changed, ["mp-random"], out=out, **SIZE)
    assert contents(out) == before
    ib.compare(scenario, ["mp-random"], out=out, **SIZE)  # the original model is accepted
    assert contents(out / "models") == {copy.name: LOUD.encode() for copy in (out / "models").iterdir()}


def test_stored_study_loads_without_its_model(tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(LOUD)
    for settings in ({"clear": 0.6}, {"theta": [[1.5, 0.25]]}):
        scenario = ib.scenario("S4", reward="additive", perturbation={"kind": f"{path}:loud", **settings})
        study = ib.compare(scenario, ["mp-random"], out=out, **SIZE)
        shutil.rmtree(out / "models")
        loaded = ib.load(out)
        assert_equal_results(loaded, study)
        assert loaded.scenario.to_dict()["perturbation"].items() >= settings.items()
        assert loaded.scenario.perturbation.kind == "loud"
        loaded.plot()
        with pytest.raises(ib.InputError, match="model loud: is not part of a stored study; build the scenario from"):
            ib.simulate(loaded.scenario, "mp-random", **SIZE)
        shutil.rmtree(out)


def test_policy_changed_within_one_second_is_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "user_code.py"
    for first in (0, 3):
        path.write_text(MINE.replace("setup.params.first", str(first)))
        os.utime(path, (10**9, 10**9))
        picks = [-1]
        ib.policy(f"{path}:mine").policy.select(SimpleNamespace(M=1), None, None, picks)
        assert picks == [first]


def test_policy_with_a_local_import_runs_interpreted(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(MINE.replace("        for m", "        import math\n        for m"))
    result = ib.simulate("S4", f"{path}:mine", horizon=20, replications=1)
    assert result.note


@pytest.mark.parametrize("name", ["reward", "t", "label"])
def test_parameter_does_not_replace_a_result_column(tmp_path: Path, name: str) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(MINE.replace("first", name))
    study = None
    with contextlib.suppress(ib.InputError):  # a refusal is accepted
        study = ib.compare("S4", [f"{path}:mine"], out=tmp_path / "out", **SIZE)
    if study is not None:
        assert_equal(ib.load(tmp_path / "out"), study)


# --- failed and stopped runs -----------------------------------------------------------------------------------------


def test_failed_policy_is_not_part_of_the_stored_experiment(tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(MINE.replace("return setup.M", "return 1"))
    with pytest.raises(ib.InputError, match="policy mine: picks = "):
        ib.compare("S4", [f"{path}:mine"], out=out, **SIZE)
    assert ib.compare("S4", ["mp-random"], out=out, **SIZE).labels == ["mp-random"]
    assert_equal(ib.load(out), ib.compare("S4", ["mp-random"], **SIZE))


def test_requested_replications_that_never_ran_are_dropped(tmp_path: Path) -> None:
    study = ib.compare("S4", ["mp-random"], out=tmp_path, **SIZE)
    file = tmp_path / "experiment.toml"
    requested = file.read_text().replace(f"replications = {SIZE['replications']}", "replications = 500")
    assert requested != file.read_text()
    file.write_text(requested)  # as after a larger run that was stopped
    assert not ib.load(tmp_path).complete
    assert_equal(ib.compare("S4", ["mp-random"], out=tmp_path, **SIZE), study)
    assert ib.load(tmp_path).complete


# --- intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["reward", "regret_genie", "collisions"])
@pytest.mark.parametrize("per_slot", [False, True])
def test_differences_are_those_of_a_paired_t_test(study: ib.Study, column: str, per_slot: bool) -> None:
    a, b = (study[label].curves[column][:, -1] / (300 if per_slot else 1) for label in ("mp-ucb", "mp-random"))
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    found = study.difference("mp-ucb", "mp-random", column, per_slot=per_slot)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert found.mean == pytest.approx((a - b).mean())
    assert found.replications == 3


def test_intervals_are_those_of_a_t_test(study: ib.Study) -> None:
    expected = stats.ttest_1samp(study["mp-ucb"].reward[:, -1], 0).confidence_interval(0.95)
    found = study.interval("mp-ucb")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert str(found) == f"{found.mean:.6g} [{found.low:.6g}, {found.high:.6g}]"


def test_text_of_a_difference_names_policies_quantity_unit_and_level(study: ib.Study) -> None:
    found = study.difference("mp-ucb", "mp-random", "collisions", per_slot=True)
    assert str(found) == (
        f"mp-ucb minus mp-random: collisions {found.mean:+.4g} per slot, 95% interval {found.low:.4g} to"
        f" {found.high:.4g}, 3 replications"
    )
    whole = study.difference("mp-ucb", "mp-random")
    assert str(whole).startswith(f"mp-ucb minus mp-random: reward {whole.mean:+.4g} in 300 slots, 95% interval ")


def test_difference_changes_sign_with_the_order_of_policies(study: ib.Study) -> None:
    forward, backward = study.difference("mp-ucb", "mp-random"), study.difference("mp-random", "mp-ucb")
    assert (backward.mean, backward.low, backward.high) == (-forward.mean, -forward.high, -forward.low)
    assert study.difference("mp-ucb", "mp-ucb")[:3] == (0, 0, 0)


def test_one_replication_gives_no_interval() -> None:
    study = ib.compare("S4", CONFIGURED[:2], horizon=50, replications=1)
    found = study.interval("mp-ucb")
    assert (found.low, found.high, found.replications) == (-np.inf, np.inf, 1)
    assert found.mean == study["mp-ucb"].reward[0, -1]
    assert str(found) == f"{found.mean:.6g} (one replication, no interval)"
    assert study.difference("mp-ucb", "mp-random").high == np.inf
    assert study.table().reward_pm.tolist() == [np.inf, np.inf]


def test_table_is_sorted_by_reward(study: ib.Study) -> None:
    found = study.table(full=True)
    assert sorted(found.index) == sorted(LABELS)
    assert found.reward.is_monotonic_decreasing
    assert found.reward.nunique() == 3
    for label in LABELS:
        mean, low, high = study.interval(label, "regret_static", per_slot=True)[:3]
        assert found.regret_static[label] == mean
        assert found.regret_static_pm[label] == pytest.approx((high - low) / 2)


def test_default_table_fits_80_columns(study: ib.Study) -> None:
    assert study.table().columns.tolist() == ["reward", "reward_pm", "regret_static", "collisions"]
    assert study.table(["collisions", "regret_genie_pm"]).columns.tolist() == ["collisions", "regret_genie_pm"]
    assert len(study.table(full=True).columns) == 18
    for text in (repr(study), str(study), str(study.table())):
        assert max(len(line) for line in text.splitlines()) <= 80
    assert repr(study) == "Study(S4: 3 policies x 3 replications x 300 slots)"
    for label in LABELS:
        assert label in str(study)
        assert label in study._repr_html_()
        assert label in study[label]._repr_html_()
    assert "reward" in study["mp-ucb"]._repr_html_()


def test_policies_may_be_nested_lists_and_grids() -> None:
    policies = ["mp-random", ib.grid("mp-ucb", L=[1.5, 0.5])]
    study = ib.compare("S4", policies, horizon=20, replications=1)
    assert study.labels == LABELS
    with pytest.raises(ib.InputError, match="policy mp-ucb: given twice"):
        ib.compare("S4", [*policies, ["mp-ucb"]], horizon=20, replications=1)


def test_channel_names_do_not_change_task_keys(tmp_path: Path) -> None:
    named = ib.compare("S4", ["mp-random"], out=tmp_path / "out", **SIZE)
    before = stored_tasks(tmp_path / "out")
    other = ib.scenario("S4", channel_names=[f"band {k}" for k in range(10)])
    again = ib.compare(other, ["mp-random"], out=tmp_path / "out", **SIZE)
    assert stored_tasks(tmp_path / "out") == before
    assert np.array_equal(again["mp-random"].reward, named["mp-random"].reward)
    plays = table(tmp_path / "out", "plays.parquet").to_pandas()
    assert plays.channel.tolist()[:10] == list(range(10))
    assert plays.channel_name.tolist()[:10] == list(other.channel_names)
    assert ib.load(tmp_path / "out").scenario == other


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda study: study["mp-ubc"], "unknown policy 'mp-ubc': did you mean 'mp-ucb'?"),
        (lambda study: study.difference("mp-ucb", "mp-rondam"), "did you mean 'mp-random'?"),
        (lambda study: study.interval("mp-ucb", "rewards"), "unknown column 'rewards': did you mean 'reward'?"),
        (lambda study: study.results[0].regret("statik"), "must be one of static, contextual, genie, table"),
        (lambda study: study.table(["rewards"]), "unknown column 'rewards': did you mean 'reward'?"),
        (lambda study: study.table("reward"), "columns = 'reward': must be a list of columns"),
        (lambda study: study.plot(scale="regret"), "scale = 'regret': must be one of reward, paper"),
        (lambda study: ib.compare("S4", 5), "policies: must be a list of policies"),
        (lambda study: ib.compare("S4", "mp-ucb"), "policies: must be a list of policies"),
        (lambda study: ib.compare("S4", []), "needs at least one"),
        (lambda study: ib.compare("S4", ["mp-ucb"], horizon=10, threads=0), "threads = 0"),
        (lambda study: ib.load("/nowhere"), "/nowhere: no such folder"),
        (lambda study: ib.load(3), "folder = 3: must be the name of a folder"),
        (lambda study: ib.compare("S4", ["mp-ucb"], horizon=10, out=""), "out = '': must be the name of a folder"),
        (
            lambda study: study.plot("reward.txt"),
            "path = 'reward.txt': must be the name of a file that ends in .png, .svg",
        ),
        (lambda study: study.plot(""), "path = '': must be the name of a file"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(study: ib.Study, call: Any, message: str) -> None:
    with pytest.raises(ib.InputError) as caught:
        call(study)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
