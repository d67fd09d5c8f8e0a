"""Invalid input: the command exits with status 2, prints one line and writes nothing."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import idleband as ib
from tests.cli.calls import SMALL, Refuse
from tests.own_model import LOUD
from tests.own_policy import MINE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fly", "unknown command 'fly'"),
        ("polices", "did you mean 'policies'?"),
        ("run", "required: SCENARIO|FILE.toml"),
        ("run S1 --speed 3", "unrecognized arguments: --speed 3"),
        ("run S5", "unknown scenario 'S5'"),
        ("run S1 --policy mp-ubc", "unknown policy 'mp-ubc': did you mean 'mp-ucb'?"),
        ("run S1 --policy mp-lucb:betta=1", "unknown parameter 'betta' of policy mp-lucb: did you mean 'beta'?"),
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
        ("run S1 --policy mp-nucb:L=1", "L = '1': must be a whole number of at least 2, at most 16"),
        ("run S1 --policy mp-nucb:D=1.5", "D = '1.5': must be a whole number of at least 2, at most 1024"),
        ("run S1 --policy mp-nucb:covariance=half", "covariance = 'half': must be one of full, block, diagonal"),
        ("run S1 --policy mp-nucb:D=1000,L=9", "covariance = full would take"),
        (
            "run S1 --perturbation cubic",
            "unknown scenario.perturbation.kind 'cubic': known: none, linear, quadratic, cosine",
        ),
        ("learned S5", "unknown scenario 'S5'"),
        (
            "learned S1 --policy mp-ucb",
            "policy mp-ucb: has no model of the perturbation; policies that have one: mp-lucb",
        ),
        ("learned S1 --policy mp-lucb:target=reward", "target = reward: it does not predict the perturbation"),
        ("learned S1 --perturbation none", "scenario.perturbation.kind = none: there is nothing to learn"),
        ("learned S1 --horizon 1e9", "experiment.horizon = 1000000000: must be from 2 to 10000000 here"),
        ("learned S1 --policy mp-lucb --policy mp-lucb", "policy mp-lucb: given twice"),
        ("learned S1 --policy mp-nucb:D=1000,L=9", "covariance = full would take"),
        ("run S1 --device tpu", "device = 'tpu': must be one of cpu, cuda"),
        ("run S1 --precision float32", "precision = float32: only used with device = cuda"),
        ("run S1 --device cuda --precision half", "precision = 'half': must be one of float64, float32"),
        ("run S1 --device cuda --threads 2", "device = cuda and --threads: only one of them can be given"),
        ("run S1 --device cuda --workers 2", "device = cuda and --workers: only one of them can be given"),
        ("compare S1 --device cuda --workers 2", "device = cuda and --workers: only one of them can be given"),
        ("compare S1 --device cuda --cluster tcp://h:1", "device = cuda and --cluster: only one of them"),
        (
            "compare S1 --coordination none --perturbation none --device cuda",
            "device = cuda: users without a base station",
        ),
        ("run S1 --device cuda --precision float32 --horizon 1e8", "must be at most 16777216 with precision = float32"),
        ("bench --horizon 10", "--horizon: only used with --device cuda"),
        ("bench --replications 10", "--replications: only used with --device cuda"),
        ("bench --precision float32", "--precision = float32: only used with --device = cuda"),
        ("bench --policy mp-ucb --policy mp-ucb", "policy mp-ucb: given twice"),
        ("bench --policy mctopm", "policy mctopm: is for users without a base station"),
        ("show S5", "unknown scenario 'S5'"),
        ("show S1 --seed -1", "--seed = -1"),
        ("cost S4 1,2,3", "has 3 channels; S4 selects 5 in a slot"),
        ("cost S4 1,2,3,4,10", "channels = 10: must be a channel index from 0 to 9"),
        ("cost S4 1,2,3,4,4", "each channel may be given once"),
        ("cost S4 1,2,3,4,x", "channels = 'x'"),
        ("optimum S1", "S1: the optimum of 5 of 10 channels to within 0.0001 takes 3"),
        ("optimum S1 --tolerance x", "--tolerance = x: must be a number"),
        ("optimum S1 --tolerance 0", "tolerance = 0.0: must be a number of at least 1e-07"),
        ("optimum S1 --seed -1", "--seed = -1"),
        ("plot nowhere", "nowhere: no such folder"),
        ("plot .", ".: is not a results folder (experiment.toml is missing)"),
    ],
)
def test_bad_arguments_are_refused(refuse: Refuse, arguments: str, message: str) -> None:
    assert message in refuse(*arguments.split())


@pytest.mark.parametrize("arguments", ["run S1", "compare S1", "bench"])
def test_a_gpu_needs_numba_cuda(refuse: Refuse, monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = 'device = cuda: needs numba-cuda; pip install "idleband[gpu]"'
    assert message in refuse(*arguments.split(), "--policy", "mp-ucb", "--device", "cuda")


@pytest.mark.parametrize("arguments", [["--policy", "a\nb"], ["--horizon", "1\n2"]])
def test_message_has_one_line_where_a_value_has_several(refuse: Refuse, arguments: list[str]) -> None:
    refuse("run", "S1", *arguments)


@pytest.mark.parametrize("seed", [2**53 + 1, 2**63 - 1])
def test_large_seed_is_not_rounded(ok: Callable[..., str], seed: int) -> None:
    ok("run", "S1", *SMALL, "--seed", seed, "--out", "out")
    assert ib.load("out").seed == seed


CHANNELS = "p01 = [0.1, 0.2, 0.3]\np10 = [0.3, 0.2, 0.1]\n"


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("users = 4\n" + CHANNELS, "scenario.users = 4: must be a whole number from 1 to 3"),
        ("users = 0\n" + CHANNELS, "scenario.users = 0: must be a whole number from 1 to 3"),
        ("users = 1\np01 = []\np10 = []", "scenario.p01: has 0 channels"),
        ("users = 1\np01 = [0.1, 1.2]\np10 = [0.3, 0.2]", "scenario.p01, channel 1 = 1.2"),
        ("users = 1\np01 = [0.1, 0.0]\np10 = [0.3, 0.0]", "scenario.p01, channel 1 = 0.0: must be a number above 0"),
        ("users = 1\np01 = [0.1, nan]\np10 = [0.3, 0.2]", "scenario.p01, channel 1 = nan"),
        ("users = 1\np01 = [0.1, true]\np10 = [0.3, 0.2]", "scenario.p01, channel 1 = True"),
        ("users = 1\np01 = [0.1, 0.2]\np10 = [0.3]", "scenario.p10: has 1 entry, p01 has 2"),
        ("users = 1\ntransition = [[[1.0, 0.0], [0.0, 1.0]]]\nrewards = [0.1, 1.0]", "must be irreducible"),
        ('base = "S1"\nperturbation = { theta = [0.1, 0.2] }', "has 2 entries; must be 8"),
        ('base = "S1"\nperturbation = { clear = 0.01 }', "scenario.perturbation.clear = 0.01: must be at least"),
        ('base = "S9"', "unknown scenario 'S9'"),
        ('base = "S1"\nuserz = 3', "unknown key 'userz' in scenario: did you mean 'users'?"),
        ('base = "S1"\nname = "../out"', "scenario.name = '../out'"),
        ('base = "S1"\nname = "/tmp/out"', "scenario.name = '/tmp/out'"),
        ('base = "S1"\nbase = "S2"', "not valid TOML: Cannot overwrite a value"),
        pytest.param("users = 1\np10 = [0.1]\np01 = [1" + "0" * 400 + "]", "scenario.p01, channel 0", id="above 1e308"),
        pytest.param('base = "S1"\nusers = 1' + "0" * 5000, "mine.toml", id="5001 digits"),
        pytest.param('base = "S1"\nrewards = ' + "[" * 100_000, "mine.toml", id="100,000 deep"),
    ],
)  # fmt: skip
def test_bad_scenario_file_is_refused(refuse: Refuse, scenario: str, message: str) -> None:
    Path("mine.toml").write_text(f"[scenario]\n{scenario}\n")
    line = refuse("run", "mine.toml")
    assert message in line
    assert line.startswith("idleband: mine.toml: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"# nothing\n", "empty"),
        (b'[scenario]\nname = "\xff"\n', "not UTF-8 at byte 19"),
        (b"[scenario\n", "not valid TOML"),
        (b"[experiment]\nhorizon = 5\n", "[scenario] is missing"),
        (b'scenario = "S1"\n', "scenario = 'S1': must be a table"),
        (
            b'[scenario]\nbase = "S1"\n[experiment]\nhorizons = 5\n',
            "unknown key 'horizons' in experiment: did you mean 'horizon'?",
        ),
        (b'[scenario]\nbase = "S1"\n[experiment]\nhorizon = 1.5\n', "experiment.horizon = 1.5"),
        (b'[scenario]\nbase = "S1"\n[polcy]\n', "unknown key 'polcy' in the file: did you mean 'policy'?"),
        (b'[scenario]\nbase = "S1"\n[policy]\nname = "mp-ucb"\n', "write [[policy]], once for each"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nL = 1\n', "policy.name = None"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "mp-ucb"\nL = []\n', "a grid needs at least one value"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "mp-ucb"\nL = [1, -1]\n', "L = -1: must be"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "../gone.py:mine"\n', "gone.py: No such file"),
        (b'schema = 2\n[scenario]\nbase = "S1"\n', "schema = 2"),
        (b'[scenario]\nbase = "S1"\n[[policy]]\nname = "a\\u0000.py:mine"\n', "embedded null byte"),
    ],
)
def test_bad_experiment_file_is_refused(refuse: Refuse, content: bytes, message: str) -> None:
    Path("mine.toml").write_bytes(content)
    line = refuse("run", "mine.toml", "--out", "out")
    assert message in line
    assert line.startswith("idleband: mine.toml: ")


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("def f(:\n", "mine", "cannot be imported: SyntaxError"),
        ("1 / 0\n", "mine", "cannot be imported: ZeroDivisionError"),
        ("x = 1\n", "mine", "holds no class under @idleband.register"),
        (MINE, "thine", "unknown policy 'thine' in user_code.py: did you mean 'mine'?"),
        (MINE.replace("def select", "def choose"), "mine", "policy mine: select is missing"),
        (MINE.replace('"mine"', '"mp-ucb"'), "mp-ucb", "this name is taken"),
    ],
)
def test_bad_policy_file_is_refused(refuse: Refuse, source: str, name: str, message: str) -> None:
    Path("user_code.py").write_text(source)
    assert message in refuse("run", "S1", "--policy", f"user_code.py:{name}")


USER_MODEL = '[scenario]\nbase = "S1"\nperturbation = "user_code.py:{}"\n'


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("def f(:\n", "loud", "cannot be imported: SyntaxError"),
        ("x = 1\n", "loud", "holds no class under @idleband.register_perturbation"),
        (MINE, "mine", "holds no class under @idleband.register_perturbation"),
        (LOUD, "lout", "unknown perturbation model 'lout' in user_code.py: did you mean 'loud'?"),
        (LOUD.replace("def value", "def price"), "loud", "value is missing; a perturbation model has draw and value"),
        (LOUD.replace("theta, x", "x"), "loud", "model loud: value must take (theta, x)"),
        (LOUD.replace('"loud"', '"linear"'), "linear", "model linear: this name is taken by a model of the package"),
        (LOUD.replace("return [", "return [float('nan'), "), "loud", "model loud: draw, entry 1 = nan: must be a"),
        (LOUD.replace("max(", "object("), "loud", "model loud: value does not compile: "),
    ],
)  # fmt: skip
def test_bad_perturbation_model_file_is_refused(refuse: Refuse, source: str, name: str, message: str) -> None:
    Path("user_code.py").write_text(source)
    Path("mine.toml").write_text(USER_MODEL.format(name))
    assert message in refuse("show", "mine.toml")


def test_perturbation_that_is_not_a_number_is_reported_with_slot_and_channel(
    call: Callable[..., tuple[int, str, str]],
) -> None:
    slots = ib.simulate("S1", "mp-random", horizon=7, replications=1, record="slots").slots
    assert slots is not None
    there = slots.query("t == 7 and channel == 2")["x0"].item()
    trap = f"if x[0] == {there!r}: return math.nan\n        loudest = 0.0"
    Path("user_code.py").write_text("import math\n" + LOUD.replace("loudest = 0.0", trap))
    Path("mine.toml").write_text(USER_MODEL.format("loud"))
    status, _, err = call("run", "mine.toml", *SMALL, "--out", "out")
    assert (status, err) == (
        2,
        "idleband: perturbation model loud: value = nan in slot 7, channel 2 (ch3); must be within bounds = (0, 4)\n",
    )


def test_invalid_selection_of_a_user_policy_is_reported(call: Callable[..., tuple[int, str, str]]) -> None:
    Path("mine.py").write_text(MINE.replace("m if", "m - (slot.t == 7 and m == 1) if"))
    status, _, err = call("run", "S1", "--policy", "mine.py:mine", "--horizon", 50, "--out", "out")
    assert status == 2
    assert "policy mine: picks = [0, 0, 2, 3, 4] in slot 7" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "S1", *SMALL, "--out", "file"], "file: is a file"),
        (["run", "S1", *SMALL, "--out", "file/a/b"], "file/a/b: lies below file, which is a file"),
        (["run", "S2", *SMALL, "--out", "out"], "another scenario: name, p01, p10 differs"),
        (["run", "S1", *SMALL, "--seed", "1", "--out", "out"], "holds another experiment (seed 0, not 1)"),
        (["run", "S1", *SMALL, "--horizon", "300", "--out", "out"], "another experiment (horizon 200, not 300)"),
        (["run", "S1", *SMALL, "--out", "foreign"], "foreign: holds results.parquet but no experiment.toml"),
        (["plot", "file"], "file: no such folder"),
        (["plot", "foreign"], "foreign: is not a results folder"),
    ],
)
def test_unusable_folder_is_not_changed(finished: Path, refuse: Refuse, arguments: list[str], message: str) -> None:
    shutil.copytree(finished, "out")
    Path("file").write_text("precious")
    Path("foreign").mkdir()
    Path("foreign/results.parquet").write_text("precious")
    assert message in refuse(*arguments)


def damage_table_of_another_kind(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), path)


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "name", "arguments", "message"),
    [
        (flip, "tasks.log", ["run", "S1", *SMALL, "--out", "out"], "out/tasks.log: damaged at byte "),
        (cut, "results.parquet", ["plot", "out"], "out/results.parquet: damaged"),
        (cut, "plays.parquet", ["plot", "out"], "out/plays.parquet: damaged"),
        (cut, "experiment.toml", ["plot", "out"], "out/experiment.toml: "),
        (cut, "experiment.toml", ["run", "S1", *SMALL, "--out", "out"], "out/experiment.toml: "),
        (Path.unlink, "experiment.toml", ["plot", "out"], "out: is not a results folder"),
        (Path.unlink, "results.parquet", ["plot", "out"], "out: not finished (results.parquet is missing)"),
        (Path.unlink, "plays.parquet", ["plot", "out"], "out: not finished (plays.parquet is missing)"),
        (flip, "tasks.log", ["run", "S1", *SMALL, "--replications", "3", "--out", "out"], "damaged"),
        (damage_table_of_another_kind, "results.parquet", ["plot", "out"], "out/results.parquet: "),
        (lambda path: path.write_text(path.read_text().replace("seed = 0", 'seed = "x"')),
            "experiment.toml", ["plot", "out"], "seed"),
    ],
)  # fmt: skip
def test_damaged_file_is_named(
    finished: Path, refuse: Refuse, damage: Callable[[Path], object], name: str, arguments: list[str], message: str
) -> None:
    shutil.copytree(finished, "out")
    damage(next(Path("out").glob(name)))
    assert message in refuse(*arguments)
