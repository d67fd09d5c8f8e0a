"""Safety independent of the policy: shadow mode, vacated channels and the collision limit.

Policies that are late or fail are tested in test_supervisor.py.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idleband as ib
from tests.allocator.helpers import arrays, contexts, loaded, plain, raising, state_of, station

K = 5


# --- shadow mode -----------------------------------------------------------------------------------------------------


def test_the_incumbent_decides_and_the_policy_learns_in_shadow_mode() -> None:
    """The same incumbent alone assigns the same channels; the policy learns from all reports."""
    shadow, alone = station("mp-ucb", incumbent="mp-lucb", seed=4), station("mp-lucb", seed=4)
    rng = np.random.default_rng(5)
    agreed = 0
    for _ in range(40):
        x = contexts(rng, shadow)
        ours, theirs = shadow.decide(x), alone.decide(x)
        assert (ours.channels, ours.by) == (theirs.channels, "incumbent")
        assert len(ours.proposed) == 2
        agreed += len(set(ours.proposed) & set(ours.channels))
        rewards = rng.choice([0.1, 1.0], 2)
        for allocator in (shadow, alone):
            allocator.report(ours.request_id, rewards)
    inside = arrays(shadow)
    assert inside["policy.state.plays"].sum() == 80
    assert inside["policy.state.plays"].tolist() == inside["occupancy.plays"].sum(axis=1).tolist()
    counts = shadow.status()["counts"]
    assert (counts["shadowed"], counts["agreed"]) == (80, agreed)
    assert 0 < agreed < 80
    assert counts["fallback"] == 0


def test_incumbent_channels_may_be_given_per_slot() -> None:
    allocator = station("mp-ucb")
    decision = allocator.decide(None, incumbent=[4, 2])
    assert decision == ib.Decision(1, (4, 2), 1, "incumbent", (0, 1))
    assert allocator.report(1, {4: 1.0}).learned == (4,)
    assert allocator.decide(None, incumbent=[4, 2, 0]).channels == (4, 2)  # as many as there are users
    assert allocator.decide(None, 1, incumbent=[]).channels == ()
    assert allocator.decide(None, available=[1, 1, 1, 1, 0], incumbent=[4, 2]).channels == (2,)
    assert arrays(allocator)["policy.state.plays"].tolist() == [0, 0, 0, 0, 1]


def test_a_failed_policy_proposes_nothing_in_shadow_mode() -> None:
    """It also has no numbers in the explanation."""
    plain(raising)
    one, other = (station("plain", incumbent="mp-ucb") for _ in range(2))
    for _ in range(5):
        decision = one.decide(np.zeros((K, 2)))
        other.decide(np.zeros((K, 2)))
        assert decision.by == "incumbent"
    assert decision.proposed is None
    explained = one.explain(decision.request_id)
    assert "plain, in shadow mode, is out of service since slot 3: RuntimeError: no idea." in str(explained)
    assert all(np.isnan([term.index, term.estimate, term.width]).all() for term in explained.channels)
    assert state_of(one) == state_of(other)  # no uninitialized memory is saved


@pytest.mark.parametrize("who", ["incumbent", "fallback"])
def test_only_allowed_channels_are_assigned_if_all_policies_fail(who: str) -> None:
    """The states of the policy and of the fallback or incumbent contain nan."""
    allocator = station("mp-lucb", **{who: "mp-lucb"})
    allocator.vacate([0])
    for learner in allocator._core.learners():
        next(leaf for name, leaf in learner.arrays() if name in ("state.theta", "state.total"))[:] = np.nan
    decision = allocator.decide(np.zeros((K, 2)), available=[True, True, False, True, True])
    assert (decision.by, decision.channels) == (who, (1, 3))


# --- vacated channels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["mp-ucb", "rca-m", "mp-lucb"])  # all others: tests/contracts
@pytest.mark.parametrize("incumbent", [None, "mp-random", "given"])
def test_a_vacated_channel_is_not_assigned(policy: str, incumbent: str | None) -> None:
    """K - 1 channels remain for K users; an incumbent that is given keeps its other channels."""
    allocator = station(policy, users=K, incumbent=None if incumbent == "given" else incumbent)
    rng = np.random.default_rng(6)
    given_channels = {"incumbent": [3, 1, 0]} if incumbent == "given" else {}
    assert 3 in allocator.decide(contexts(rng, allocator), **given_channels).channels
    assert allocator.vacate([3]) == (3,)  # in use right now
    assert allocator.vacated == (3,)
    for _ in range(20):
        decision = allocator.decide(contexts(rng, allocator), **given_channels)
        assert set(decision.channels) == ({0, 1} if given_channels else {0, 1, 2, 4})
        assert 3 not in decision.proposed
        allocator.report(decision.request_id, [1.0] * len(decision.channels))
    assert 3 not in loaded(state_of(allocator)).decide(np.zeros((K, 2)), **given_channels).channels
    allocator.restore([3])
    assert allocator.vacated == ()
    assert 3 in allocator.decide(contexts(rng, allocator), **given_channels).channels


def test_vacate_returns_channels_of_the_last_decision() -> None:
    allocator = station(users=3)
    assert allocator.vacate([4]) == ()  # nothing was assigned yet
    assert allocator.decide(None).channels == (0, 1, 2)
    assert allocator.vacate([3]) == ()
    assert allocator.vacate([2, 3]) == (2,)
    assert allocator.vacate([0]) == (0,)  # channel 2 was vacated before
    assert allocator.vacated == (0, 2, 3, 4)
    allocator.restore([0, 1])
    assert allocator.vacated == (2, 3, 4)
    assert allocator.decide(None).channels == (0, 1)


def test_the_fallback_does_not_assign_vacated_channels() -> None:
    plain(raising)
    allocator = station("plain", users=K)
    allocator.vacate([0, 1])
    for _ in range(4):
        decision = allocator.decide(np.zeros((K, 2)))
    assert (decision.by, decision.channels) == ("fallback", (2, 3, 4))


# --- a limit on collisions -------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.05, 0.3, 0.6, 0.99]))
def test_channels_above_the_collision_limit_are_withheld_and_the_cost_is_counted(seed: int, limit: float) -> None:
    """Some channels are sensed, some unavailable, some vacated. The cost of a slot is the difference of the expected
    rewards of the best usable and the best allowed channels, recomputed here."""
    rng = np.random.default_rng(seed)
    allocator = station(collision_limit=limit, patience=2)
    cost = withheld = 0.0
    earned, plays = np.zeros((K, 2)), np.zeros((K, 2))  # busy and idle
    allocator.vacate([int(rng.integers(K))])
    for _ in range(25):
        sensed = [None if rng.random() < 0.4 else int(rng.random() < 0.6) for _ in range(K)]
        available, users = rng.random(K) < 0.8, int(rng.integers(3))
        decision = allocator.decide(None, users, available, sensed)
        terms = allocator.explain(decision.request_id).channels
        usable = [term for term in terms if available[term.channel] and term.channel not in allocator.vacated]
        below = [term for term in usable if term.primary_user_probability <= limit]
        assert {term.channel for term in terms if term.status == "available"} == {term.channel for term in below}
        assert set(decision.channels) <= {term.channel for term in below}
        assert len(decision.channels) == min(users, len(below))
        for k, s in enumerate(sensed):
            if s is not None:
                assert terms[k].primary_user_probability == 1.0 - s
        expected = {}
        for term in usable:
            k = term.channel
            busy, idle = (np.array([0.1, 1.0]) + earned[k]) / (1.0 + plays[k])
            expected[k] = busy + (1.0 - term.primary_user_probability) * (idle - busy)
        best, allowed = (sorted((expected[term.channel] for term in some), reverse=True) for some in (usable, below))
        withheld += len(usable) - len(below)
        cost += sum(best[:users]) - sum(allowed[:users])
        for k in decision.channels:
            idle = int(rng.integers(2))
            reward = rng.uniform(0.1, 1.0)
            allocator.report(decision.request_id, {k: reward}, {k: idle})
            earned[k, idle] += reward
            plays[k, idle] += 1.0
    counts = allocator.status()["counts"]
    assert counts["withheld"] == withheld
    assert counts["withheld_cost"] == pytest.approx(cost, abs=1e-9)
    assert counts["withheld_cost"] >= 0.0


def test_withholding_channels_with_negative_rewards_costs_nothing() -> None:
    """Fewer channels earn more then, and counts never decrease."""
    allocator = station(collision_limit=0.4, rewards=(-5.0, -1.0))
    for _ in range(3):
        allocator.decide(None)
    counts = allocator.status()["counts"]
    assert (counts["withheld"], counts["withheld_cost"]) == (3 * K, 0)


def test_a_collision_limit_of_one_withholds_nothing() -> None:
    """Not even a channel that was sensed busy."""
    allocator = station(users=K)
    for _ in range(5):
        assert len(allocator.decide(None, states=[0] * K).channels) == K
    counts = allocator.status()["counts"]
    assert (counts["withheld"], counts["withheld_cost"]) == (0, 0)


def test_the_collision_limit_bounds_the_share_of_collisions() -> None:
    """Channels are idle half the time and keep a state for 20 slots on average. With a limit of 0.25 at most this share
    of the plays collides. The standard deviation of the share is sqrt(0.25 * 0.75 / n), times sqrt(10) for the
    correlation of neighbouring slots; the bound is four of them. Without the limit MP-UCB collides half the time."""
    world = ib.scenario(p01=[0.05] * K, p10=[0.05] * K, users=2, perturbation="none")
    shares = {}
    for limit in (0.25, 1.0):
        allocator = ib.Allocator("mp-ucb", scenario=world, collision_limit=limit)
        rng = np.random.default_rng(7)
        states = rng.integers(0, 2, K)
        for t in range(1, 601):
            states = np.where(rng.random(K) < 0.05, 1 - states, states)
            # One channel is sensed per slot.
            sensed = [int(states[k]) if k == t % K else None for k in range(K)]
            decision = allocator.decide(np.zeros((K, world.dimension)), states=sensed)
            seen = [int(states[k]) for k in decision.channels]
            allocator.report(decision.request_id, [1.0 if s else 0.1 for s in seen], seen)
        counts = allocator.status()["counts"]
        shares[limit] = counts["collisions"] / counts["reported"]
        assert (counts["withheld_cost"] > 0.0) == (limit < 1.0)
        assert counts["reported"] > 300
    deviation = np.sqrt(0.25 * 0.75 / 300 * 10)
    assert shares[0.25] < 0.25 + 4 * deviation < 0.7
    assert shares[0.25] < shares[1.0] - 0.1
