"""Commands on a trace file."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import idleband as ib
from tests.cli.calls import Refuse

Ok = Callable[..., str]
POLICIES = ("--policy", "mp-random", "--policy", "mp-ucb")


@pytest.fixture(autouse=True)
def trace_file(empty_folder: None) -> None:
    busy = np.random.default_rng(0).random((200, 5)) < [0.1, 0.3, 0.5, 0.7, 0.9]
    ib.Trace.from_arrays(busy=busy, channel_names=[f"f{k}" for k in range(5)]).save("lab.parquet")


def test_run_replays_a_trace_over_its_length_and_continues(ok: Ok) -> None:
    arguments = ("run", "lab.parquet", "--users", 2, "--replications", 2)
    text = " ".join(ok(*arguments, "--policy", "mp-random").split())
    assert "lab: 1 policy x 2 replications x 200 slots" in text
    assert "block bootstrap over 20 blocks of one recording" in text
    assert "4 of 6 tasks already there" in ok(*arguments, *POLICIES)
    assert ib.load("results/lab")["mp-ucb"].horizon == 200
    data = json.loads(ok(*arguments, *POLICIES, "--json"))
    assert {row["interval"] for row in data["per_slot"]} == {"block bootstrap"}
    assert ok("plot", "results/lab").endswith("reward.svg\n")


def test_compare_ranks_a_trace_beside_a_scenario(ok: Ok) -> None:
    text = ok("compare", "lab.parquet", "S1", "--users", 2, *POLICIES, "--replications", 2, "--horizon", 200)
    assert "lab, perturbation none: 2 replications of 200 slots" in text
    assert "S1, perturbation linear: 2 replications of 200 slots" in text
    assert "best fixed set per block" in text
    data = json.loads(ok("compare", "lab.parquet", "--users", 2, *POLICIES, "--replications", 2, "--json"))
    assert {(row["interval"], row["blocks"]) for row in data["ranking"]} == {("block bootstrap", 20)}


def test_show_and_cost_describe_a_trace(ok: Ok) -> None:
    text = ok("show", "lab.parquet", "--users", 2)
    assert "replayed in 20 blocks of 10 slots" in " ".join(text.split())
    assert "* best 2 over the whole trace: f0, f1" in text
    assert json.loads(ok("show", "lab.parquet", "--users", 2, "--json"))["trace"]["slots"] == 200
    assert ok("cost", "lab.parquet", "f0,f1", "--users", "2") == "0.000\n"
    assert float(ok("cost", "lab.parquet", "f3,f4", "--users", "2")) > 0.5


def test_users_replaces_the_number_of_a_scenario(ok: Ok) -> None:
    assert ok("show", "S1", "--users", 3).startswith("S1: 10 channels, 3 assigned per slot")
    Path("mine.toml").write_text('[scenario]\ntrace = "lab.parquet"\nusers = 1\n')
    text = ok("run", "mine.toml", "--users", 2, "--policy", "mp-random", "--replications", 1)
    assert "1 replication x 200 slots" in text
    assert ib.load("results/lab").scenario.users == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "lab.parquet"], "--users: must be given for a trace (lab.parquet)"),
        (["run", "lab.parquet"], "--users: must be given for a trace"),
        (["compare", "lab.parquet", "--users", "6"], "scenario.users = 6: must be a whole number from 1 to 5"),
        (["show", "lab.parquet", "--users", "x"], "--users = x: must be a whole number"),
        (["show", "gone.parquet", "--users", "2"], "gone.parquet: cannot be read: No such file"),
        (["show", "damaged.parquet", "--users", "2"], "damaged.parquet: the Parquet file is damaged"),
        (["show", "other.parquet", "--users", "2"], "is not a trace file; `idleband trace import` makes one"),
        (["show", "sweep.csv", "--users", "2"], "`idleband trace import sweep.csv --out TRACE.parquet`"),
        (["show", "gone.csv"], "unknown scenario 'gone.csv'"),
        (["cost", "lab.parquet", "f0,f9", "--users", "2"], "f9"),
        (["learned", "lab.parquet", "--users", "2"], "there is nothing to learn"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(refuse: Refuse, arguments: list[str], message: str) -> None:
    Path("sweep.csv").write_text("1,2\n")
    Path("damaged.parquet").write_bytes(Path("lab.parquet").read_bytes()[:300])
    import pandas

    pandas.DataFrame({"x": [1]}).to_parquet("other.parquet")
    assert message in refuse(*arguments)
