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
from idleband.progress import Progress
from tests.cli.calls import contents
from tests.own_model import LOUD
from tests.own_policy import MINE

CASES = [ib.policy("mp-random"), ib.policy("mp-ucb"), ib.policy("mp-ucb", L=0.5)]
Run = Callable[..., subprocess.CompletedProcess[str]]
LABELS = ["mp-random", "mp-ucb", "mp-ucb L=0.5"]
SIZE: dict[str, Any] = {"horizon": 300, "replications": 3, "seed": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the study is stored. Not to be changed."""
    return tmp_path_factory.mktemp("study") / "out"


@pytest.fixture(scope="module")
def study(folder: Path) -> ib.Study:
    return ib.compare("S4", CASES, out=folder, **SIZE)


def table(folder: Path, name: str = "results.parquet") -> pyarrow.Table:
    return pyarrow.parquet.read_table(folder / name)


def assert_equal(a: ib.Study, b: ib.Study) -> None:
    """Equal to the last bit, in whatever order the cases stand."""
    assert (a.scenario, a.seed) == (b.scenario, b.seed)
    assert_equal_results(a, b)


def assert_equal_results(a: ib.Study, b: ib.Study) -> None:
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


def test_columns_are_as_promised(study: ib.Study, folder: Path) -> None:
    text, whole, real = "string", "int64", "double"
    promised = {
        **dict.fromkeys(["scenario", "policy", "label"], text),
        **dict.fromkeys(["replication", "t"], whole),
        **dict.fromkeys(
            ["reward", "regret_static", "regret_contextual", "regret_genie", "regret_table", "regret_bound"], real
        ),
        **dict.fromkeys(["suboptimal_static", "suboptimal_contextual", "collisions"], whole),
        "L": real,
    }
    found = table(folder).schema
    assert list(zip(found.names, map(str, found.types), strict=True)) == list(promised.items())


def test_one_row_per_case_replication_and_checkpoint(study: ib.Study, folder: Path) -> None:
    rows = table(folder).select(["label", "replication", "t"]).to_pylist()
    expected = itertools.product(LABELS, range(3), study.results[0].t.tolist())
    assert [tuple(row.values()) for row in rows] == list(expected)
    assert study.results[0].t[-1] == 300


def test_the_table_holds_the_study(study: ib.Study, folder: Path) -> None:
    found = table(folder).to_pandas()
    assert found.equals(study.to_pandas())
    assert set(found.scenario) == {"S4"}
    parameters = found[["label", "policy", "L"]].drop_duplicates().set_index("label")
    assert parameters.policy.to_dict() == {"mp-random": "mp-random", "mp-ucb": "mp-ucb", "mp-ucb L=0.5": "mp-ucb"}
    assert np.array_equal(parameters.L, [np.nan, 1.5, 0.5], equal_nan=True)
    assert not found.drop(columns="L").isna().to_numpy().any()


def test_every_slot_plays_m_channels(study: ib.Study, folder: Path) -> None:
    plays = table(folder, "plays.parquet")
    assert plays.schema.names == ["scenario", "policy", "label", "replication", "channel", "channel_name", "plays"]
    frame = plays.to_pandas()
    assert len(frame) == len(frame[["label", "replication", "channel"]].drop_duplicates()) == 3 * 3 * 10
    sums = frame.groupby(["label", "replication"]).plays.sum()
    assert sums.tolist() == [5 * 300] * 9


def test_the_files_hold_only_what_they_should(study: ib.Study, folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {
        ".lock",
        "experiment.toml",
        "manifest.json",
        "plays.parquet",
        "results.parquet",
        "times.csv",
        "tasks",
    }
    assert len(list((folder / "tasks").iterdir())) == 3 * 4  # three cases and the references


def test_the_experiment_file_alone_runs_to_the_same_numbers(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "experiment.toml", tmp_path / "again.toml")
    assert_equal(run_experiment(read_experiment(tmp_path / "again.toml"), tmp_path / "out"), study)
    assert (tmp_path / "out/experiment.toml").read_bytes() == (folder / "experiment.toml").read_bytes()
    assert table(tmp_path / "out").equals(table(folder), check_metadata=True)


def test_a_stored_study_is_the_study(study: ib.Study, folder: Path) -> None:
    loaded = ib.load(folder)
    assert loaded.labels == study.labels
    assert_equal(loaded, study)
    assert loaded.table().equals(study.table())
    assert loaded.difference("mp-ucb", "mp-random") == study.difference("mp-ucb", "mp-random")


def test_a_stored_study_needs_none_of_its_policies(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(MINE + "# gone\n")  # no other test may have the same: see test_what_is_kept_is_what_ran
    study = ib.compare("S4", [f"{path}:mine", "mp-ucb"], out=tmp_path / "out", **SIZE)
    path.unlink()
    shutil.rmtree(tmp_path / "out" / "policies")
    del ib.POLICIES["mine"]
    assert_equal(ib.load(tmp_path / "out"), study)


# --- the same numbers, however they come about -----------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(study: ib.Study, threads: int) -> None:
    assert_equal(ib.compare("S4", CASES, threads=threads, **SIZE), study)


def test_the_order_of_policies_does_not_matter(study: ib.Study) -> None:
    assert_equal(ib.compare("S4", CASES[::-1], **SIZE), study)


def test_neither_company_nor_the_number_of_replications_matters(study: ib.Study) -> None:
    alone = ib.compare("S4", CASES[1:2], **{**SIZE, "replications": 1})["mp-ucb"]
    assert alone.reward.tobytes() == study["mp-ucb"].reward[:1].tobytes()
    assert alone.plays.tolist() == study["mp-ucb"].plays[:1].tolist()


def test_another_seed_gives_other_numbers(study: ib.Study) -> None:
    other = ib.compare("S4", CASES, **{**SIZE, "seed": 6})
    assert not np.array_equal(other["mp-ucb"].reward, study["mp-ucb"].reward)


def test_extending_step_by_step_equals_one_run(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept: dict[Path, tuple[bytes, int]] = {}
    steps: list[tuple[list[Any], int]] = [(CASES[:1], 1), (CASES[1:2], 1), (CASES[2:], 2), (CASES, 3)]
    for cases, replications in steps:
        extended = ib.compare("S4", cases, out=out, **{**SIZE, "replications": replications})
        tasks = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (out / "tasks").iterdir()}
        assert kept.items() <= tasks.items()
        assert len(tasks) > len(kept)
        kept = tasks
    assert_equal(extended, study)
    assert table(out).equals(table(folder), check_metadata=True)
    assert table(out, "plays.parquet").equals(table(folder, "plays.parquet"), check_metadata=True)


def test_asking_for_less_keeps_what_is_there(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder, tmp_path / "out")
    assert_equal(ib.compare("S4", CASES[:1], out=out, **{**SIZE, "replications": 1}), study)
    assert_equal(ib.load(out), study)


def test_a_deleted_unit_is_computed_again(study: ib.Study, folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder, tmp_path / "out")
    tasks = {path.name: path.read_bytes() for path in (out / "tasks").iterdir()}
    (out / "tasks" / min(tasks)).unlink()
    (out / "results.parquet").unlink()
    assert_equal(ib.compare("S4", CASES, out=out, **SIZE), study)
    assert {path.name: path.read_bytes() for path in (out / "tasks").iterdir()} == tasks
    assert table(out).equals(table(folder))


def test_a_grid_in_a_file(study: ib.Study, tmp_path: Path) -> None:
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


# --- several experiments at once -------------------------------------------------------------------------------------


def three() -> list[Experiment]:
    """Unlike in scenario, model, policies and size, and alike in some tasks."""
    worlds = [ib.scenario("S4"), ib.scenario("S1", perturbation="none"), ib.scenario("S4")]
    return [experiment(world, CASES[i:], 40 + i // 2, 2 + i, 5) for i, world in enumerate(worlds)]


def results(folder: Path) -> dict[str, bytes | None]:
    """All that does not depend on when and how fast it was made."""
    return {name: data for name, data in contents(folder).items() if name not in ("times.csv", "manifest.json")}


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
    together = run_experiments(requests, threads=threads)
    for i, spec in enumerate(three()):
        alone = run_experiment(spec, tmp_path / f"alone-{i}", threads=1)
        assert_equal(together[i], alone)
        assert together[i].labels == alone.labels
        assert_equal(ib.load(tmp_path / str(i)), alone)
        assert results(tmp_path / str(i)) == results(tmp_path / f"alone-{i}")
        assert sum(recorders[i].slots) == sum(recorders[i].expected) == len(spec.tasks) * spec.horizon


def test_experiments_run_together_without_folders() -> None:
    for study, spec in zip(run_experiments([StudyRequest(spec) for spec in three()], threads=2), three(), strict=True):
        assert_equal(study, run_experiment(spec))
    assert run_experiments([]) == []


def test_one_is_finished_when_another_is_stopped(tmp_path: Path) -> None:
    """Policy by policy: the first experiment has no third one."""
    size = {"horizon": 40, "replications": 2}
    first = experiment(ib.scenario("S4"), CASES[:1], **size)
    second = experiment(ib.scenario("S4", users=3), CASES[:2], **size)
    stopped = StudyRequest(second, tmp_path / "2", Recorder(4 * 40))  # the references and the first policy are done
    with pytest.raises(KeyboardInterrupt):
        run_experiments([StudyRequest(first, tmp_path / "1"), stopped], threads=1)
    study = ib.load(tmp_path / "1")
    assert study.complete
    assert_equal(study, run_experiment(first))
    assert not (tmp_path / "2/manifest.json").exists()
    kept = contents(tmp_path / "2/tasks")
    assert len(kept) == 4
    before = contents(tmp_path / "1/tasks")

    recorder = Recorder()
    requests = [StudyRequest(spec, tmp_path / name, recorder) for name, spec in (("1", first), ("2", second))]
    for study, spec in zip(run_experiments(requests), (first, second), strict=True):
        assert_equal(study, run_experiment(spec))
    assert recorder.expected == [0, 2 * 40]
    assert recorder.messages == [
        "S4: 1 policies x 2 replications x 40 slots, 4 of 4 tasks already there",
        "S4: 2 policies x 2 replications x 40 slots, 4 of 6 tasks already there",
    ]
    assert contents(tmp_path / "1/tasks") == before
    assert kept.items() < contents(tmp_path / "2/tasks").items()


def test_one_that_is_refused_stops_all_before_they_begin(tmp_path: Path) -> None:
    first, second, _ = three()
    run_experiment(second, tmp_path / "2")
    before = contents(tmp_path / "2")
    other = experiment(second.scenario, second.policies, 99)
    with pytest.raises(ib.InputError, match="2: holds another experiment"):
        run_experiments([StudyRequest(first, tmp_path / "1"), StudyRequest(other, tmp_path / "2")])
    assert contents(tmp_path / "2") == before
    assert not list(tmp_path.glob("1/tasks/*"))
    assert not (tmp_path / "1/experiment.toml").exists()


def test_two_cannot_share_a_folder(tmp_path: Path) -> None:
    first = three()[0]
    with pytest.raises(ib.InputError, match="in use by another run"):
        run_experiments([StudyRequest(first, tmp_path / "1")] * 2)


# --- a user's own policy ---------------------------------------------------------------------------------------------


def test_a_users_policy_is_kept_with_its_results(idleband: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(MINE)
    study = ib.compare("S4", [ib.policy(f"{path}:mine", first=2)], out=out, **SIZE)
    assert study.labels == ["mine first=2"]
    assert study.results[0].plays.tolist() == [[0, 0, 300, 300, 300, 300, 300, 0, 0, 0]] * 3
    (copy,) = (out / "policies").iterdir()
    assert copy.read_text() == MINE
    assert f"{copy.relative_to(out)}:mine" in (out / "experiment.toml").read_text()

    path.unlink()  # the folder is complete without it: it runs again elsewhere, and it can be extended
    assert idleband("run", out / "experiment.toml", "--out", "again").returncode == 0
    assert_equal(ib.load(tmp_path / "again"), study)
    more = ib.compare("S4", ["mp-random"], out=tmp_path / "again", **{**SIZE, "replications": 4})
    assert more.labels == ["mine first=2", "mp-random"]
    assert more["mine first=2"].replications == 4


@pytest.mark.parametrize("meanwhile", [Path.unlink, lambda path: path.write_text("changed = True\n")])
def test_what_is_kept_is_what_ran(tmp_path: Path, meanwhile: Any) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    source = MINE + f"# {tmp_path}\n"
    path.write_text(source)
    case = ib.policy(f"{path}:mine")
    meanwhile(path)
    ib.compare("S4", [case], out=out, **SIZE)
    assert [copy.read_text() for copy in (out / "policies").iterdir()] == [source]


def test_a_changed_policy_is_computed_again_and_nothing_else_is(tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    counts = []
    for first in (0, 3, 0):
        path.write_text(MINE.replace("setup.params.first", str(first)))
        study = ib.compare("S4", [f"{path}:mine", "mp-random"], out=out, **SIZE)
        assert study["mine"].plays[0].tolist() == [300 * (first <= k < first + 5) for k in range(10)]
        assert_equal(ib.load(out), study)
        counts.append(len(list((out / "tasks").iterdir())))
    assert counts == [9, 12, 12]  # the third time everything is there already


def test_a_users_model_is_kept_with_its_results(idleband: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(LOUD)
    scenario = ib.scenario("S4", perturbation={"kind": f"{path}:loud", "clear": 0.6})
    study = ib.compare(scenario, ["mp-random"], out=out, **SIZE)
    (copy,) = (out / "models").iterdir()
    assert copy.read_text() == LOUD
    assert f'kind = "{copy.relative_to(out)}:loud"' in (out / "experiment.toml").read_text()
    tasks = contents(out / "tasks")

    path.unlink()  # the folder is complete without it: it runs again elsewhere, and nothing is computed twice
    assert idleband("run", out / "experiment.toml", "--out", "again").returncode == 0
    assert_equal_results(ib.load(tmp_path / "again"), study)
    assert contents(tmp_path / "again" / "tasks") == tasks
    more = ib.compare(ib.scenario(out / "experiment.toml"), ["mp-random"], out=out, **{**SIZE, "replications": 4})
    assert contents(out / "tasks").items() > tasks.items()
    assert more["mp-random"].replications == 4
    assert len(list((out / "models").iterdir())) == 1


def test_a_changed_model_is_another_experiment(tmp_path: Path) -> None:
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
    ib.compare(scenario, ["mp-random"], out=out, **SIZE)  # the model that it was begun with still belongs there
    assert contents(out / "models") == {copy.name: LOUD.encode() for copy in (out / "models").iterdir()}


def test_a_stored_study_needs_nothing_of_its_model(tmp_path: Path) -> None:
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


def test_a_policy_changed_within_a_second_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "user_code.py"
    for first in (0, 3):
        path.write_text(MINE.replace("setup.params.first", str(first)))
        os.utime(path, (10**9, 10**9))
        picks = [-1]
        ib.policy(f"{path}:mine").policy.select(SimpleNamespace(M=1), None, None, picks)
        assert picks == [first]


def test_a_policy_with_an_import_inside_runs_interpreted(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(MINE.replace("        for m", "        import math\n        for m"))
    result = ib.simulate("S4", f"{path}:mine", horizon=20, replications=1)
    assert result.note


@pytest.mark.parametrize("name", ["reward", "t", "label"])
def test_a_parameter_cannot_hide_a_measured_column(tmp_path: Path, name: str) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(MINE.replace("first", name))
    study = None
    with contextlib.suppress(ib.InputError):  # to refuse it is fine
        study = ib.compare("S4", [f"{path}:mine"], out=tmp_path / "out", **SIZE)
    if study is not None:
        assert_equal(ib.load(tmp_path / "out"), study)


# --- what a folder does not hold against its user --------------------------------------------------------------------


def test_a_policy_that_only_failed_does_not_come_back(tmp_path: Path) -> None:
    path, out = tmp_path / "user_code.py", tmp_path / "out"
    path.write_text(MINE.replace("return setup.M", "return 1"))
    with pytest.raises(ib.InputError, match="policy mine: picks = "):
        ib.compare("S4", [f"{path}:mine"], out=out, **SIZE)
    assert ib.compare("S4", ["mp-random"], out=out, **SIZE).labels == ["mp-random"]
    assert_equal(ib.load(out), ib.compare("S4", ["mp-random"], **SIZE))


def test_replications_that_never_ran_do_not_come_back(tmp_path: Path) -> None:
    study = ib.compare("S4", ["mp-random"], out=tmp_path, **SIZE)
    file = tmp_path / "experiment.toml"
    asked = file.read_text().replace(f"replications = {SIZE['replications']}", "replications = 500")
    assert asked != file.read_text()
    file.write_text(asked)  # as a run leaves it that asked for too much and was stopped
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


def test_difference_and_its_opposite(study: ib.Study) -> None:
    there, back = study.difference("mp-ucb", "mp-random"), study.difference("mp-random", "mp-ucb")
    assert (back.mean, back.low, back.high) == (-there.mean, -there.high, -there.low)
    assert study.difference("mp-ucb", "mp-ucb")[:3] == (0, 0, 0)


def test_one_replication_gives_no_interval() -> None:
    study = ib.compare("S4", CASES[:2], horizon=50, replications=1)
    found = study.interval("mp-ucb")
    assert (found.low, found.high, found.replications) == (-np.inf, np.inf, 1)
    assert found.mean == study["mp-ucb"].reward[0, -1]
    assert str(found) == f"{found.mean:.6g} (one replication, no interval)"
    assert study.difference("mp-ucb", "mp-random").high == np.inf
    assert study.table().reward_pm.tolist() == [np.inf, np.inf]


def test_the_table_is_sorted_by_reward(study: ib.Study) -> None:
    found = study.table(full=True)
    assert sorted(found.index) == sorted(LABELS)
    assert found.reward.is_monotonic_decreasing
    assert found.reward.nunique() == 3
    for label in LABELS:
        mean, low, high, _ = study.interval(label, "regret_static", per_slot=True)
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
    before = contents(tmp_path / "out/tasks")
    other = ib.scenario("S4", channel_names=[f"band {k}" for k in range(10)])
    again = ib.compare(other, ["mp-random"], out=tmp_path / "out", **SIZE)
    assert contents(tmp_path / "out/tasks") == before
    assert np.array_equal(again["mp-random"].reward, named["mp-random"].reward)
    plays = table(tmp_path / "out", "plays.parquet").to_pandas()
    assert plays.channel.tolist()[:10] == list(range(10))
    assert plays.channel_name.tolist()[:10] == list(other.channel_names)
    assert ib.load(tmp_path / "out").scenario == other


@pytest.mark.parametrize(
    ("call", "says"),
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
    ],
)
def test_invalid_arguments_are_refused_in_one_line(study: ib.Study, call: Any, says: str) -> None:
    with pytest.raises(ib.InputError) as caught:
        call(study)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
