"""What keeps an allocator safe whatever its policy says: a shadow, channels that are to be left, and a limit on the
chance of a primary user. A policy that is late or broken: test_guarded.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idleband as ib
from tests.allocator.helpers import arrays, contexts, loaded, plain, raising, state_of, station

K = 5


# --- a shadow --------------------------------------------------------------------------------------------------------


def test_the_incumbent_hands_out_and_the_policy_learns_in_its_shadow() -> None:
    """Beside it, the same incumbent alone: the same is handed out, and the policy has heard all of it."""
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


def test_an_incumbent_may_be_told_slot_by_slot() -> None:
    allocator = station("mp-ucb")
    decision = allocator.decide(None, incumbent=[4, 2])
    assert decision == ib.Decision(1, (4, 2), 1, "incumbent", (0, 1))
    assert allocator.report(1, {4: 1.0}).learned == (4,)
    assert allocator.decide(None, incumbent=[4, 2, 0]).channels == (4, 2)  # as many as there are users
    assert allocator.decide(None, 1, incumbent=[]).channels == ()
    assert allocator.decide(None, available=[1, 1, 1, 1, 0], incumbent=[4, 2]).channels == (2,)
    assert arrays(allocator)["policy.state.plays"].tolist() == [0, 0, 0, 0, 1]


def test_a_broken_policy_has_no_say_in_the_shadow() -> None:
    """And no numbers: what it would have done is told of no channel."""
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
    assert state_of(one) == state_of(other)  # nothing that happened to lie in memory


@pytest.mark.parametrize("who", ["incumbent", "fallback"])
def test_what_is_handed_out_is_allowed_even_if_nobody_works(who: str) -> None:
    """Neither the policy nor whoever stands in for it knows a number."""
    allocator = station("mp-lucb", **{who: "mp-lucb"})
    allocator.vacate([0])
    for learner in allocator._core.learners():
        next(leaf for name, leaf in learner.arrays() if name in ("state.theta", "state.total"))[:] = np.nan
    decision = allocator.decide(np.zeros((K, 2)), available=[True, True, False, True, True])
    assert (decision.by, decision.channels) == (who, (1, 3))


# --- channels that are to be left ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["mp-ucb", "rca-m", "mp-lucb"])  # all others: tests/contracts
@pytest.mark.parametrize("incumbent", [None, "mp-random", "told"])
def test_a_channel_that_is_to_be_left_is_not_handed_out_by_anyone(policy: str, incumbent: str | None) -> None:
    """Nor taken: K - 1 channels remain for K users, but for what an incumbent asks for itself."""
    allocator = station(policy, users=K, incumbent=None if incumbent == "told" else incumbent)
    rng = np.random.default_rng(6)
    told = {"incumbent": [3, 1, 0]} if incumbent == "told" else {}
    handed = allocator.decide(contexts(rng, allocator), **told)
    assert 3 in handed.channels
    assert allocator.vacate([3]) == (3,)  # in use right now
    assert allocator.vacated == (3,)
    for _ in range(20):
        decision = allocator.decide(contexts(rng, allocator), **told)
        assert set(decision.channels) == ({0, 1} if told else {0, 1, 2, 4})
        assert 3 not in decision.proposed
        allocator.report(decision.request_id, [1.0] * len(decision.channels))
    assert 3 not in loaded(state_of(allocator)).decide(np.zeros((K, 2)), **told).channels
    allocator.restore([3])
    assert allocator.vacated == ()
    assert 3 in allocator.decide(contexts(rng, allocator), **told).channels


def test_channels_to_leave_now_are_told() -> None:
    allocator = station(users=3)
    assert allocator.vacate([4]) == ()  # nothing was handed out yet
    assert allocator.decide(None).channels == (0, 1, 2)
    assert allocator.vacate([3]) == ()
    assert allocator.vacate([2, 3]) == (2,)
    assert allocator.vacate([0]) == (0,)  # 2 was told before
    assert allocator.vacated == (0, 2, 3, 4)
    allocator.restore([0, 1])
    assert allocator.vacated == (2, 3, 4)
    assert allocator.decide(None).channels == (0, 1)


def test_the_fallback_leaves_channels_too() -> None:
    plain(raising)
    allocator = station("plain", users=K)
    allocator.vacate([0, 1])
    for _ in range(4):
        decision = allocator.decide(np.zeros((K, 2)))
    assert (decision.by, decision.channels) == ("fallback", (2, 3, 4))


# --- a limit on collisions -------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.05, 0.3, 0.6, 0.99]))
def test_channels_above_the_limit_are_not_handed_out(seed: int, limit: float) -> None:
    """Some channels are sensed, some masked, some to be left. What a slot costs is what its best withheld channels
    would have paid above the best of the others, as the allocator expects it: recomputed here from what it has seen."""
    rng = np.random.default_rng(seed)
    allocator = station(collision_limit=limit, patience=2)
    cost = withheld = 0.0
    earned, plays = np.zeros((K, 2)), np.zeros((K, 2))  # busy and free
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
        worth = {}
        for term in usable:
            k = term.channel
            busy, free = (np.array([0.1, 1.0]) + earned[k]) / (1.0 + plays[k])
            worth[k] = busy + (1.0 - term.primary_user_probability) * (free - busy)
        best, allowed = (sorted((worth[term.channel] for term in some), reverse=True) for some in (usable, below))
        withheld += len(usable) - len(below)
        cost += sum(best[:users]) - sum(allowed[:users])
        for k in decision.channels:
            free = int(rng.integers(2))
            reward = rng.uniform(0.1, 1.0)
            allocator.report(decision.request_id, {k: reward}, {k: free})
            earned[k, free] += reward
            plays[k, free] += 1.0
    counts = allocator.status()["counts"]
    assert counts["withheld"] == withheld
    assert counts["withheld_cost"] == pytest.approx(cost, abs=1e-9)
    assert counts["withheld_cost"] >= 0.0


def test_what_is_withheld_costs_nothing_where_a_channel_costs() -> None:
    """Handing out fewer channels then earns more: counts only grow."""
    allocator = station(collision_limit=0.4, rewards=(-5.0, -1.0))
    for _ in range(3):
        allocator.decide(None)
    counts = allocator.status()["counts"]
    assert (counts["withheld"], counts["withheld_cost"]) == (3 * K, 0)


def test_with_a_limit_of_one_nothing_is_withheld() -> None:
    """Not even a channel with somebody on it, right now."""
    allocator = station(users=K)
    for _ in range(5):
        assert len(allocator.decide(None, states=[0] * K).channels) == K
    counts = allocator.status()["counts"]
    assert (counts["withheld"], counts["withheld_cost"]) == (0, 0)


def test_the_limit_keeps_collisions_down_and_the_cost_is_shown() -> None:
    """Channels that stay as they are for 10 slots on average and are free half the time. Of what is handed out under a
    limit of 0.25 no more than that is busy: 600 slots and 2 channels give a standard deviation of sqrt(0.25 * 0.75 /
    n) of the share, times sqrt(10) for neighbouring slots that are alike; four of them, and as much for chances that
    are learned. Without the limit MP-UCB, which sees no difference, collides half the time."""
    world = ib.scenario(p01=[0.05] * K, p10=[0.05] * K, users=2, perturbation="none")
    shares = {}
    for limit in (0.25, 1.0):
        allocator = ib.Allocator("mp-ucb", scenario=world, collision_limit=limit)
        rng = np.random.default_rng(7)
        states = rng.integers(0, 2, K)
        for t in range(1, 601):
            states = np.where(rng.random(K) < 0.05, 1 - states, states)
            # Sensing is expensive: one channel a slot.
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
