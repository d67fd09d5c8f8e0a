"""`idleband reproduce`, and `report` and `plot` of its results."""

import csv
import io
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import idleband as ib
from idleband.cli import main
from idleband.paper.parts import PARTS
from idleband.paper.plan import FIGURE_4
from tests.cli.calls import Refuse, command
from tests.shared import made_once
from tests.stored_tasks import stored_tasks

SMALL = ("reproduce", "--quick", "--only", "figure4", "--replications", 2)
OTHERS = [part for part in PARTS if part != "figure4"]
STUDIES = len(FIGURE_4)  # as many of tuning as of figure 4


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with figure 4 at the quick size. Tests must not change it."""

    def make(folder: Path) -> None:
        with pytest.raises(SystemExit, match="0"):
            main([*map(str, SMALL), "--out", str(folder)])

    return made_once(tmp_path_factory, "reproduced", make)


@pytest.fixture
def stored(reproduced: Path) -> Path:
    """Return a copy without the files that are only needed to continue."""
    return shutil.copytree(reproduced, Path("out"), ignore=shutil.ignore_patterns("tasks.log"))


def same_results(folder: Path, other: Path) -> None:
    """Check that all tables, claims and figures are byte for byte the same."""
    kinds = ("results.parquet", "plays.parquet", "*.csv", "*.svg", "*.png", "claims.md")
    files = [p.relative_to(other) for kind in kinds for p in other.rglob(kind) if p.name != "times.csv"]
    assert len(files) == 2 * STUDIES * 2 + 1 + 3 + 1
    for name in files:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


def logs(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the modification time and the content of the tasks of every study."""
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("tasks.log")}


def tasks(folder: Path) -> dict[str, bytes]:
    """Return the content of every stored task by study and key."""
    places = sorted(folder.glob("studies/*"))
    return {f"{place.name}/{key}": task for place in places for key, task in stored_tasks(place).items()}


def test_repeated_command_simulates_nothing_again(ok: Callable[..., str], reproduced: Path) -> None:
    folder = shutil.copytree(reproduced, Path("out"))
    before = logs(folder)
    text = ok(*SMALL, "--out", folder)
    assert " s; " in text.splitlines()[-3]
    answer = json.loads(ok(*SMALL, "--out", folder, "--json"), parse_constant=pytest.fail)
    assert logs(folder) == before
    same_results(folder, reproduced)
    assert answer["report"] == "out/report.html"
    assert answer["missing"] == OTHERS
    assert answer["seconds"] > 0
    with Path("out/claims.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in answer["claims"]] == rows
    assert [row["claim"] for row in rows] == [*["C4"] * (2 * STUDIES), "C5"]
    assert {row["replications"] for row in rows if row["claim"] == "C4"} == {"2"}
    study = ib.load("out/studies/S1-slot-played-beta")
    assert [result.horizon for result in study.results] == [10_000] * 6


def test_report_and_plot_use_stored_results_only(ok: Callable[..., str], reproduced: Path, stored: Path) -> None:
    page = (stored / "report.html").read_bytes()
    shutil.rmtree(stored / "figures")
    for name in ("report.html", "claims.csv", "claims.md"):
        (stored / name).unlink()
    text = ok("report", stored)
    same_results(stored, reproduced)
    assert (stored / "report.html").read_bytes() == page
    assert text.startswith("C1   MP-LUCB and MP-NUCB have the lowest regret in S1 to S4\n")
    continued = "idleband reproduce --quick --replications 2 --out out"
    assert f"\nnot run: {', '.join(OTHERS)}\nto continue: {continued}\n" in text
    assert " minutes of processor time in the results\n" in text
    assert text.endswith("report:  out/report.html\nclaims:  out/claims.csv\n")
    cells = [line.split("MP-LUCB  ")[1].split("  ") for line in text.splitlines() if "MP-LUCB  " in line]
    rows = csv.DictReader(io.StringIO((stored / "claims.csv").read_text()))
    verdicts = [row for row in rows if row["reference"] == "static or contextual regret"]
    decides = {"holds": "+ {agree}/2", "fails": "x {reversed}/2", "undecided": "~ {open}/2", "no effect": "="}
    assert [[cell.strip() for cell in row if cell] for row in cells] == [
        [*["-"] * 5, decides[row["verdict"]].format(**row), "-"] for row in verdicts
    ]

    shutil.rmtree(stored / "figures")
    assert ok("plot", stored) == "out/figures/figure4.png\n"
    same_results(stored, reproduced)
    assert json.loads(ok("report", stored, "--json"))["missing"] == OTHERS
    assert not list(stored.rglob("tasks.log"))


def test_ctrl_c_keeps_finished_work_and_the_same_command_continues(ok: Callable[..., str], reproduced: Path) -> None:
    process = subprocess.Popen(
        command(*SMALL, "--threads", 1, "--out", "out"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while len(tasks(Path("out"))) < 12:
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    assert err == "idleband: interrupted; finished work is kept, and the same command continues from there\n"
    kept = tasks(Path("out"))
    assert 12 <= len(kept) < len(tasks(reproduced))
    ok(*SMALL, "--out", "out")
    assert kept.items() <= tasks(Path("out")).items()
    same_results(Path("out"), reproduced)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("reproduce --only figur4", "unknown part 'figur4': did you mean 'figure4'? known: figure1, figure2, figure3"),
        ("reproduce --quick --only figure4 --only maps", "unknown part 'maps': did you mean 'map'?"),
        ("reproduce --replications 0", "--replications = 0: must be a whole number from 2 to"),
        ("reproduce --quick --replications 1", "--replications = 1: must be a whole number from 2 to"),
        ("reproduce --quick --replications 2.5", "--replications = 2.5: must be a whole number"),
        ("reproduce --seed -1", "--seed = -1: must be a whole number from 0 to"),
        ("reproduce --seed 9223372036854775807", "--seed = 9223372036854775807: must be a whole number from 0 to"),
        ("reproduce --seed x", "--seed = x: must be a whole number"),
        ("reproduce --threads 0", "--threads = 0: must be a whole number from 1"),
        ("reproduce --out file", "file: is a file"),
        ("reproduce --out file/a", "file/a: lies below file, which is a file"),
        ("reproduce --quick --out settings", "settings: holds another reproduction (horizon 250, not 10000)"),
        ("reproduce --out settings", "settings: holds another reproduction (horizon 250, not 100000)"),
        ("reproduce --quick --seed 3 --out quick", "quick: holds another reproduction (seed 0, not 3)"),
        ("reproduce --quick --out damaged", "damaged/reproduction.toml: "),
        ("reproduce --out", "expected one argument"),
        ("reproduce S1", "unrecognized arguments: S1"),
        ("report nowhere", "nowhere: holds no reproduction (reproduction.toml is missing)"),
        ("report .", ".: holds no reproduction"),
        ("report damaged", "damaged/reproduction.toml: "),
        ("plot damaged", "damaged/reproduction.toml: "),
        ("report", "required: DIR"),
    ],
)
def test_bad_arguments_are_refused(refuse: Refuse, arguments: str, message: str) -> None:
    Path("file").write_text("precious")
    size = "schema = 1\nhorizon = {}\nreplications = 5\nfewer = 4\nfewest = 4\nneural = 3\nneural_fewer = 2\n"
    size += "tuning = 1\nseed = 0\n"
    for name, text in (("settings", size.format(250)), ("quick", size.format(10_000)), ("damaged", size.format('"'))):
        Path(name).mkdir()
        Path(name, "reproduction.toml").write_text(text)
    assert message in refuse(*arguments.split())
