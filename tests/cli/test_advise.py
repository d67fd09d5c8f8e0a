"""The command advise."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import idleband as ib
from tests.cli.calls import Refuse
from tests.trace import recordings as make

Ok = Callable[..., str]
SMALL = ("--users", "2", "--policy", "mp-ucb", "--policy", "mp-random", "--replications", "2")


def test_advise_imports_a_recording_and_recommends_a_policy(ok: Ok, tmp_path: Path) -> None:
    make.rtl_power(tmp_path / "sweep.csv", make.powers(T=200), second=10)
    text = ok("advise", "sweep.csv", *SMALL, "--out", "out")
    assert "format: rtl_power" in text
    assert "Recommended: mp-" in text
    assert text.endswith("report: out/report.html\n")
    assert {"sweep.parquet", "scenario.toml", "report.html", "replay"} <= {p.name for p in (tmp_path / "out").iterdir()}
    data = json.loads(ok("advise", "out/sweep.parquet", *SMALL, "--out", "out", "--json"))  # stored replays are used
    assert data["recommended"] in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("missing.csv", "--users", "2"), "missing.csv"),
        (("sweep.csv", "--users", "0"), "--users = 0: must be a whole number from 1 to"),
        (("band.parquet", "--users", "99"), "--users = 99: must be a whole number from 1 to 5"),
        (("band.parquet", "--users", "2", "--threshold", "-70"), "--threshold: only for recordings"),
        (("band.parquet", "--users", "2", "--fill", "3"), "--fill: only for recordings"),
        (("sweep.csv", "--users", "2", "--fill", "few"), "--fill = few: must be a whole number"),
        (("sweep.csv",), "--users"),
        (("sweep.csv", "--users", "2", "--polcy", "mp-ucb"), "did you mean --policy"),
        (("sweep.csv", "--users", "2", "--threshold", "loud"), "--threshold"),
    ],
)
def test_invalid_input_is_refused_in_one_line(
    refuse: Refuse, tmp_path: Path, arguments: tuple[str, ...], line: str
) -> None:
    make.rtl_power(tmp_path / "sweep.csv", make.powers(T=40), second=10)
    ib.Trace.from_arrays(busy=[[0, 1, 0, 1, 0]] * 9 + [[1, 0, 1, 0, 1]]).save(tmp_path / "band.parquet")
    assert line in refuse("advise", *arguments)
