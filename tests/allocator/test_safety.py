"""What keeps an allocator safe whatever its policy does: a deadline, a fallback, a shadow, channels that are to be
left, and a limit on the chance of a primary user."""

import gc
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idleband as ib
from idleband.allocator.events import Decided
from idleband.allocator.guarded import MOST_WAITING
from tests.allocator.inside import arrays, contexts, differ, plain

K = 5


def station(policy: Any = "mp-ucb", **more: Any) -> ib.Allocator:
    return ib.Allocator(policy, **{"channels": K, "users": 2, "dimension": 2, **more})


# --- a policy that is late -------------------------------------------------------------------------------------------


def test_a_policy_that_is_late_is_stood_in_for_and_catches_up() -> None:
    """It waits at a gate in slot 4, and cannot answer in 4, 5 and 6; feedback goes on meanwhile. Then its memory is
    that of one without a deadline that goes through the same questions, answers and reports."""
    gate = threading.Event()

    def wait(slot: Any, picks: Any) -> None:
        if slot.t == 4:
            gate.wait(60.0)

    plain(wait)
    hurried, history = station("plain", deadline=0.05), []
    rng = np.random.default_rng(2)
    for t in range(1, 15):
        if t == 7:
            gate.set()
            hurried.settle()
        x, available = contexts(rng, hurried), rng.random(K) < 0.8
        decision = hurried.allocate(x, available=available)
        if t in (4, 5, 6):
            assert (decision.by, decision.proposed) == ("fallback", None)
            why = "chosen by the fallback mp-ucb, because plain did not answer before its deadline."
            assert why in str(hurried.explain(decision.id))
        rewards = rng.choice([0.1, 1.0], len(decision.channels))
        hurried.report(decision.id, rewards)
        history.append((decision, x, available, rewards))
    assert hurried.snapshot()["counts"]["too_late"] >= 3
    assert not hurried.broken
    patient = station("plain")
    for decision, x, available, rewards in history:
        assert patient.decide(patient.ask(x, available=available), Decided(decision, "")) == decision
        patient.report(decision.id, rewards)
    assert not differ(hurried, patient, whose="learner")
    assert not differ(hurried, patient, whose="fallback")
    assert not differ(hurried, patient, whose="watch")


def test_a_policy_in_time_decides_as_one_without_a_deadline() -> None:
    """A minute is time enough."""
    hurried, patient = station("mp-lucb", deadline=60.0), station("mp-lucb")
    rng = np.random.default_rng(3)
    for _ in range(50):
        x = contexts(rng, hurried)
        decision = hurried.allocate(x)
        assert decision == patient.allocate(x)
        assert hurried.explain(decision.id).as_data() == patient.explain(decision.id).as_data()
        for allocator in (hurried, patient):
            allocator.report(decision.id, {decision.channels[0]: 1.0})
            allocator.report(decision.id, {decision.channels[1]: 0.1})
    assert not differ(hurried, patient)


def test_whoever_is_behind_is_saved_when_it_has_caught_up() -> None:
    gate = threading.Event()
    plain(lambda slot, picks: None, lambda slot, k: gate.wait(60.0))
    allocator = station("plain", deadline=0.02)
    decision = allocator.allocate(np.zeros((K, 2)))
    allocator.report(decision.id, [1.0, 0.5])
    threading.Timer(0.05, gate.set).start()
    assert arrays(allocator)["learner.state.0"].tolist() == [1.0, 0.5, 0.0, 0.0, 0.0]


def test_whoever_hangs_is_out_of_service_and_takes_no_more_memory() -> None:
    """What it was not given before it hung is not kept for it, and it can be saved without it."""
    gate = threading.Event()
    plain(lambda slot, picks: gate.wait(60.0) and None)
    allocator = station("plain", deadline=1e-4)
    for t in range(1, 2 * MOST_WAITING):
        decision = allocator.allocate(np.zeros((K, 2)))
        assert decision.proposed is None
        assert bool(allocator.broken) == (t > MOST_WAITING // 2)  # a question and a lesson each
        allocator.report(decision.id, [1.0, 0.5])
        assert len(allocator._policy._waiting) <= MOST_WAITING + 1
    assert f"plain is out of service since {allocator.broken}." in str(allocator.explain(decision.id))
    assert ib.Allocator.from_bytes(allocator.to_bytes(), "here").broken == allocator.broken
    gate.set()


def test_nobody_waits_for_one_who_saves(tmp_path: Path) -> None:
    """The policy hangs: saving waits for it, and decisions go on meanwhile, the fallback's."""
    gate = threading.Event()
    plain(lambda slot, picks: gate.wait(60.0) and None)
    allocator = station("plain", deadline=0.01)
    allocator.allocate(np.zeros((K, 2)))
    saving = threading.Thread(target=allocator.save, args=(tmp_path / "saved",))
    saving.start()
    for _ in range(20):
        assert allocator.allocate(np.zeros((K, 2))).by == "fallback"
    assert saving.is_alive()
    gate.set()
    saving.join(60.0)
    assert ib.Allocator.load(tmp_path / "saved").slot >= 21


def test_a_thread_ends_with_its_allocator() -> None:
    before = set(threading.enumerate())

    def new() -> set[threading.Thread]:
        return set(threading.enumerate()) - before

    allocators = [station(deadline=60.0) for _ in range(5)]
    assert not new()  # it is begun when there is something to do
    for allocator in allocators:
        allocator.report(allocator.allocate(None).id, [1.0, 1.0])
        allocator.settle()
    assert len(new()) == 5
    del allocator, allocators
    gc.collect()
    until = time.monotonic() + 60.0
    while new():
        assert time.monotonic() < until
        time.sleep(0.01)


# --- a policy that does not work -------------------------------------------------------------------------------------


def raising(slot: Any, picks: Any) -> None:
    if slot.t == 3:
        raise RuntimeError("no idea")


def picking(*channels: int) -> Any:
    def spoil(slot: Any, picks: Any) -> int | None:
        if slot.t != 3:
            return None
        picks[: len(channels)] = channels
        return len(channels)

    return spoil


def unsure(slot: Any, picks: Any) -> None:
    if slot.t == 3:
        slot.indices[2] = np.nan


@pytest.mark.parametrize("deadline", [None, 60.0])
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (raising, "slot 3: RuntimeError: no idea"),
        (unsure, "slot 3: an index is not a number"),
        *((picking(*bad), "slot 3: its picks break the rules") for bad in ((0,), (0, 1, 2), (1, 1), (0, 5), (-1, 0))),
        (picking(0, 3), "slot 3: its picks break the rules"),  # 3 is not available
    ],
)
def test_a_policy_that_does_not_work_is_out_of_service_until_it_is_reset(
    spoil: Any, why: str, deadline: float | None
) -> None:
    plain(spoil)
    allocator = station("plain", deadline=deadline, fallback="mp-random")
    x, available = np.zeros((K, 2)), [True, True, True, False, True]
    for t in range(1, 7):
        decision = allocator.allocate(x, available=available)
        assert decision.by == ("policy" if t < 3 else "fallback")
        assert len(set(decision.channels) - {3}) == 2  # what the fallback says is in order
        assert allocator.broken == allocator.snapshot()["broken"] == ("" if t < 3 else why)
        allocator.report(decision.id, [1.0, 1.0])
    assert f"chosen by the fallback mp-random, because plain is out of service since {why}." in str(
        allocator.explain(decision.id)
    )
    assert arrays(allocator)["learner.state.0"].sum() == 4.0  # of slots 1 and 2
    again = ib.Allocator.from_bytes(allocator.to_bytes(), "here")
    assert again.broken == why  # it is not repaired by being saved
    assert again.allocate(x).by == "fallback"
    allocator.reset()
    assert not allocator.broken
    assert not arrays(allocator)["learner.state.0"].any()
    decision = allocator.allocate(x)
    assert decision.by == "policy"
    allocator.report(decision.id, [1.0, 1.0])
    assert arrays(allocator)["learner.state.0"].sum() == 2.0
    assert allocator.snapshot()["counts"]["fallback"] == 4


def test_why_the_fallback_decided_is_told_after_a_reset_too() -> None:
    plain(raising)
    allocator = station("plain")
    for _ in range(4):
        decision = allocator.allocate(np.zeros((K, 2)))
    before = str(allocator.explain(decision.id))
    assert "out of service since slot 3: RuntimeError: no idea" in before
    allocator.reset()
    assert str(allocator.explain(decision.id)) == before


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_a_policy_that_cannot_learn_is_out_of_service(deadline: float | None) -> None:
    def forget(slot: Any, k: int) -> None:
        if slot.t == 2:
            raise KeyError("a")

    plain(lambda slot, picks: None, forget)
    allocator = station("plain", deadline=deadline)
    for t in range(1, 4):
        decision = allocator.allocate(np.zeros((K, 2)))
        assert decision.by == ("policy" if t < 3 else "fallback")
        assert allocator.report(decision.id, [1.0, 1.0]).learned == decision.channels  # by all others
    assert allocator.broken == "slot 2: KeyError: 'a'"
    assert arrays(allocator)["fallback.state.plays"].sum() == 6


def test_a_nan_in_what_was_learned_is_found_at_once_where_it_matters() -> None:
    allocator = station("mp-lucb")
    allocator.allocate(np.zeros((K, 2)))
    allocator._policy.learner.state.theta[3] = np.nan
    decision = allocator.allocate(np.zeros((K, 2)))
    assert (decision.by, allocator.broken) == ("fallback", "slot 2: an index is not a number")


def test_a_nan_in_what_was_learned_is_found_in_time_where_it_does_not() -> None:
    """RCA's sum of a running block matters when it ends. All is looked at every 1024 slots."""
    allocator = station("rca-m")
    allocator.allocate(None)
    allocator._policy.learner.state.open_sum[4] = np.nan
    assert allocator.allocate(None, slot=1023).by == "policy"
    assert allocator.allocate(None, slot=1024).by == "fallback"
    assert allocator.broken == "slot 1024: there is a nan in what it has learned"
    allocator.reset()
    assert allocator.allocate(None, slot=2048).by == "policy"


# --- a shadow --------------------------------------------------------------------------------------------------------


def test_the_incumbent_hands_out_and_the_policy_learns_in_its_shadow() -> None:
    """Beside it, the same incumbent alone: the same is handed out, and the policy has heard all of it."""
    shadow, alone = station("mp-ucb", incumbent="mp-lucb", seed=4), station("mp-lucb", seed=4)
    rng = np.random.default_rng(5)
    agreed = 0
    for _ in range(40):
        x = contexts(rng, shadow)
        ours, theirs = shadow.allocate(x), alone.allocate(x)
        assert (ours.channels, ours.by) == (theirs.channels, "incumbent")
        assert len(ours.proposed) == 2
        agreed += len(set(ours.proposed) & set(ours.channels))
        rewards = rng.choice([0.1, 1.0], 2)
        for allocator in (shadow, alone):
            allocator.report(ours.id, rewards)
    inside = arrays(shadow)
    assert inside["learner.state.plays"].sum() == 80
    assert inside["learner.state.plays"].tolist() == inside["watch.plays"].sum(axis=1).tolist()
    counts = shadow.snapshot()["counts"]
    assert (counts["shadowed"], counts["agreed"]) == (80, agreed)
    assert 0 < agreed < 80
    assert counts["fallback"] == 0


def test_an_incumbent_may_be_told_slot_by_slot() -> None:
    allocator = station("mp-ucb")
    decision = allocator.allocate(None, incumbent=[4, 2])
    assert decision == ib.Decision(1, (4, 2), 1, "incumbent", (0, 1))
    assert allocator.report(1, {4: 1.0}).learned == (4,)
    assert allocator.allocate(None, incumbent=[4, 2, 0]).channels == (4, 2)  # as many as there are users
    assert allocator.allocate(None, 1, incumbent=[]).channels == ()
    assert allocator.allocate(None, available=[1, 1, 1, 1, 0], incumbent=[4, 2]).channels == (2,)
    assert arrays(allocator)["learner.state.plays"].tolist() == [0, 0, 0, 0, 1]


def test_a_broken_policy_has_no_say_in_the_shadow() -> None:
    """And no numbers: what it would have done is told of no channel."""
    plain(raising)
    one, other = (station("plain", incumbent="mp-ucb") for _ in range(2))
    for _ in range(5):
        decision = one.allocate(np.zeros((K, 2)))
        other.allocate(np.zeros((K, 2)))
        assert decision.by == "incumbent"
    assert decision.proposed is None
    explained = one.explain(decision.id)
    assert "plain, in its shadow, is out of service since slot 3: RuntimeError: no idea." in str(explained)
    assert all(np.isnan([term.index, term.estimate, term.width]).all() for term in explained.channels)
    assert one.to_bytes() == other.to_bytes()  # nothing that happened to lie in memory


@pytest.mark.parametrize("who", ["incumbent", "fallback"])
def test_what_is_handed_out_is_allowed_even_if_nobody_works(who: str) -> None:
    """Neither the policy nor whoever stands in for it knows a number."""
    allocator = station("mp-lucb", **{who: "mp-lucb"})
    allocator.vacate([0])
    for learner in allocator._learners():
        next(leaf for name, leaf in learner.arrays() if name in ("state.theta", "state.total"))[:] = np.nan
    decision = allocator.allocate(np.zeros((K, 2)), available=[True, True, False, True, True])
    assert (decision.by, decision.channels) == (who, (1, 3))


# --- channels that are to be left ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["mp-ucb", "rca-m", "mp-lucb"])  # all others: tests/contracts
@pytest.mark.parametrize("incumbent", [None, "mp-random", "told"])
def test_a_channel_that_is_to_be_left_is_not_handed_out_by_anyone(policy: str, incumbent: str | None) -> None:
    """Nor taken: K - 1 channels remain for K users, but for what an incumbent asks for itself."""
    allocator = station(policy, users=K, incumbent=None if incumbent == "told" else incumbent)
    rng = np.random.default_rng(6)
    told = {"incumbent": [3, 1, 0]} if incumbent == "told" else {}
    handed = allocator.allocate(contexts(rng, allocator), **told)
    assert 3 in handed.channels
    assert allocator.vacate([3]) == (3,)  # in use right now
    assert allocator.vacated == (3,)
    for _ in range(20):
        decision = allocator.allocate(contexts(rng, allocator), **told)
        assert set(decision.channels) == ({0, 1} if told else {0, 1, 2, 4})
        assert 3 not in decision.proposed
        allocator.report(decision.id, [1.0] * len(decision.channels))
    assert 3 not in ib.Allocator.from_bytes(allocator.to_bytes(), "here").allocate(np.zeros((K, 2)), **told).channels
    allocator.restore([3])
    assert allocator.vacated == ()
    assert 3 in allocator.allocate(contexts(rng, allocator), **told).channels


def test_channels_to_leave_now_are_told() -> None:
    allocator = station(users=3)
    assert allocator.vacate([4]) == ()  # nothing was handed out yet
    assert allocator.allocate(None).channels == (0, 1, 2)
    assert allocator.vacate([3]) == ()
    assert allocator.vacate([2, 3]) == (2,)
    assert allocator.vacate([0]) == (0,)  # 2 was told before
    assert allocator.vacated == (0, 2, 3, 4)
    allocator.restore([0, 1])
    assert allocator.vacated == (2, 3, 4)
    assert allocator.allocate(None).channels == (0, 1)


def test_the_fallback_leaves_channels_too() -> None:
    plain(raising)
    allocator = station("plain", users=K)
    allocator.vacate([0, 1])
    for _ in range(4):
        decision = allocator.allocate(np.zeros((K, 2)))
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
        decision = allocator.allocate(None, users, available, sensed)
        terms = allocator.explain(decision.id).channels
        usable = [term for term in terms if available[term.channel] and term.channel not in allocator.vacated]
        below = [term for term in usable if term.primary_user <= limit]
        assert {term.channel for term in terms if term.status == "available"} == {term.channel for term in below}
        assert set(decision.channels) <= {term.channel for term in below}
        assert len(decision.channels) == min(users, len(below))
        for k, s in enumerate(sensed):
            if s is not None:
                assert terms[k].primary_user == 1.0 - s
        worth = {}
        for term in usable:
            k = term.channel
            busy, free = (np.array([0.1, 1.0]) + earned[k]) / (1.0 + plays[k])
            worth[k] = busy + (1.0 - term.primary_user) * (free - busy)
        best, allowed = (sorted((worth[term.channel] for term in some), reverse=True) for some in (usable, below))
        withheld += len(usable) - len(below)
        cost += sum(best[:users]) - sum(allowed[:users])
        for k in decision.channels:
            free = int(rng.integers(2))
            reward = rng.uniform(0.1, 1.0)
            allocator.report(decision.id, {k: reward}, {k: free})
            earned[k, free] += reward
            plays[k, free] += 1.0
    counts = allocator.snapshot()["counts"]
    assert counts["withheld"] == withheld
    assert counts["withheld_cost"] == pytest.approx(cost, abs=1e-9)
    assert counts["withheld_cost"] >= 0.0


def test_what_is_withheld_costs_nothing_where_a_channel_costs() -> None:
    """Handing out fewer channels then earns more: counts only grow."""
    allocator = station(collision_limit=0.4, rewards=(-5.0, -1.0))
    for _ in range(3):
        allocator.allocate(None)
    counts = allocator.snapshot()["counts"]
    assert (counts["withheld"], counts["withheld_cost"]) == (3 * K, 0)


def test_with_a_limit_of_one_nothing_is_withheld() -> None:
    """Not even a channel with somebody on it, right now."""
    allocator = station(users=K)
    for _ in range(5):
        assert len(allocator.allocate(None, states=[0] * K).channels) == K
    counts = allocator.snapshot()["counts"]
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
            decision = allocator.allocate(np.zeros((K, world.dimension)), states=sensed)
            seen = [int(states[k]) for k in decision.channels]
            allocator.report(decision.id, [1.0 if s else 0.1 for s in seen], seen)
        counts = allocator.snapshot()["counts"]
        shares[limit] = counts["collisions"] / counts["reported"]
        assert (counts["withheld_cost"] > 0.0) == (limit < 1.0)
        assert counts["reported"] > 300
    deviation = np.sqrt(0.25 * 0.75 / 300 * 10)
    assert shares[0.25] < 0.25 + 4 * deviation < 0.7
    assert shares[0.25] < shares[1.0] - 0.1
