"""The commands journal export and evaluate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from idleband.service.manager import AllocatorManager
from tests.cli.calls import Refuse
from tests.service.running import contexts_of, learn, settings

LOG = "log.parquet"


@pytest.fixture
def data() -> Path:
    folder = Path("data")
    manager = AllocatorManager(folder)
    for name, policy in (("main", "mp-random"), ("ucb", "mp-ucb")):
        allocator = manager.open(name, settings(policy))
        for i in range(60):
            channels = manager.decide(allocator, contexts_of(i), request_id=f"r{i}").channels
            states = [(k + i) % 2 for k in channels]
            rewards = [(0.1, 1.0)[s] for s in states]
            learn(manager, allocator, f"r{i}", rewards, states)
        manager.commit()
    manager.close()
    return folder


def test_export_and_evaluate(ok: Callable[..., str], data: Path) -> None:
    assert "60 slots, 60 with propensities; 120 plays, 120 with feedback" in ok("journal", "export", data, "main", LOG)
    text = ok("evaluate", LOG, "--policy", "mp-ucb", "--channels", "0, 1")
    assert "decided by  mp-random\n" in text
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(ok("evaluate", LOG, "--policy", "mp-ucb", "--channels", "0,1", "--json"))
    assert [one["policy"] for one in found["policies"]] == ["mp-ucb", "channels 0,1"]
    low, high = found["policies"][1]["dr"]["interval"]
    assert low < 1.1 < high  # one of two successive channels is always idle
    exported = json.loads(ok("journal", "export", data, "ucb", "ucb.parquet", "--json"))
    assert exported == {
        "result": "exported", "file": "ucb.parquet", "slots": 60, "with_propensities": 0, "plays": 120,
        "with_feedback": 120,
    }  # fmt: skip


def test_refusals(ok: Callable[..., str], refuse: Refuse, data: Path) -> None:
    ok("journal", "export", data, "main", LOG)
    ok("journal", "export", data, "ucb", "ucb.parquet")
    for message, arguments in {
        "log.csv: must end in .parquet": ["journal", "export", data, "main", "log.csv"],
        "unknown allocator 'other'": ["journal", "export", data, "other", "other.parquet"],
        "the log has no propensities": ["evaluate", "ucb.parquet", "--policy", "mp-ucb"],
        "--policy: must be given": ["evaluate", LOG],
        "did you mean 'mp-ucb'": ["evaluate", LOG, "--policy", "mp-ubc"],
        "--missing = 'x'": ["evaluate", LOG, "--policy", "mp-ucb", "--missing", "x"],
        "--clip = '0'": ["evaluate", LOG, "--policy", "mp-ucb", "--clip", "0"],
        "--seed = -1": ["evaluate", LOG, "--policy", "mp-ucb", "--seed", "-1"],
        "channels = 9": ["evaluate", LOG, "--channels", "0,9"],
        "cannot be read: No such file": ["evaluate", "missing.parquet", "--policy", "mp-ucb"],
    }.items():
        assert message in refuse(*arguments)
