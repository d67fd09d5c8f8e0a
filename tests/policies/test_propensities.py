"""Propensities of policies that randomise: they are the probabilities with which channels are selected."""

from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Report
from idleband.allocator.settings import Settings
from idleband.kernels.rng import POLICY, stream
from idleband.policies.state_template import copied
from tests.policies.station import Station

RANDOMISING = {"mp-random": {}, "exp3-m": {"gamma": 0.2}, "whittle-q": {"epsilon": 0.3}}
DRAWS = 3000


@pytest.mark.parametrize("name", RANDOMISING)
def test_propensities_are_the_shares_of_repeated_draws(name: str) -> None:
    """The same slot is decided again and again with other random streams; bounds are 5 standard errors."""
    station = Station(name, K=5, M=2, **RANDOMISING[name])
    rng, available = np.random.default_rng(1), [True, True, False, True, True]
    for _ in range(60):
        station.play(rng.integers(0, 2, 5).tolist())
    state, policy = station.state, station.configured.policy
    assert policy.propensities is not None
    shares, p, t = np.zeros(5), np.zeros(5), station.t
    for i in range(DRAWS):
        station.state, station.t, station.rng = copied(state), t, stream(i, 0, POLICY)
        shares[station.choose(available=available)] += 1 / DRAWS
        if i % 1000 == 0:
            previous = p.copy()
            policy.propensities(station.setup, station.state, station.slot, p)
            assert i == 0 or p.tolist() == previous.tolist()  # they do not depend on what was drawn
    assert p.sum() == pytest.approx(2)
    assert p[2] == 0.0
    assert (np.abs(shares - p) <= 5 * np.sqrt(p * (1 - p) / DRAWS) + 1e-12).all()


def core_of(policy: Any, **more: Any) -> AllocatorCore:
    return AllocatorCore(Settings.checked({"policy": policy, "channels": 6, "users": 3, "dimension": 2, **more}))


@pytest.mark.parametrize("name", RANDOMISING)
def test_propensities_of_an_allocator_with_other_users_and_channels_in_every_slot(name: str) -> None:
    core, rng = core_of(name), np.random.default_rng(2)
    for t in range(1, 200):
        users, available = int(rng.integers(0, 4)), rng.random(6) < 0.6
        decision = core.decide(core.parse_decide(None, users, available.tolist()))
        p, count = core.propensities, len(decision.channels)
        assert p is not None
        assert p.sum() == pytest.approx(count)
        assert ((p >= 0.0) & (p <= 1.0)).all()
        assert not p[~available].any()
        assert (p[list(decision.channels)] > 0.0).all()
        values = rng.integers(0, 2, count).astype(float)
        core.learn(Report(t, 0.1 + 0.9 * values, values, np.full(count, np.nan)))


def test_policies_without_propensities_have_none() -> None:
    known = {name for name, policy in ib.POLICIES.items() if policy.propensities is not None}
    assert known == set(RANDOMISING)
    core = core_of("mp-ts")
    core.decide(core.parse_decide(None))
    assert core.propensities is None


def test_decisions_of_an_incumbent_have_no_propensities() -> None:
    core = core_of("mp-random")
    core.decide(core.parse_decide(None, incumbent=[0, 1, 2]))
    assert core.propensities is None
    core.decide(core.parse_decide(None))
    assert core.propensities is not None


def test_propensities_of_a_users_policy() -> None:
    @ib.register(name="one-of-two")
    class OneOfTwo:
        def init(setup: Any) -> Any:
            return ()

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            picks[0] = 1 if ib.random.uniform(slot.rng) < 0.25 else 0
            return 1

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            pass

        def propensities(setup: Any, state: Any, slot: Any, out: Any) -> None:
            out[:] = 0.0
            out[0], out[1] = 0.75, 0.25

    core = core_of(OneOfTwo, channels=3, users=1)
    core.decide(core.parse_decide(None))
    assert core.propensities is not None
    assert core.propensities.tolist() == [0.75, 0.25, 0.0]
