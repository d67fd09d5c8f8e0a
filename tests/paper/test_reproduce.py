"""Interrupted, killed, extended and repeated reproductions give the same numbers."""

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import idleband as ib
from idleband.errors import InputError
from idleband.paper import stored as stored_studies
from idleband.paper.claims import judge
from idleband.paper.folder import check_size, claim_folder, read_settings
from idleband.paper.parts import PARTS
from idleband.paper.plan import Size
from idleband.paper.readings import MAIN, SENSED
from idleband.paper.report import report_figures, write_report
from idleband.paper.reproduce import reproduce
from idleband.paper.stored import StoredStudies
from idleband.progress import Progress
from idleband.simulation.scheduler import ThreadExecutor
from tests.paper import stored
from tests.paper.stored import SIZE
from tests.stored_tasks import stored_tasks

TABLES = ("results.parquet", "plays.parquet")
FIGURE_4 = len(stored.LINEAR_MODEL) * 2  # its studies: tuning and betas


def tasks(folder: Path) -> dict[str, bytes]:
    """Return the content of every stored task by study and key."""
    places = sorted(folder.glob("studies/*"))
    return {f"{place.name}/{key}": task for place in places for key, task in stored_tasks(place).items()}


def check_same(folder: Path, whole: Path) -> None:
    """Check that a folder contains exactly the studies of figure 4, byte for byte as in the whole."""
    places = sorted((folder / "studies").iterdir())
    assert len(places) == FIGURE_4
    for place in places:
        other = whole / "studies" / place.name
        for name in TABLES:
            assert (place / name).read_bytes() == (other / name).read_bytes(), (place.name, name)
        assert stored_tasks(place) == stored_tasks(other), place.name
    assert StoredStudies(folder).parts == ["figure4"]
    assert not list(folder.rglob(".tmp-*"))


@pytest.fixture
def figure4(whole: Path, tmp_path: Path) -> Path:
    """Return a folder with figure 4 only, which can be continued."""
    return stored.some_studies(whole, tmp_path / "out", stored.FIGURE_4_STUDIES.fullmatch, tasks=True)


# --- all parts -------------------------------------------------------------------------------------------------------


def test_complete_reproduction_has_all_parts(whole: Path) -> None:
    found = StoredStudies(whole)
    assert found.parts == list(PARTS)
    assert found.size == read_settings(whole) == SIZE
    assert {p.name for p in whole.iterdir()} == {
        *("reproduction.toml", "studies", "figures", "report.html", "claims.csv", "claims.md")
    }
    # readings: baselines and MP-LUCB, MP-NUCB, two kinds of tuning; other points of the map; figure 3; figure 4
    expected = 4 * 4 * len(stored.POLICIES) + 4 * 2 * len(stored.ONLY_IN_MAP) + 5 * 3 + len(stored.LINEAR_MODEL)
    assert len(list((whole / "studies").iterdir())) == expected


def test_stored_choices_are_those_of_the_tuning_studies(whole: Path, studies: StoredStudies) -> None:
    assert len(studies.choices) == 4 * (len(stored.POLICIES) + len(stored.ONLY_IN_MAP))
    for (reading, preset), tuning in studies.choices.items():
        assert tuning.beta == stored.beta(whole, reading, preset)
        assert stored.tuned_L(whole, reading, preset) == tuning.L
        gamma = stored.gamma(whole, reading, preset) if reading in stored.POLICIES else None
        assert tuning.gamma == gamma


def test_processor_time_is_that_of_the_studies(whole: Path, studies: StoredStudies) -> None:
    """The manifest of a study has the sum of the times of its tasks."""
    assert studies.parts
    times = [line.split(",") for p in whole.glob("studies/*/times.csv") for line in p.read_text().splitlines()]
    assert len(times) == len(tasks(whole))
    rounded = 0.001 * len(studies.used)
    seconds = sum(manifest["seconds"] for manifest in studies.manifests)
    assert 0 < seconds == pytest.approx(sum(float(time) for _, time in times), abs=rounded)


def test_static_and_contextual_regret_compare_alike(whole: Path) -> None:
    """Their difference is the same for all policies on a sample path."""

    def gap(curve: Callable[..., np.ndarray], reading: str, name: str) -> np.ndarray:
        static, contextual = (curve(whole, reading, "S2", name, f"regret_{kind}") for kind in ("static", "contextual"))
        return static - contextual

    expected = gap(stored.baseline, "slot-played", "mp-random")
    for reading in ("slot-played", "rca-sensed", "printed-reward"):
        found = gap(stored.proposed, reading, "MP-LUCB")
        np.testing.assert_allclose(found, expected[: len(found)], rtol=0, atol=1e-9)
    neural = gap(stored.proposed, "slot-played", "MP-NUCB")
    np.testing.assert_allclose(neural, expected[: SIZE.neural], rtol=0, atol=1e-9)


# --- equal results ---------------------------------------------------------------------------------------------------


def test_results_do_not_depend_on_threads_or_other_parts(whole: Path, tmp_path: Path) -> None:
    """One part runs on two threads; the whole ran on one."""
    reproduce(tmp_path / "out", SIZE, ["figure4"], executor=ThreadExecutor(2))
    check_same(tmp_path / "out", whole)


class Recorder(Progress):
    """Observer that records all reports and interrupts the run after a share of the work."""

    def __init__(self, stop_at: float = math.inf) -> None:
        self.expected: list[float] = []
        self.compiled: list[str] = []
        self.done: list[float] = []
        self.stop_at = stop_at

    def expect(self, slots: float) -> None:
        self.expected.append(slots)

    def compiling(self, policy: str) -> None:
        self.compiled.append(policy)

    def advance(self, slots: float) -> None:
        self.done.append(slots)
        if sum(self.done) > self.stop_at * self.expected[0]:
            raise KeyboardInterrupt


def test_running_again_simulates_nothing(figure4: Path) -> None:
    before = tasks(figure4)
    tables = {p: p.read_bytes() for p in figure4.glob("studies/*/*.parquet")}
    recorder = Recorder()
    reproduce(figure4, SIZE, ["figure4"], progress=recorder)
    assert tasks(figure4) == before
    assert recorder.compiled == []
    assert {p: p.read_bytes() for p in figure4.glob("studies/*/*.parquet")} == tables


def test_progress_adds_up_to_the_announced_work(tmp_path: Path) -> None:
    """Stored work counts as done, and slots of networks count more than others."""
    size = Size(horizon=20, replications=2, fewer=2, fewest=2, neural=2, neural_fewer=2, tuning=1)
    runs = tuning_tasks, gamma_tasks, linear_tasks, neural_tasks = 19 + 7, 5, 5 * 2 * 4, 5 * 4
    for _ in ("new", "there"):
        recorder = Recorder()
        reproduce(tmp_path / "out", size, ["figure3"], executor=ThreadExecutor(1), progress=recorder)
        assert recorder.expected == [20 * (tuning_tasks + linear_tasks + 17 * neural_tasks) + 10 * 17 * gamma_tasks]
        assert sum(recorder.done) == pytest.approx(recorder.expected[0])
    assert len(tasks(tmp_path / "out")) == sum(runs)


def test_more_replications_extend_the_stored_studies(whole: Path, tmp_path: Path) -> None:
    """Figure 4 is extended; figure 3 keeps its replications."""
    wanted = re.compile(f"{stored.FIGURE_3_STUDIES.pattern}|{stored.FIGURE_4_STUDIES.pattern}")
    folder = stored.some_studies(whole, tmp_path / "out", wanted.fullmatch, tasks=True)
    before = tasks(folder)
    reproduce(folder, replace(SIZE, replications=7), ["figure4"])
    after = tasks(folder)
    assert before.items() <= after.items()
    new = [name.split("/")[0] for name in after.keys() - before.keys()]
    assert new == ["S1-slot-played-beta"] * (6 + 1)
    studies = StoredStudies(folder)
    assert studies.size.replications == 7
    assert studies.parts == ["figure3", "figure4"]
    assert [studies.with_users(MAIN, "MP-LUCB", M).replications for M in (1, 9)] == [6, 6]
    assert [result.replications for result in studies.with_beta(MAIN)] == [7] * 6
    assert [result.replications for result in studies.with_beta(SENSED)] == [2] * 6


def test_fewer_replications_use_the_first_stored_ones(figure4: Path, studies: StoredStudies) -> None:
    claim_folder(figure4, replace(SIZE, replications=2))
    found = StoredStudies(figure4)
    assert found.parts == ["figure4"]
    for result, more in zip(found.with_beta(MAIN), studies.with_beta(MAIN), strict=True):
        assert (result.replications, more.replications) == (2, 6)
        assert np.array_equal(result.reward, more.reward[:2])


def test_fewer_tuning_replications_choose_the_same_when_run_and_when_stored(tmp_path: Path) -> None:
    """The folder contains more replications than requested."""
    size = Size(horizon=50, replications=2, fewer=2, fewest=2, neural=2, neural_fewer=2, tuning=4)
    folder = tmp_path / "out"
    reproduce(folder, size, ["figure3"])
    reproduce(folder, replace(size, tuning=1), ["figure3"])
    assert StoredStudies(folder).parts == ["figure3"]


# --- interrupted runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.6], ids=["while tuning", "later"])
def test_interrupted_reproduction_continues_with_equal_results(whole: Path, tmp_path: Path, share: float) -> None:
    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        reproduce(folder, SIZE, ["figure4"], executor=ThreadExecutor(1), progress=Recorder(stop_at=share))
    kept = tasks(folder)
    assert kept
    assert len(list((folder / "studies").iterdir())) == (FIGURE_4 // 2 if share < 0.2 else FIGURE_4)
    assert StoredStudies(folder).parts == []
    with pytest.raises(InputError, match="S1-rca-sensed-beta: not finished; `idleband reproduce` continues it"):
        StoredStudies(folder).with_beta(SENSED)
    reproduce(folder, SIZE, ["figure4"])
    assert kept.items() < tasks(folder).items()  # finished tasks are not repeated
    check_same(folder, whole)


KILLED = """
import os, signal, sys
from pathlib import Path
from idleband.paper.reproduce import reproduce
from idleband.progress import Progress
from idleband.simulation.scheduler import ThreadExecutor
from tests.paper.stored import SIZE

class Killer(Progress):
    left = int(sys.argv[2])

    def advance(self, slots):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

reproduce(Path(sys.argv[1]), SIZE, ["figure4"], executor=ThreadExecutor(2), progress=Killer())
"""


def test_killed_reproduction_continues_with_equal_results(whole: Path, tmp_path: Path) -> None:
    """The process is killed and cannot clean up."""
    folder = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, folder, "100"], env=environment, capture_output=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, b"")
    kept = tasks(folder)
    assert kept
    assert StoredStudies(folder).parts == []
    reproduce(folder, SIZE, ["figure4"])
    assert kept.items() < tasks(folder).items()
    check_same(folder, whole)


# --- folders ---------------------------------------------------------------------------------------------------------


def copied_settings(whole: Path, place: Path) -> Path:
    return stored.some_studies(whole, place, lambda name: False)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (replace(SIZE, horizon=300), r"holds another reproduction \(horizon 110, not 300\); choose another folder"),
        (replace(SIZE, seed=1), r"holds another reproduction \(seed 0, not 1\); choose another folder"),
    ],
)
def test_folder_of_another_reproduction_is_not_changed(whole: Path, tmp_path: Path, size: Size, message: str) -> None:
    folder = copied_settings(whole, tmp_path / "out")
    with pytest.raises(InputError, match=message):
        reproduce(folder, size, ["figure4"])
    assert [p.name for p in folder.iterdir()] == ["reproduction.toml"]
    assert read_settings(folder) == SIZE


def test_other_numbers_of_replications_are_accepted(whole: Path, tmp_path: Path) -> None:
    folder = copied_settings(whole, tmp_path / "out")
    claim_folder(folder, replace(SIZE, replications=9, neural=8))
    assert read_settings(folder) == replace(SIZE, replications=9, neural=8)


def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for folder, message in ((tmp_path / "file", "file: is a file"), (tmp_path / "file/out", "file, which is a file")):
        with pytest.raises(InputError, match=message):
            reproduce(folder, SIZE, ["figure4"])
    assert (tmp_path / "file").read_text() == "precious"
    (tmp_path / "out").mkdir()
    (tmp_path / "out/studies").write_text("precious")
    with pytest.raises(InputError, match="out/studies: is a file"):
        reproduce(tmp_path / "out", SIZE, ["figure4"])


def test_other_experiment_in_a_study_folder_is_refused(tmp_path: Path) -> None:
    ib.compare("S2", ["mp-random"], horizon=50, replications=1, out=tmp_path / "out/studies/S1-slot-played-tuning")
    with pytest.raises(InputError, match="S1-slot-played-tuning: holds another experiment"):
        reproduce(tmp_path / "out", SIZE, ["figure3"])


def changed(**values: object) -> Callable[[str], str]:
    import tomllib

    return lambda text: tomli_w.dumps({**tomllib.loads(text), **values})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-5], "reproduction.toml: not valid TOML|seed"),
        (lambda text: "", "reproduction.toml: empty"),
        (lambda text: text.replace("horizon", "horizont"), "'horizont' in .*: did you mean 'horizon'"),
        (lambda text: text.replace("tuning = 1\n", ""), "reproduction.toml: tuning = None: must be a whole number"),
        (lambda text: text.replace("schema = 1\n", ""), "reproduction.toml: schema = None"),
        (changed(schema=2), "reproduction.toml: schema = 2"),
        (changed(horizon="x"), "reproduction.toml: horizon = x"),
        (changed(horizon=1), "reproduction.toml: horizon = 1: must be a whole number from 10 to"),
        (changed(replications=1), "reproduction.toml: replications = 1: must be a whole number from 2 to"),
        (changed(neural_fewer=1), "reproduction.toml: neural_fewer = 1: must be a whole number from 2 to"),
        (changed(seed=-1), "reproduction.toml: seed = -1: must be a whole number from 0 to"),
    ],
)
def test_damaged_settings_are_named(whole: Path, tmp_path: Path, damage: Callable[[str], str], message: str) -> None:
    folder = copied_settings(whole, tmp_path / "out")
    settings = folder / "reproduction.toml"
    settings.write_text(damage(settings.read_text()))
    before = settings.read_bytes()
    for call in (write_report, lambda folder: reproduce(folder, SIZE, ["figure4"])):
        with pytest.raises(InputError, match=message) as caught:
            call(folder)
        assert "\n" not in str(caught.value)
    assert [p.name for p in folder.iterdir()] == ["reproduction.toml"]
    assert settings.read_bytes() == before


def test_report_of_an_empty_folder_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match="holds no reproduction") as caught:
            write_report(folder)
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"), [("results.parquet", "results.parquet: damaged"), ("manifest.json", "manifest.json: damaged")]
)
def test_damaged_study_is_named(whole: Path, tmp_path: Path, name: str, message: str) -> None:
    folder = stored.some_studies(whole, tmp_path / "out", lambda name: name == "S1-slot-played-tuning")
    file = folder / "studies/S1-slot-played-tuning" / name
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match=f"S1-slot-played-tuning/{message}"):
        write_report(folder)


def test_sizes_are_checked() -> None:
    """Intervals need two replications; curves begin at slot 10."""
    given = {"horizon": "110", "replications": "6", "fewer": 3, "fewest": 2, "neural": 4, "neural_fewer": 2}
    assert check_size(**given, tuning=1, seed=0) == SIZE
    least = {
        "horizon": 10,
        "replications": 2,
        "fewer": 2,
        "fewest": 2,
        "neural": 2,
        "neural_fewer": 2,
        "tuning": 1,
        "seed": 0,
    }
    assert check_size(**least) == Size(**least)
    for key, value in [*((key, value - 1) for key, value in least.items()), ("seed", 2**63 - 1)]:
        with pytest.raises(InputError, match=f"--{key} = {value}: must be a whole number from {least[key]} to "):
            check_size(where="--", **{key: value})


# --- complete parts --------------------------------------------------------------------------------------------------

WITHOUT = {
    "S3-slot-played-neural": ["figure3", "figure4", "readings", "map"],
    "S3-slot-played-tuning": ["figure3", "figure4"],
    "S3-slot-played-gamma": ["figure3", "figure4", "readings", "map"],
    "S1-slot-played-gamma": ["figure4", "readings", "map"],
    "S2-cosine-gamma": ["figure1", "figure2", "figure3", "figure4", "map"],
    "S4-none-tuning": ["figure1", "figure2", "figure3", "figure4", "map"],
    "S1-slot-played-tuning": [],
    "S2-rca-sensed": ["figure3", "figure4", "readings", "map"],
    "S1-slot-played-users-7-neural": ["figure1", "figure2", "figure4", "readings", "map"],
    "S1-rca-sensed-users-1": ["figure1", "figure2", "figure4", "readings", "map"],
    "S1-rca-sensed-tuning": ["readings", "map"],
    "S1-printed-reward-beta": ["figure1", "figure2", "figure3", "readings", "map"],
    "S4-cosine-neural": ["figure1", "figure2", "figure3", "figure4", "map"],
    "S4-slot-played-0.97": ["figure1", "figure2", "figure3", "figure4", "readings"],
}


def test_only_complete_parts_count(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or incomplete study removes the parts that need it and no other."""
    loaded = cache(stored_studies.load)  # ten folders share their studies
    monkeypatch.setattr(stored_studies, "load", lambda place: loaded(place.resolve()))
    for number, (missing, parts) in enumerate(WITHOUT.items()):
        folder = stored.some_studies(whole, tmp_path / str(number), lambda name: False)
        (folder / "studies").mkdir()
        for place in (whole / "studies").iterdir():
            if place.name != missing:
                (folder / "studies" / place.name).symlink_to(place)
        (folder / "studies" / missing).mkdir()  # started, without a manifest
        assert StoredStudies(folder).parts == parts, missing


def test_study_without_a_planned_policy_does_not_count(whole: Path, tmp_path: Path) -> None:
    folder = stored.some_studies(whole, tmp_path / "out", stored.FIGURE_4_STUDIES.fullmatch)
    assert StoredStudies(folder).parts == ["figure4"]
    stored.rewrite(folder, "S1-rca-sensed-beta", lambda rows: rows[rows.beta != 10])
    assert StoredStudies(folder).parts == []


def test_claims_are_those_of_complete_parts(whole: Path, tmp_path: Path) -> None:
    kept = re.compile(f"{stored.FIGURE_3_STUDIES.pattern}|S1-rca-sensed-beta")
    studies = StoredStudies(stored.some_studies(whole, tmp_path / "out", kept.fullmatch))
    assert studies.parts == ["figure3"]
    assert {one.claim for one in judge(studies)} == {"C3", "C3b"}
    assert [drawing.name for drawing in report_figures(studies)] == ["figure3"]
