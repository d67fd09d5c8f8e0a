"""Policies that are late, hang, raise or compute nan: the fallback decides instead."""

import gc
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator.events import RecordedDecision
from idleband.allocator.supervisor import MAX_PENDING
from tests.allocator.helpers import arrays, contexts, differ, loaded, plain, raising, state_of, station

K = 5


# --- late policies ---------------------------------------------------------------------------------------------------


def test_the_fallback_decides_for_a_late_policy_until_it_catches_up() -> None:
    """The policy waits at a gate from slot 4 to 6, while reports continue. In the end its state is that of a policy
    without a deadline that replays the same requests, decisions and reports."""
    gate = threading.Event()

    def wait(slot: Any, picks: Any) -> None:
        if slot.t == 4:
            gate.wait(60.0)

    plain(wait)
    limited, history = station("plain", deadline=0.05), []
    rng = np.random.default_rng(2)
    for t in range(1, 15):
        if t == 7:
            gate.set()
            limited._core.supervisor.settle()
        x, available = contexts(rng, limited), rng.random(K) < 0.8
        decision = limited.decide(x, available=available)
        if t in (4, 5, 6):
            assert (decision.by, decision.proposed) == ("fallback", None)
            why = "selected by the fallback mp-ucb, because plain missed its deadline."
            assert why in str(limited.explain(decision.request_id))
        rewards = rng.choice([0.1, 1.0], len(decision.channels))
        limited.report(decision.request_id, rewards)
        history.append((decision, x, available, rewards))
    assert limited.status()["counts"]["missed_deadlines"] >= 3
    assert not limited.policy_failure
    unlimited = station("plain")
    for decision, x, available, rewards in history:
        assert (
            unlimited._core.decide(unlimited._core.parse_decide(x, available=available), RecordedDecision(decision, ""))
            == decision
        )
        unlimited.report(decision.request_id, rewards)
    assert not differ(limited, unlimited, part="policy")
    assert not differ(limited, unlimited, part="fallback")
    assert not differ(limited, unlimited, part="occupancy")


def test_a_policy_that_meets_its_deadline_decides_as_without_one() -> None:
    """The deadline is one minute."""
    limited, unlimited = station("mp-lucb", deadline=60.0), station("mp-lucb")
    rng = np.random.default_rng(3)
    for _ in range(50):
        x = contexts(rng, limited)
        decision = limited.decide(x)
        assert decision == unlimited.decide(x)
        assert limited.explain(decision.request_id).to_dict() == unlimited.explain(decision.request_id).to_dict()
        for allocator in (limited, unlimited):
            allocator.report(decision.request_id, {decision.channels[0]: 1.0})
            allocator.report(decision.request_id, {decision.channels[1]: 0.1})
    assert not differ(limited, unlimited)


def test_saving_waits_for_pending_work() -> None:
    gate = threading.Event()
    plain(lambda slot, picks: None, lambda slot, k: gate.wait(60.0))
    allocator = station("plain", deadline=0.02)
    decision = allocator.decide(np.zeros((K, 2)))
    allocator.report(decision.request_id, [1.0, 0.5])
    threading.Timer(0.05, gate.set).start()
    assert arrays(allocator)["policy.state.0"].tolist() == [1.0, 0.5, 0.0, 0.0, 0.0]


def test_a_hanging_policy_is_taken_out_of_service_at_the_limit_of_pending_tasks() -> None:
    """Further work is not kept for it, and the allocator can be saved."""
    gate = threading.Event()
    plain(lambda slot, picks: gate.wait(60.0) and None)
    allocator = station("plain", deadline=1e-4)
    for t in range(1, 2 * MAX_PENDING):
        decision = allocator.decide(np.zeros((K, 2)))
        assert decision.proposed is None
        assert bool(allocator.policy_failure) == (t > MAX_PENDING // 2)  # two tasks per slot
        allocator.report(decision.request_id, [1.0, 0.5])
        assert len(allocator._core.supervisor._pending) <= MAX_PENDING + 1
    assert f"plain is out of service since {allocator.policy_failure}." in str(allocator.explain(decision.request_id))
    assert loaded(state_of(allocator)).policy_failure == allocator.policy_failure
    gate.set()


def test_decisions_continue_while_saving_waits_for_the_policy(tmp_path: Path) -> None:
    """The policy hangs; the fallback decides meanwhile."""
    gate = threading.Event()
    plain(lambda slot, picks: gate.wait(60.0) and None)
    allocator = station("plain", deadline=0.01)
    allocator.decide(np.zeros((K, 2)))
    saving = threading.Thread(target=allocator.save, args=(tmp_path / "saved",))
    saving.start()
    for _ in range(20):
        assert allocator.decide(np.zeros((K, 2))).by == "fallback"
    assert saving.is_alive()
    gate.set()
    saving.join(60.0)
    assert ib.Allocator.load(tmp_path / "saved").slot >= 21


def test_the_thread_of_a_policy_ends_with_its_allocator() -> None:
    before = set(threading.enumerate())

    def new() -> set[threading.Thread]:
        return set(threading.enumerate()) - before

    allocators = [station(deadline=60.0) for _ in range(5)]
    assert not new()  # threads start with the first task
    for allocator in allocators:
        allocator.report(allocator.decide(None).request_id, [1.0, 1.0])
        allocator._core.supervisor.settle()
    assert len(new()) == 5
    del allocator, allocators
    gc.collect()
    until = time.monotonic() + 60.0
    while new():
        assert time.monotonic() < until
        time.sleep(0.01)


# --- failing policies ------------------------------------------------------------------------------------------------


def picking(*channels: int) -> Any:
    def failing(slot: Any, picks: Any) -> int | None:
        if slot.t != 3:
            return None
        picks[: len(channels)] = channels
        return len(channels)

    return failing


def unsure(slot: Any, picks: Any) -> None:
    if slot.t == 3:
        slot.indices[2] = np.nan


@pytest.mark.parametrize("deadline", [None, 60.0])
@pytest.mark.parametrize(
    ("failing", "why"),
    [
        (raising, "slot 3: RuntimeError: no idea"),
        (unsure, "slot 3: an index is nan"),
        *(
            (picking(*bad), "slot 3: the selected channels are invalid")
            for bad in ((0,), (0, 1, 2), (1, 1), (0, 5), (-1, 0))
        ),
        (picking(0, 3), "slot 3: the selected channels are invalid"),  # 3 is not available
    ],
)
def test_a_failing_policy_is_out_of_service_until_it_is_reset(failing: Any, why: str, deadline: float | None) -> None:
    plain(failing)
    allocator = station("plain", deadline=deadline, fallback="mp-random")
    x, available = np.zeros((K, 2)), [True, True, True, False, True]
    for t in range(1, 7):
        decision = allocator.decide(x, available=available)
        assert decision.by == ("policy" if t < 3 else "fallback")
        assert len(set(decision.channels) - {3}) == 2  # the fallback selects available channels
        assert allocator.policy_failure == allocator.status()["policy_failure"] == ("" if t < 3 else why)
        allocator.report(decision.request_id, [1.0, 1.0])
    assert f"selected by the fallback mp-random, because plain is out of service since {why}." in str(
        allocator.explain(decision.request_id)
    )
    assert arrays(allocator)["policy.state.0"].sum() == 4.0  # of slots 1 and 2
    again = loaded(state_of(allocator))
    assert again.policy_failure == why  # saving does not reset it
    assert again.decide(x).by == "fallback"
    allocator.reset()
    assert not allocator.policy_failure
    assert not arrays(allocator)["policy.state.0"].any()
    decision = allocator.decide(x)
    assert decision.by == "policy"
    allocator.report(decision.request_id, [1.0, 1.0])
    assert arrays(allocator)["policy.state.0"].sum() == 2.0
    assert allocator.status()["counts"]["fallback"] == 4


def test_a_fallback_decision_is_explained_the_same_after_a_reset() -> None:
    plain(raising)
    allocator = station("plain")
    for _ in range(4):
        decision = allocator.decide(np.zeros((K, 2)))
    before = str(allocator.explain(decision.request_id))
    assert "out of service since slot 3: RuntimeError: no idea" in before
    allocator.reset()
    assert str(allocator.explain(decision.request_id)) == before


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_an_exception_in_update_takes_the_policy_out_of_service(deadline: float | None) -> None:
    def forget(slot: Any, k: int) -> None:
        if slot.t == 2:
            raise KeyError("a")

    plain(lambda slot, picks: None, forget)
    allocator = station("plain", deadline=deadline)
    for t in range(1, 4):
        decision = allocator.decide(np.zeros((K, 2)))
        assert decision.by == ("policy" if t < 3 else "fallback")
        assert allocator.report(decision.request_id, [1.0, 1.0]).learned == decision.channels  # by the fallback
    assert allocator.policy_failure == "slot 2: KeyError: 'a'"
    assert arrays(allocator)["fallback.state.plays"].sum() == 6


def test_nan_in_an_index_takes_the_policy_out_of_service_at_once() -> None:
    allocator = station("mp-lucb")
    allocator.decide(np.zeros((K, 2)))
    allocator._core.supervisor.learner.state.theta[3] = np.nan
    decision = allocator.decide(np.zeros((K, 2)))
    assert (decision.by, allocator.policy_failure) == ("fallback", "slot 2: an index is nan")


def test_nan_elsewhere_in_the_state_is_found_every_1024_slots() -> None:
    """The sum of a running block of RCA has no effect before the block ends."""
    allocator = station("rca-m")
    allocator.decide(None)
    allocator._core.supervisor.learner.state.open_sum[4] = np.nan
    assert allocator.decide(None, slot=1023).by == "policy"
    assert allocator.decide(None, slot=1024).by == "fallback"
    assert allocator.policy_failure == "slot 1024: the state of the policy contains nan"
    allocator.reset()
    assert allocator.decide(None, slot=2048).by == "policy"
