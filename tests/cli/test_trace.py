"""The commands trace import, trace show and trace fit."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import idleband as ib
from idleband.cli.parser import FORMATS
from idleband.trace.formats.registry import MODULES
from tests.cli.calls import Refuse
from tests.trace import recordings as make
from tests.trace import worlds

Ok = Callable[..., str]


def test_formats_in_the_parser_are_those_of_the_package() -> None:
    assert tuple(MODULES) == FORMATS


def test_import_detects_the_format_and_describes_the_trace(ok: Ok, tmp_path: Path) -> None:
    make.rtl_power(tmp_path / "sweep.csv", make.powers(T=200), second=10)
    text = ok("trace", "import", "sweep.csv", "--out", "new/trace.parquet")
    assert text.startswith("format: rtl_power (CSV of rtl_power), detected from the content\n")
    assert "busy         busy above the 10th percentile of the channel +6 dB" in text
    assert "200 slots of 10 s (33.3 min), 6 channels, 100.005 MHz to 100.055 MHz" in " ".join(text.split())
    assert text.endswith("\ntrace:  new/trace.parquet\n")
    assert ib.Trace.load("new/trace.parquet").T == 200


def test_import_with_every_option(ok: Ok, tmp_path: Path) -> None:
    values = make.powers(T=40).round()
    make.msod(tmp_path / "lte.dat", values)
    options = ("--format", "msod", "--threshold", "-70", "--slot", "2", "--channels", "1..4", "--fill", "3",
               "--occupancy", "0.01..0.99", "--source", "roof", "--license", "CC0")  # fmt: skip
    data = json.loads(ok("trace", "import", "lte.dat", "--out", "t.parquet", *options, "--json"))
    assert data["metadata"]["source"] == "roof"
    assert data["metadata"]["license"] == "CC0"
    assert data["slots"] == 20
    trace = ib.Trace.load("t.parquet")
    linear = 10 ** (values[:, 1:5].reshape(20, 2, 4) / 10)
    assert np.array_equal(trace.busy, linear.mean(axis=1) > 1e-7)


def test_show_prints_text_of_80_columns_and_json_and_draws(ok: Ok, tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(2))
    for K, names in ((1, None), (5, [f"a long channel name {k}" for k in range(5)]), (30, None)):
        busy = rng.random((300, K)) < 0.3
        ib.Trace.from_arrays(busy=busy, channel_names=names, source="x " * 100).save("t.parquet")
        text = ok("trace", "show", "t.parquet", "--out", "t.png")
        assert max(map(len, text.splitlines())) <= 80
        assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
        data = json.loads(ok("trace", "show", "t.parquet", "--json"))
        assert len(data["channels"]) == K
        assert data["channels"][0]["occupancy"] == pytest.approx(busy[:, 0].mean())
        assert data["metadata"]["threshold_rule"] == "busy as given, without a threshold"
        assert f"{data['occupancy']['max']:.3f}" in text


def test_a_trace_without_changes_is_shown(ok: Ok) -> None:
    ib.Trace.from_arrays(busy=np.zeros((3, 2))).save("t.parquet")
    assert "0.000" in ok("trace", "show", "t.parquet", "--out", "t.svg")


def test_fit_writes_a_scenario_and_prints_text_of_80_columns(ok: Ok, tmp_path: Path) -> None:
    short = worlds.markov(60, 1)
    bursts = worlds.bursts(400)
    bursts[:, 0] = False
    for busy, names in ((short, None), (bursts, [f"a channel with a name {k}" for k in range(8)]), (np.eye(30), None)):
        ib.Trace.from_arrays(busy=busy, channel_names=names).save("a band.parquet")
        text = ok("trace", "fit", "a band.parquet", "--out", "t.toml", "--figure", "t.png", "--users", "1")
        assert max(map(len, text.splitlines())) <= 80
        assert text.endswith("\nscenario:  t.toml\nfigure:    t.png\n")
        assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
        assert 'name = "a band"\nusers = 1\n' in (tmp_path / "t.toml").read_text()


def test_fit_prints_the_same_numbers_as_json(ok: Ok) -> None:
    ib.Trace.from_arrays(busy=worlds.markov(80, 3)).save("t.parquet")
    data = json.loads(ok("trace", "fit", "t.parquet", "--out", "new/t.toml", "--model", "markov", "--json"))
    fit = ib.Trace.load("t.parquet").fit(model="markov", name="t")
    assert data == json.loads(json.dumps({"trace": "t.parquet", "out": "new/t.toml", **fit.to_dict()}))
    assert data["users"] == 1
    assert ib.scenario("new/t.toml").K == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "shw"], "unknown command 'shw' of trace: did you mean 'show'?"),
        (["trace", "show"], "required"),
        (["trace", "import", "t.csv"], "--out"),
        (["trace", "import", "t.csv", "--out", ""], "--out: must be the name of a file"),
        (["trace", "import", "t.csv", "--out", "t.csv"], "is one of the files to import"),
        (["trace", "import", "t.csv", "--out", "o", "--format", "rtlpower"], "did you mean 'rtl_power'?"),
        (["trace", "import", "t.csv", "--out", "o", "--formt", "csv"], "did you mean --format?"),
        (["trace", "import", "t.csv", "--out", "o", "--threshold", "loud"], "--threshold = 'loud': must be a level"),
        (["trace", "import", "t.csv", "--out", "o", "--slot", "-1"], "--slot = -1"),
        (["trace", "import", "t.csv", "--out", "o", "--slot", "x"], "--slot = x"),
        (["trace", "import", "t.csv", "--out", "o", "--slot", "0.5", "--values", "loud"], "--values"),
        (["trace", "import", "t.csv", "--out", "o", "--channels", "c"], "--channels = 'c': must be a channel index"),
        (["trace", "import", "t.csv", "--out", "o", "--occupancy", "2"], "--occupancy = '2'"),
        (["trace", "import", "t.csv", "--out", "o", "--fill", "many"], "--fill = many"),
        (["trace", "import", "none.csv", "--out", "o"], "none.csv: cannot be read: No such file"),
        (["trace", "show", "t.csv"], "t.csv: is not a trace file"),
        (["trace", "show", "t.csv", "--out", "t.pdf"], "must be the name of a file that ends in .png or .svg"),
        (["trace", "fit", "t.csv"], "--out"),
        (["trace", "fit", "t.csv", "--out", "t.csv"], "--out t.csv: must be the name of a file that ends in .toml"),
        (["trace", "fit", "t.csv", "--out", "t.toml"], "t.csv: is not a trace file"),
        (["trace", "fit", "t.csv", "--out", "t.toml", "--figure", "f"], "--figure f: must be the name of a file"),
        (["trace", "fit", "b.parquet", "--out", "t.toml", "--users", "3"], "--users = 3: must be a whole number from"),
        (["trace", "fit", "b.parquet", "--out", "t.toml", "--model", "hmm"], "--model = 'hmm': must be one of auto"),
        (["trace", "fit", "b.parquet", "--out", "t.toml"], "trace: has 5 slots; a fit needs at least 10"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(
    refuse: Refuse, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n-90,-80\n-91,-60\n")
    ib.Trace.from_arrays(busy=np.eye(5)[:, :2]).save(tmp_path / "b.parquet")
    assert message in refuse(*arguments)
