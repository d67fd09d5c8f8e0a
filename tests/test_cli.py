"""The command line: what it prints, what it refuses, and what it leaves behind when it is stopped."""

import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread, active_count
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import idleband as ib
from idleband.cli import main
from idleband.simulation.simulate import Unit, run_units
from tests.own_policy import MINE

Run = Callable[..., subprocess.CompletedProcess[str]]
Refuse = Callable[..., str]

SMALL = ("--policy", "mp-random", "--horizon", 200, "--replications", 2)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: status, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        assert isinstance(end.value.code, int)
        return (end.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def ok(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """The command in this process, which must succeed quietly; what it prints."""

    def ok(*arguments: object) -> str:
        status, out, err = call(*arguments)
        assert (status, err) == (0, "")
        return out

    return ok


@pytest.fixture
def refuse(call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Refuse:
    """The command in this process, which must refuse its input in one line and write nothing; that line."""

    def refuse(*arguments: object) -> str:
        before = contents(tmp_path)
        status, _, err = call(*arguments)
        assert status == 2
        assert err.startswith("idleband: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert contents(tmp_path) == before
        return err

    return refuse


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of SMALL on S1. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    with pytest.raises(SystemExit, match="0"):
        main(["run", "S1", *map(str, SMALL), "--out", str(folder)])
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: the bytes of files, None for folders."""
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in sorted(folder.rglob("*"))}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "idleband", *map(str, arguments)]


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The line on stderr of a command that ended with status 2."""
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("idleband: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


# --- what it does ----------------------------------------------------------------------------------------------------


def test_version(ok: Callable[..., str]) -> None:
    assert ok("--version") == f"idleband {ib.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["show", "--help"]])
def test_help(ok: Callable[..., str], arguments: list[str]) -> None:
    assert ok(*arguments).startswith("usage: idleband")


def test_scenarios(ok: Callable[..., str]) -> None:
    text, data = ok("scenarios"), json.loads(ok("scenarios", "--json"))
    assert list(data) == ["S1", "S2", "S3", "S4"]
    assert data["S4"]["p01"][3] == 0.5
    assert all(f"{name}  " in text for name in data)


def test_policies(ok: Callable[..., str]) -> None:
    text, data = ok("policies"), json.loads(ok("policies", "--json"))
    assert list(data) == list(ib.POLICIES)
    assert data["mp-lucb"]["parameters"]["beta"]["default"] == 1.0
    assert data["mp-lucb-rca"]["parameters"]["frame"]["default"] == "rca"
    for name, entry in data.items():
        assert f"\n{name}\n" in "\n" + text
        assert entry["description"] in text


def test_show(ok: Callable[..., str]) -> None:
    text, data = ok("show", "S4"), json.loads(ok("show", "S4", "--json"))
    assert text.startswith("S4: 10 channels, 5 handed out in a slot\n")
    assert data["best_without_perturbation"] == [2, 4, 5, 7, 8]
    assert json.loads(ok("show", "S4", "--json", "--seed", 1))["theta"] != data["theta"]


def test_show_of_a_file(ok: Callable[..., str]) -> None:
    Path("mine.toml").write_text('[scenario]\nname = "two"\np01 = [0.1, 0.3]\np10 = [0.3, 0.1]\nusers = 1\n')
    assert json.loads(ok("show", "mine.toml", "--json"))["good_share"] == pytest.approx([0.25, 0.75])


def test_cost_of_the_paper(ok: Callable[..., str]) -> None:
    assert ok("cost", "S4", "1,2,3,4,5") == "0.155\n"
    assert json.loads(ok("cost", "S4", "1,2,3,4,5", "--json"))["cost"] == pytest.approx(0.155, abs=5e-4)
    assert float(ok("cost", "S4", "2,4,5,7,8")) == 0


def test_run_and_plot_as_a_user_does(idleband: Run) -> None:
    arguments = ("run", "S1", *SMALL, "--policy", "mp-ucb:L=0.5", "--out", "out")
    first = idleband(*arguments)
    assert (first.returncode, first.stderr) == (0, "")  # and so no progress bar where stderr is not a terminal
    assert first.stdout.startswith("S1: 2 policies x 2 replications x 200 slots\n")
    assert all(
        word in first.stdout for word in ("mp-random ", "mp-ucb L=0.5 ", "out/regret.png", "out/results.parquet")
    )
    assert ib.load("out").labels == ["mp-random", "mp-ucb L=0.5"]

    Path("out/regret.png").unlink()
    again = idleband("plot", "out")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "out/regret.png\nout/regret.svg\n"
    assert Path("out/regret.png").read_bytes().startswith(b"\x89PNG")

    assert "slots, 6 already there\n" in idleband(*arguments).stdout


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (MINE.replace(" if object() else 0", ""), "note: mine ran compiled\n"),
        (MINE, "note: mine ran interpreted, because it does not compile: "),
    ],
    ids=["compiled", "interpreted"],
)
def test_a_policy_of_ones_own_and_how_it_ran(ok: Callable[..., str], source: str, note: str) -> None:
    Path("mine.py").write_text(source)
    assert note in ok("run", "S1", "--policy", "mine.py:mine", "--horizon", 50, "--out", "out")
    assert ib.load("out")["mine"].plays.tolist() == [[50] * 5 + [0] * 5] * 5


def test_run_of_a_file(ok: Callable[..., str]) -> None:
    Path("mine.toml").write_text(
        """
        [scenario]
        name = "my world"
        base = "S2"
        users = 3
        [experiment]
        horizon = 1e2
        replications = 2
        seed = 7
        [[policy]]
        name = "mp-random"
        """
    )
    out = ok("run", "mine.toml", "--replications", 3)
    assert "my world: 1 policies x 3 replications x 100 slots\n" in out
    study = ib.load("results/my world")
    assert (study.seed, study.scenario, study.labels) == (7, ib.scenario("S2", name="my world", users=3), ["mp-random"])


def test_run_for_programs(ok: Callable[..., str]) -> None:
    answer = json.loads(ok("run", "S1", *SMALL, "--out", "out", "--json"))
    assert answer["results"] == "out/results.parquet"
    assert answer["figures"] == ["out/regret.png", "out/regret.svg"]
    one = ok("run", "S1", "--policy", "mp-random", "--horizon", 9, "--replications", 1, "--out", "one", "--json")
    assert json.loads(one, parse_constant=pytest.fail)["per_slot"][0]["reward_pm"] is None
    assert answer["per_slot"][0]["reward"] == pytest.approx(ib.load("out").table().reward.iloc[0])


def test_plot_of_a_study_that_asks_for_more(ok: Callable[..., str]) -> None:
    ok("run", "S1", *SMALL, "--out", "out")
    file = Path("out/experiment.toml")
    file.write_text(re.sub(r"replications = \d+", "replications = 77", file.read_text()))
    assert ok("plot", "out").startswith("note: the experiment asks for more than has been run")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", ""], "--out: must be the name of a folder"),
        (["--policy", "mp-ucb:L=1,L=2"], "L is given twice"),
    ],
)
def test_words_that_mean_nothing(refuse: Refuse, arguments: list[str], says: str) -> None:
    assert says in refuse("run", "S1", *arguments)


def test_run_of_one_slot(ok: Callable[..., str]) -> None:
    assert "1 slots" in ok("run", "S1", "--policy", "mp-random", "--horizon", 1, "--out", "out")


# --- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "required: command"),
        ("fly", "invalid choice: 'fly'"),
        ("run", "required: SCENARIO|FILE.toml"),
        ("run S1 --speed 3", "unrecognized arguments: --speed 3"),
        ("run S5", "unknown scenario 'S5'"),
        ("run S1 --policy mp-ubc", "unknown policy 'mp-ubc': did you mean 'mp-ucb'?"),
        ("run S1 --policy mp-lucb:betta=1", "unknown parameter of policy mp-lucb 'betta': did you mean 'beta'?"),
        ("run S1 --policy mp-lucb:beta=nan", "beta = 'nan': must be a finite number of at least 0"),
        ("run S1 --policy mp-lucb:beta=-1", "beta = '-1': must be a finite number of at least 0"),
        ("run S1 --policy mp-lucb:beta=", "beta = ''"),
        ("run S1 --policy mp-lucb:beta=1,frame", "'frame' must be key=value"),
        ("run S1 --policy beta=1", "must be NAME:key=value"),
        ("run S1 --policy mp-lucb:frame=fast", "frame = 'fast': must be one of slot, rca"),
        ("run S1 --policy mp-ucb --policy mp-ucb", "policy mp-ucb: given twice"),
        ("run S1 --horizon 0", "experiment.horizon = 0: must be a whole number from 1 to 10^10"),
        ("run S1 --horizon 1e30", "experiment.horizon = 1e30: must be a whole number from 1 to 10^10"),
        ("run S1 --horizon 10.5", "experiment.horizon = 10.5: must be a whole number"),
        ("run S1 --horizon nan", "experiment.horizon = nan: must be a whole number"),
        ("run S1 --horizon long", "experiment.horizon = long: must be a whole number"),
        ("run S1 --replications 0", "experiment.replications = 0: must be a whole number from 1"),
        ("run S1 --seed -1", "experiment.seed = -1: must be a whole number from 0"),
        ("run S1 --threads 0", "--threads = 0: must be a whole number from 1"),
        ("run missing.toml", "missing.toml: No such file"),
        ("run S1 --policy missing.py:mine", "missing.py: No such file"),
        ("show S5", "unknown scenario 'S5'"),
        ("show S1 --seed -1", "--seed = -1"),
        ("cost S4 1,2,3", "3 of them; S4 hands out 5"),
        ("cost S4 1,2,3,4,11", "channel = 11: must be a whole number from 1 to 10"),
        ("cost S4 1,2,3,4,4", "each channel once"),
        ("cost S4 1,2,3,4,x", "channel = x"),
        ("plot nowhere", "nowhere: no such folder"),
        ("plot .", ".: holds no experiment"),
    ],
)
def test_bad_arguments(refuse: Refuse, arguments: str, says: str) -> None:
    assert says in refuse(*arguments.split())


@pytest.mark.parametrize("arguments", [["--policy", "a\nb"], ["--horizon", "1\n2"]])
def test_a_line_break_in_a_value_is_still_one_line(refuse: Refuse, arguments: list[str]) -> None:
    refuse("run", "S1", *arguments)


@pytest.mark.parametrize("seed", [2**53 + 1, 2**63 - 1])
def test_a_large_seed_is_taken_exactly(ok: Callable[..., str], seed: int) -> None:
    ok("run", "S1", *SMALL, "--seed", seed, "--out", "out")
    assert ib.load("out").seed == seed


CHANNELS = "p01 = [0.1, 0.2, 0.3]\np10 = [0.3, 0.2, 0.1]\n"


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ("users = 4\n" + CHANNELS, "scenario.users = 4: must be a whole number from 1 to 3"),
        ("users = 0\n" + CHANNELS, "scenario.users = 0: must be a whole number from 1 to 3"),
        ("users = 1\np01 = []\np10 = []", "scenario.p01: has 0 channels"),
        ("users = 1\np01 = [0.1, 1.2]\np10 = [0.3, 0.2]", "scenario.p01, channel 2 = 1.2"),
        ("users = 1\np01 = [0.1, 0.0]\np10 = [0.3, 0.0]", "scenario.p01, channel 2 = 0.0: must be a number above 0"),
        ("users = 1\np01 = [0.1, nan]\np10 = [0.3, 0.2]", "scenario.p01, channel 2 = nan"),
        ("users = 1\np01 = [0.1, true]\np10 = [0.3, 0.2]", "scenario.p01, channel 2 = True"),
        ("users = 1\np01 = [0.1, 0.2]\np10 = [0.3]", "scenario.p10: has 1 entries, p01 has 2"),
        ("users = 1\ntransition = [[[1.0, 0.0], [0.0, 1.0]]]\nrewards = [0.1, 1.0]", "must be irreducible"),
        ('base = "S1"\nperturbation = { theta = [0.1, 0.2] }', "has 2 entries; must be 8"),
        ('base = "S1"\nperturbation = { clear = 0.01 }', "scenario.perturbation.clear = 0.01: must be at least"),
        ('base = "S9"', "unknown scenario 'S9'"),
        ('base = "S1"\nuserz = 3', "unknown key in scenario 'userz': did you mean 'users'?"),
        ('base = "S1"\nname = "../out"', "scenario.name = '../out'"),
        ('base = "S1"\nname = "/tmp/out"', "scenario.name = '/tmp/out'"),
        ('base = "S1"\nbase = "S2"', "not valid TOML: Cannot overwrite a value"),
        pytest.param("users = 1\np10 = [0.1]\np01 = [1" + "0" * 400 + "]", "scenario.p01, channel 1", id="above 1e308"),
        pytest.param('base = "S1"\nusers = 1' + "0" * 5000, "mine.toml", id="5001 digits"),
        pytest.param('base = "S1"\nrewards = ' + "[" * 100_000, "mine.toml", id="100,000 deep"),
    ],
)  # fmt: skip
def test_bad_scenario_file(refuse: Refuse, scenario: str, says: str) -> None:
    Path("mine.toml").write_text(f"[scenario]\n{scenario}\n")
    line = refuse("run", "mine.toml")
    assert says in line
    assert line.startswith("idleband: mine.toml: ")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"# nothing\n", "empty"),
        (b'[scenario]\nname = "\xff"\n', "not UTF-8 at byte 19"),
        (b"[scenario\n", "not valid TOML"),
        (b"[experiment]\nhorizon = 5\n", "[scenario] is missing"),
        (b'scenario = "S1"\n', "scenario = 'S1': must be a table"),
        (b'[scenario]\nbase = "S1"\n[experiment]\nhorizons = 5\n', "'horizons': did you mean 'horizon'?"),
        (b'[scenario]\nbase = "S1"\n[experiment]\nhorizon = 1.5\n', "experiment.horizon = 1.5"),
        (b'[scenario]\nbase = "S1"\n[polcy]\n', "unknown key in the file 'polcy': did you mean 'policy'?"),
        (b'[scenario]\nbase = "S1"\n[policy]\nname = "mp-ucb"\n', "write [[policy]], once for each"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nL = 1\n', "policy.name = None"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "mp-ucb"\nL = []\n', "a grid needs at least one value"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "mp-ucb"\nL = [1, -1]\n', "L = -1: must be"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "../gone.py:mine"\n', "gone.py: No such file"),
        (b'schema = 2\n[scenario]\nbase = "S1"\n', "schema = 2"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "a\\u0000.py:mine"\n', "embedded null byte"),
    ],
)
def test_bad_experiment_file(refuse: Refuse, content: bytes, says: str) -> None:
    Path("mine.toml").write_bytes(content)
    line = refuse("run", "mine.toml", "--out", "out")
    assert says in line
    assert line.startswith("idleband: mine.toml: ")


@pytest.mark.parametrize(
    ("source", "name", "says"),
    [
        ("def f(:\n", "mine", "cannot be imported: SyntaxError"),
        ("1 / 0\n", "mine", "cannot be imported: ZeroDivisionError"),
        ("x = 1\n", "mine", "holds no class under @idleband.register"),
        (MINE, "thine", "'thine': did you mean 'mine'?"),
        (MINE.replace("def select", "def choose"), "mine", "policy mine: select is missing"),
        (MINE.replace('"mine"', '"mp-ucb"'), "mp-ucb", "this name is taken"),
    ],
)
def test_bad_policy_file(refuse: Refuse, source: str, name: str, says: str) -> None:
    Path("own.py").write_text(source)
    assert says in refuse("run", "S1", "--policy", f"own.py:{name}")


def test_a_policy_that_breaks_the_rules_is_named(call: Callable[..., tuple[int, str, str]]) -> None:
    Path("mine.py").write_text(MINE.replace("m if", "m - (slot.t == 7 and m == 1) if"))
    status, _, err = call("run", "S1", "--policy", "mine.py:mine", "--horizon", 50, "--out", "out")
    assert status == 2
    assert "policy mine: picks = [0, 0, 2, 3, 4] in slot 7" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "S1", *SMALL, "--out", "file"], "file: is a file"),
        (["run", "S1", *SMALL, "--out", "file/a/b"], "file/a/b: lies below file, which is a file"),
        (["run", "S2", *SMALL, "--out", "out"], "another scenario: name, p01, p10 differs"),
        (["run", "S1", *SMALL, "--seed", "1", "--out", "out"], "holds another experiment (seed 0, not 1)"),
        (["run", "S1", *SMALL, "--horizon", "300", "--out", "out"], "another experiment (horizon 200, not 300)"),
        (["run", "S1", *SMALL, "--out", "foreign"], "foreign: holds results.parquet but no experiment.toml"),
        (["plot", "file"], "file: no such folder"),
        (["plot", "foreign"], "foreign: holds no experiment"),
    ],
)
def test_a_folder_that_cannot_be_used_is_left_alone(
    finished: Path, refuse: Refuse, arguments: list[str], says: str
) -> None:
    shutil.copytree(finished, "out")
    Path("file").write_text("precious")
    Path("foreign").mkdir()
    Path("foreign/results.parquet").write_text("precious")
    assert says in refuse(*arguments)


def damage_table_of_another_kind(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "name", "arguments", "says"),
    [
        (cut, "units/*.npz", ["run", "S1", *SMALL, "--out", "out"], "damaged"),
        (cut, "results.parquet", ["plot", "out"], "out/results.parquet: damaged"),
        (cut, "plays.parquet", ["plot", "out"], "out/plays.parquet: damaged"),
        (cut, "experiment.toml", ["plot", "out"], "out/experiment.toml: "),
        (cut, "experiment.toml", ["run", "S1", *SMALL, "--out", "out"], "out/experiment.toml: "),
        (Path.unlink, "experiment.toml", ["plot", "out"], "out: holds no experiment"),
        (Path.unlink, "results.parquet", ["plot", "out"], "out: not finished (results.parquet is missing)"),
        (Path.unlink, "plays.parquet", ["plot", "out"], "out: not finished (plays.parquet is missing)"),
        (cut, "units/*.npz", ["run", "S1", *SMALL, "--replications", "3", "--out", "out"], "damaged"),
        (damage_table_of_another_kind, "results.parquet", ["plot", "out"], "out/results.parquet: "),
        (lambda path: path.write_text(path.read_text().replace("seed = 0", 'seed = "x"')),
            "experiment.toml", ["plot", "out"], "seed"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(
    finished: Path, refuse: Refuse, damage: Callable[[Path], object], name: str, arguments: list[str], says: str
) -> None:
    shutil.copytree(finished, "out")
    damage(next(Path("out").glob(name)))
    assert says in refuse(*arguments)


# --- a full disk -----------------------------------------------------------------------------------------------------


def limited(limit: int, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command where no file can grow beyond `limit` bytes: a stand-in for a full disk."""
    return subprocess.run(
        command(*arguments),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.mark.parametrize(
    ("largest", "says"),
    [
        ("experiment.toml", "out/experiment.toml: cannot be written: File too large"),
        ("units/*.npz", "out/units/"),
        ("results.parquet", "out/results.parquet: cannot be written: File too large"),
        ("regret.png", "out/regret.png"),
    ],
)  # fmt: skip
def test_a_full_disk(finished: Path, ok: Callable[..., str], largest: str, says: str) -> None:
    """Files are written in the order above, and each is larger than those before it."""
    limit = max(path.stat().st_size for path in finished.glob(largest)) - 1
    arguments = ("run", "S1", *SMALL, "--out", "out")
    assert says in one_line(limited(limit, *arguments))
    assert not list(Path("out").rglob(".tmp-*"))
    ok(*arguments)
    assert Path("out/results.parquet").read_bytes() == (finished / "results.parquet").read_bytes()


def test_a_full_disk_between_a_copied_policy_and_the_experiment(ok: Callable[..., str]) -> None:
    Path("mine.py").write_text(MINE)
    arguments = ("run", "S1", "--policy", "mine.py:mine", "--horizon", 50, "--out", "out")
    assert "out/experiment.toml: cannot be written" in one_line(limited(len(MINE) + 10, *arguments))
    ok(*arguments)


def test_a_cache_that_cannot_grow_does_no_harm(finished: Path) -> None:
    Path("cache").mkdir()
    environment = {**os.environ, "IDLEBAND_CACHE_DIR": str(Path("cache").absolute())}
    limit = (finished / "results.parquet").stat().st_size  # enough for the results, too little for machine code
    result = limited(limit, "run", "S1", *SMALL, "--out", "out", env=environment)
    assert "Traceback" not in result.stderr
    assert Path("out/results.parquet").exists()


def test_an_output_that_cannot_be_written() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(command("policies"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    one_line(result)


# --- stopping --------------------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def interrupted(
    arguments: Sequence[object], ready: Callable[[], object], gap: float | None = None
) -> tuple[int, str, float]:
    """A run, stopped by Ctrl-C when it is ready, and again after a gap: status, stderr, seconds it took to end."""
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(ready, process)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        if gap is not None:
            time.sleep(gap)
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        return process.returncode, err, time.monotonic() - began
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_within_a_long_unit(finished: Path) -> None:  # finished: the loop is compiled
    arguments = ("run", "S1", "--policy", "mp-random", "--horizon", "1e9", "--out", "out")
    claimed = Path("out/experiment.toml")

    def under_way() -> bool:  # the loop is loaded: see test_ctrl_c_while_a_loop_is_compiled_or_loaded
        return claimed.exists() and time.time() > claimed.stat().st_mtime + 1

    status, err, seconds = interrupted(arguments, under_way)
    assert (status, err.count("\n")) == (130, 1)
    assert err.startswith("idleband: stopped; what was finished is kept")
    assert seconds < 5  # a segment of 0.1 s and the end of the process, on a machine that does other things too
    assert not list(Path("out").rglob(".tmp-*"))


@pytest.mark.parametrize("gap", [None, 0.02])
def test_ctrl_c_keeps_finished_units_and_the_same_command_goes_on(ok: Callable[..., str], gap: float | None) -> None:
    arguments = ("run", "S1", "--policy", "mp-random", "--horizon", 200_000, "--replications", 12, "--out", "out")
    units = Path("out/units")
    status, err, _ = interrupted([*arguments, "--threads", 1], lambda: len(list(units.glob("*.npz"))) >= 3, gap)
    # A second Ctrl-C may fall into the end of the interpreter, where it ends the process as a shell expects: 130, too.
    assert status == 130 or (gap is not None and status == -signal.SIGINT)
    assert err == "idleband: stopped; what was finished is kept, and the same command goes on from there\n"
    kept = contents(units)
    assert 3 <= len(kept) < 24
    assert f", {len(kept)} already there\n" in ok(*arguments)
    assert len(contents(units)) == 24
    assert kept.items() <= contents(units).items()
    assert ib.load("out")["mp-random"].replications == 12


def test_ctrl_c_while_units_are_handed_out() -> None:
    case, finished, before = ib.policy("mp-random"), [], active_count()

    class Units(list[Unit]):
        def __iter__(self) -> Iterator[Unit]:
            yield Unit(case, 0)
            if active_count() > before:  # a thread has begun with the first
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_units(ib.scenario("S1"), Units(), 3_000_000, 0, lambda unit, outcome: finished.append(unit))
    assert not finished  # the one that was under way was stopped within a segment


# A run that is interrupted where LLVM calls back into Python with a compiled module: an exception raised there is lost.
INTERRUPTED_IN_LLVM = """
import pathlib, signal
from llvmlite.binding.executionengine import ExecutionEngine

install, claimed, sent = ExecutionEngine.set_object_cache, pathlib.Path("out/experiment.toml"), []

def set_object_cache(self, notify, find):
    def interrupted(module, code):
        if claimed.exists() and not sent:
            sent.append(True)
            signal.raise_signal(signal.SIGINT)
        notify(module, code)
    install(self, interrupted, find)

ExecutionEngine.set_object_cache = set_object_cache

from idleband.cli import main
main(["run", "S1", "--policy", "mp-random", "--horizon", "1e6", "--out", "out"])
"""


def test_ctrl_c_while_a_loop_is_compiled_or_loaded() -> None:
    result = subprocess.run([sys.executable, "-c", INTERRUPTED_IN_LLVM], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr.count("\n")) == (130, 1)
    assert result.stderr.startswith("idleband: stopped")


def test_a_reader_that_has_seen_enough() -> None:
    result = subprocess.run(
        f"{sys.executable} -m idleband policies | head -1", shell=True, capture_output=True, text=True, timeout=60
    )
    assert (result.stdout, result.stderr) == ("mp-random\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["policies"],
        ["show", "S4", "--json"],
        ["--help"],
    ],
)
def test_a_pipe_that_nobody_reads(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    try:
        result = subprocess.run(
            command(*arguments), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, env=environment
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


# --- progress --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_a_terminal(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A run whose stderr is a terminal: what it wrote to stdout, and to the terminal."""
    ours, its = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                seen.append(os.read(ours, 4096))
            except OSError:  # how the end of a terminal shows on Linux
                return

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        command("run", "S1", "--policy", "mp-random", "--horizon", 500_000, "--replications", 2, "--out", "out"),
        stdout=subprocess.PIPE,
        stderr=its,
        text=True,
        env=environment,
        cwd=tmp_path_factory.mktemp("terminal"),
    )
    os.close(its)
    reader = Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=120)
    reader.join()
    os.close(ours)
    assert process.returncode == 0, b"".join(seen)
    return out, b"".join(seen).decode()


def test_progress_on_a_terminal(on_a_terminal: tuple[str, str]) -> None:
    out, shown = on_a_terminal
    assert "running" in shown
    assert "100%" in shown
    assert " M slots/s" in shown
    assert "slots/s" not in out
    assert "results: out/results.parquet" in out


def test_output_stays_on_stdout_when_only_stderr_is_a_terminal(on_a_terminal: tuple[str, str]) -> None:
    assert on_a_terminal[0].startswith("S1: 1 policies x 2 replications x ")
