"""The problems on which benchmarks/peers.py compares libraries are those of the package."""

import importlib
import re
from types import ModuleType

import numpy as np
import pytest

import idleband as ib
from tests.conftest import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("peers")


def test_the_problem_is_s1(peers: ModuleType) -> None:
    ours, preset = peers.s1().to_dict(), ib.scenario("S1").to_dict()
    assert (peers.s1().K, peers.s1().users, peers.s1().dimension) == (10, 5, 8)
    assert [ours[key] for key in ("p01", "p10")] == [preset[key] for key in ("p01", "p10")]
    assert peers.s1(1).users == 1


def test_channels_without_memory_have_the_idle_shares_of_s1(peers: ModuleType) -> None:
    chains, memoryless = peers.s1().to_dict(), peers.iid().to_dict()
    p01, p10 = np.array(chains["p01"]), np.array(chains["p10"])
    assert memoryless["p01"] == pytest.approx(p01 / (p01 + p10))
    assert np.add(memoryless["p01"], memoryless["p10"]) == pytest.approx(1.0)
    rewards = ib.simulate(peers.iid(), "mp-random", horizon=50, replications=3, record="slots").slots
    assert rewards is not None
    assert set(rewards.reward.dropna().unique()) <= {0.0, 1.0}


def test_recorded_rewards_are_those_that_the_package_earned(peers: ModuleType) -> None:
    paths = peers.record(peers.s1(), "mp-ucb", paths=3, slots=200)
    earned = ib.simulate(peers.s1(), "mp-ucb", horizon=200, replications=3, seed=2).reward[:, -1]
    assert [(path.r * path.picked).sum() for path in paths] == pytest.approx(earned)


@pytest.mark.parametrize("name", ["mp-ucb", "mp-lucb"])
def test_a_policy_that_is_fed_selects_what_the_package_does(peers: ModuleType, name: str) -> None:
    peers.check_numpy(name, peers.record(peers.s1(), name, paths=2, slots=300))


def test_another_policy_is_found_to_differ(peers: ModuleType) -> None:
    with pytest.raises(AssertionError):
        peers.check_numpy("mp-lucb", peers.record(peers.s1(), "mp-ucb", paths=1, slots=100))


def test_the_tables_name_every_peer_with_its_version(peers: ModuleType) -> None:
    speeds, _, table = (BENCHMARKS / "peers.md").read_text().partition("\n\n| peer | version |")
    pinned = (BENCHMARKS / "peers-requirements.txt").read_text() + (ROOT / "constraints.txt").read_text()
    pinned += (ROOT / "Makefile").read_text()
    for peer, distribution in peers.DISTRIBUTIONS.items():
        assert f"| {peer} |" in speeds
        version = re.search(rf"^\| {peer} \| (\S+) \| {peers.LICENCES[peer]} \|", table, re.MULTILINE)
        assert version is not None, peer
        assert f"{distribution}=={version[1]}" in pinned, peer
