"""Decisions and reports: complete, partial, late, repeated, in any order; the feedback of a channel is learned once."""

import copy
import math
import os
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idleband as ib
from tests.allocator.helpers import arrays, contexts, differ, loaded, state_of

K, M = 4, 3


def small(policy: str = "mp-ucb", **more: Any) -> ib.Allocator:
    return ib.Allocator(policy, **{"channels": K, "users": M, "dimension": 2, **more})


# --- exactly once, compared with a dictionary -------------------------------------------------------------------------

EIGHTHS = st.integers(0, 8).map(lambda n: n / 8)  # sums of them are exact
ASK = st.tuples(st.just("ask"), st.integers(0, M), st.lists(st.booleans(), min_size=K, max_size=K), st.integers(1, 3))
REPORT = st.tuples(
    st.just("report"),
    st.integers(0, 7),  # of which decision, counted back from the newest
    st.lists(st.one_of(st.none(), EIGHTHS), min_size=M, max_size=M),
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 1)), min_size=M, max_size=M)),
)
AGAIN = st.tuples(st.just("again"), st.integers(0, 20))  # a repetition of an earlier report
PATIENCE = 6


class Reference:
    """The expected result: the first value for each channel of each decision is learned."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], tuple[float, int]] = {}
        self.repeated = self.late = 0

    def expect(self, decision: ib.Decision, slot: int, rewards: Any, states: Any) -> Any:
        """The receipt of a report, or the error that it raises."""
        if decision.slot <= slot - PATIENCE:
            self.late += 1
            return ib.Receipt((), (), True)
        learned, repeated = {}, []
        for k, r, s in zip(decision.channels, rewards, states, strict=True):
            if r is None:
                if s is not None:
                    return ib.InputError
                continue
            before = self.known.get((decision.slot, k))
            if before is None:
                learned[k] = (r, (0 if r <= 0.5 else 1) if s is None else s)
            elif r == before[0] and s in (None, before[1]):
                repeated.append(k)
            else:
                return ib.ConflictError
        self.known |= {(decision.slot, k): value for k, value in learned.items()}
        self.repeated += len(repeated)
        return ib.Receipt(tuple(learned), tuple(repeated))


@settings(max_examples=150)
@given(st.lists(st.one_of(ASK, REPORT, REPORT, AGAIN), min_size=5, max_size=40))
def test_random_sequences_of_reports_are_learned_exactly_once(events: list[Any]) -> None:
    allocator, reference = small(rewards=(0.0, 1.0), patience=PATIENCE), Reference()
    decisions: list[ib.Decision] = []
    sent: list[Any] = []
    for kind, *event in [("ask", M, [True] * K, 1), *events]:
        if kind == "ask":
            users, available, passed = event
            slot = allocator.slot + passed
            decisions.append(allocator.decide(None, users, available, slot=slot))
            assert decisions[-1].slot == decisions[-1].request_id == allocator.slot == slot
            assert set(decisions[-1].channels) <= set(np.flatnonzero(available).tolist())
            assert len(set(decisions[-1].channels)) == len(decisions[-1].channels) == min(users, sum(available))
            continue
        if kind == "again":
            if not sent:
                continue
            decision, rewards, states = sent[event[0] % len(sent)]
        else:
            decision = decisions[-1 - event[0] % len(decisions)]
            count = len(decision.channels)
            rewards, states = event[1][:count], None if event[2] is None else event[2][:count]
            sent.append((decision, rewards, states))
        before = state_of(allocator)
        expected = reference.expect(decision, allocator.slot, rewards, states or [None] * len(rewards))
        if isinstance(expected, type):
            with pytest.raises(expected):
                allocator.report(decision.request_id, rewards, states)
            assert state_of(allocator) == before
        else:
            assert allocator.report(decision.request_id, rewards, states) == expected
    learned = arrays(allocator)
    for k in range(K):
        values = [value for (_, channel), value in reference.known.items() if channel == k]
        for who in ("policy", "fallback"):  # the fallback learns from the same reports
            assert learned[f"{who}.state.plays"][k] == len(values)
            assert learned[f"{who}.state.total"][k] == sum(r for r, _ in values)
        assert learned["occupancy.plays"][k].tolist() == [sum(s == side for _, s in values) for side in (0, 1)]
    counts, everything = allocator.status()["counts"], reference.known.values()
    assert counts["reported"] == len(everything)
    assert counts["reward"] == sum(r for r, _ in everything)
    assert counts["collisions"] == sum(s == 0 for _, s in everything)
    assert (counts["repeated"], counts["late"]) == (reference.repeated, reference.late)
    assert counts["decisions"] == len(decisions)
    assert counts["assigned"] == sum(len(decision.channels) for decision in decisions)


def test_partial_reports_in_any_order_give_the_state_of_a_complete_report() -> None:
    """MP-UCB's sums do not depend on the order, if they are exact."""
    whole, parts = small(rewards=(0.0, 1.0)), small(rewards=(0.0, 1.0))
    for t in range(1, 30):
        a, b = whole.decide(None), parts.decide(None)
        assert a == b
        values = {k: ((t * 5 + k * 3) % 8) / 8 for k in a.channels}
        whole.report(a.request_id, list(values.values()))
        for k in reversed(a.channels):
            assert parts.report(b.request_id, {k: values[k]}).learned == (k,)
    assert not differ(whole, parts, part="policy.state")
    assert not differ(whole, parts, part="occupancy.plays")


def test_decisions_without_reports_leave_the_policy_unchanged() -> None:
    """All channels stay untried."""
    allocator = small()
    for _ in range(50):
        allocator.decide(None)
    assert not arrays(allocator)["policy.state.plays"].any()
    assert allocator.status()["counts"]["reported"] == 0


def test_a_late_report_is_learned_with_the_contexts_of_its_slot() -> None:
    """MP-LUCB learns from pairs of a context and a perturbation, which must be the same pairs if reports are late."""
    prompt, tardy = (small("mp-lucb", feedback="perturbation", users=1) for _ in range(2))
    rng = np.random.default_rng(0)
    reports = []
    for _ in range(12):
        x = contexts(rng, prompt)
        for allocator in (prompt, tardy):
            decision = allocator.decide(x, available=[True, False, False, False])
        reports.append((decision.request_id, [1.0], [1], [float(x[0] @ [0.3, -0.2])]))
        prompt.report(*reports[-1])
    for report in reports:
        tardy.report(*report)
    ours, theirs = arrays(prompt), arrays(tardy)
    for name in ("A_inv", "theta"):
        np.testing.assert_allclose(ours[f"policy.state.{name}"], theirs[f"policy.state.{name}"], rtol=1e-12)


def test_states_that_are_left_out_are_inferred_from_rewards() -> None:
    """With two states, a reward above the middle of the range means good; with more, the nearest state counts."""
    allocator = small(users=2)
    allocator.report(allocator.decide(None).request_id, [1.0, 0.1])
    assert [channel["last_observed"] for channel in allocator.status()["channel"]] == ["idle", "busy", None, None]
    three = ib.scenario(
        transition=[[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]], rewards=[[0.0, 0.6, 1.0]], users=1,
        reward="additive", good=[[2]], context={"dimension": 1}, perturbation="none",
    )  # fmt: skip
    for paid, seen in ((0.1, "busy"), (0.7, "busy"), (0.81, "idle"), (5.0, "idle")):
        allocator = ib.Allocator("mp-ucb", scenario=three)
        allocator.report(allocator.decide(None).request_id, [paid])
        assert allocator.status()["channel"][0]["last_observed"] == seen


# --- request ids and slots -------------------------------------------------------------------------------------------


def test_a_request_id_names_a_decision() -> None:
    allocator = small()
    named = allocator.decide(None, request_id="lorry 7, 12:03")
    assert (named.request_id, named.slot) == ("lorry 7, 12:03", 1)
    assert allocator.decide(None).request_id == 2
    assert allocator.report("lorry 7, 12:03", [1.0] * M).learned == named.channels
    assert allocator.explain("lorry 7, 12:03").slot == named.slot


def test_a_repeated_request_gets_the_same_decision() -> None:
    """A client that has lost the answer can repeat its request without effect on the state."""
    allocator = small("mp-random")  # another draw each time it is asked
    rng = np.random.default_rng(0)
    x = contexts(rng, allocator)
    first = allocator.decide(x, 2, [True, True, True, False], [0, None, 1, None], request_id="a")
    for _ in range(3):
        allocator.decide(contexts(rng, allocator))
    before = state_of(allocator)
    assert allocator.decide(x, 2, [True, True, True, False], [0, None, 1, None], request_id="a") == first
    assert allocator.decide(x, 2, [True, True, True, False], [0, None, 1, None], request_id="a", slot=1) == first
    others: list[dict[str, Any]] = [
        {"contexts": x + 1e-9}, {"users": 1}, {"available": None}, {"states": [0, None, 0, None]}, {"states": None},
        {"incumbent": [0, 1]},
    ]  # fmt: skip
    question = {"contexts": x, "users": 2, "available": [True, True, True, False], "states": [0, None, 1, None]}
    for other in others:
        with pytest.raises(ib.ConflictError, match="request_id = 'a': was used before for a request with other values"):
            allocator.decide(**(question | other), request_id="a")
    assert state_of(allocator) == before


def test_conflicting_feedback_is_refused_and_changes_nothing() -> None:
    allocator = small(feedback="perturbation", users=2)
    decision = allocator.decide(None)
    allocator.report(decision.request_id, {0: 1.0}, {0: 1}, {0: 0.25})
    before = state_of(allocator)
    for feedback in (
        ([0.1, 0.1],),
        ([1.0, 0.1], [0, 0]),
        ([1.0, 0.1], [1, 0], [0.5, 0.5]),
        ({0: 1.0 - 1e-12},),
    ):
        with pytest.raises(ib.ConflictError, match="request_id = 1: other feedback was reported for channel 0 before"):
            allocator.report(decision.request_id, *feedback)
    assert state_of(allocator) == before
    assert allocator.report(decision.request_id, [1.0, 0.1], [1, None], [None, 0.5]) == ib.Receipt((1,), (0,))


def test_slot_numbers_may_be_skipped() -> None:
    allocator = small()
    assert allocator.slot == 0
    assert allocator.decide(None, slot=5).slot == 5
    assert allocator.decide(None).slot == 6
    assert allocator.decide(None, slot=1e5).slot == 100_000
    assert allocator.slot == 100_000


def test_decisions_are_forgotten_after_patience() -> None:
    allocator = small(patience=3, users=1)
    first = allocator.decide(None)
    named = allocator.decide(None, request_id="named")
    allocator.decide(None)
    assert allocator.report(first.request_id, [1.0]).learned == first.channels  # two slots ago: the last of three
    allocator.decide(None)
    with pytest.raises(ib.UnknownRequestError, match="request_id = 1: no decision of the last 3 slots has it"):
        allocator.explain(first.request_id)
    before = arrays(allocator)
    assert allocator.report(first.request_id, [0.1]) == ib.Receipt((), late=True)
    assert allocator.report(first.request_id, "whatever").late  # values of a late report are not read
    after = arrays(allocator)
    assert all(np.array_equal(before[name], after[name], equal_nan=True) for name in before)
    assert allocator.status()["counts"]["late"] == 2
    assert allocator.explain("named").slot == named.slot
    allocator.decide(None, slot=1000)  # all are gone at once
    for unknown in ("named", 4, 1001, 0, -1):
        with pytest.raises(ib.UnknownRequestError):
            allocator.explain(unknown)
    with pytest.raises(ib.UnknownRequestError):  # a name that was forgotten cannot be distinguished from one never used
        allocator.report("named", [1.0])


def test_a_loaded_allocator_forgets_decisions_after_patience() -> None:
    allocator = small(patience=3)
    allocator.decide(None)
    again = loaded(state_of(allocator))
    for _ in range(3):
        again.decide(None)
    assert again.report(1, [1.0] * M).late
    assert not again.report(2, [1.0] * M).late


# --- users and availability ------------------------------------------------------------------------------------------


def test_users_and_available_channels_vary_from_slot_to_slot() -> None:
    allocator = small(users=K)
    assert allocator.decide(None, 0).channels == ()
    assert allocator.decide(None, available=[False] * K).channels == ()
    assert allocator.decide(None, 2, [0, 1, 0, 1]).channels == (1, 3)
    assert allocator.decide(None, available=np.array([True, False, True, True])).channels == (0, 2, 3)
    assert allocator.decide(None).channels == (0, 1, 2, 3)
    assert allocator.report(1, []).learned == ()  # a decision without channels
    counts = allocator.status()["counts"]
    assert (counts["requested"], counts["assigned"]) == (0 + 4 + 2 + 4 + 4, 0 + 0 + 2 + 3 + 4)


def test_contexts_may_be_left_out_if_no_policy_uses_them() -> None:
    assert small("mp-ucb").decide(None).channels
    for seeing in ({"policy": "mp-lucb"}, {"incumbent": "mp-lucb"}, {"fallback": "mp-lucb"}):
        with pytest.raises(ib.InputError, match="contexts: must be 4 rows, one per channel, of 2 numbers each"):
            small(**seeing).decide(None)


def test_a_report_for_a_slot_without_a_decision_is_unknown() -> None:
    """It is not late: there was no decision."""
    allocator = small(patience=20)
    allocator.decide(None, request_id="mine")  # slot 1
    allocator.decide(None, slot=10)
    for strange in (1, 5, 11, 0, -1):
        with pytest.raises(ib.UnknownRequestError):
            allocator.report(strange, [1.0, 1.0])
    allocator.decide(None, slot=31)
    assert allocator.report(10, [1.0, 1.0]).late


# --- status ---------------------------------------------------------------------------------------------------------


def test_status_describes_counts_the_last_decision_and_each_channel() -> None:
    allocator = small(users=2)
    assert allocator.status()["last"] is None
    decision = allocator.decide(None)
    allocator.report(decision.request_id, [1.0, 0.25], [1, 0])
    allocator.vacate([3])
    snapshot = allocator.status()
    assert snapshot["policy"] == "mp-ucb"
    assert snapshot["last"] == {"request_id": 1, "channels": (0, 1), "slot": 1, "by": "policy", "proposed": (0, 1)}
    one, two, _, four = snapshot["channel"]
    assert one == {
        "channel": 0, "name": None, "belief": 1.0, "plays": 1, "mean_reward": 1.0,
        "last_observed": "idle", "last_observed_slot": 1, "vacated": False,
    }  # fmt: skip
    assert (two["belief"], two["mean_reward"], two["last_observed"]) == (0.0, 0.25, "busy")
    assert (four["belief"], four["mean_reward"], four["last_observed"], four["vacated"]) == (0.5, None, None, True)
    assert snapshot["counts"]["reward"] == 1.25
    assert snapshot["counts"]["collisions"] == 1
    assert repr(allocator) == "Allocator(mp-ucb: 4 channels, 2 users, slot 1)"


def test_mp_ucb_finds_the_one_idle_channel() -> None:
    """A channel with reward 0.1 is played while 0.1 + sqrt(1.5 ln t / plays) exceeds the index of the best channel,
    which is above 1: at most 1.5 ln 3000 / 0.81 + 1 times."""
    allocator = small(users=1)
    for _ in range(3000):
        decision = allocator.decide(None)
        (k,) = decision.channels
        allocator.report(decision.request_id, [1.0 if k == 2 else 0.1])
    assert allocator.status()["channel"][2]["plays"] >= 3000 - 3 * (1.5 * math.log(3000) / 0.81 + 1)


# --- copies and forks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_a_copy_shares_nothing(make: Any) -> None:
    allocator = ib.Allocator("mp-lucb", channels=3, users=2, dimension=2, channel_names=["a", "b", "c"])
    decision = allocator.decide(np.full((3, 2), 0.5))
    allocator.report(decision.request_id, [1.0, None])
    allocator.report(decision.request_id, [1.0, None])
    copied, before, status = make(allocator), state_of(allocator), allocator.status()
    assert (state_of(copied), copied.status()) == (before, status)
    copied.report(decision.request_id, [None, 0.1])
    copied.decide(np.full((3, 2), 0.25))
    copied.vacate([2])
    assert (state_of(allocator), allocator.status()) == (before, status)


def in_child(action: Any) -> str:
    """Return what an action returns in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(action()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        found = file.read()
    os.waitpid(child, 0)
    return found


def test_a_policy_with_a_deadline_works_in_a_forked_process() -> None:
    allocator = ib.Allocator("mp-ucb", channels=3, users=2, deadline=60.0)
    for _ in range(20):
        decision = allocator.decide()
        allocator.report(decision.request_id, [1.0, 0.1])  # may be pending at the fork

    def more() -> str:
        decisions = [allocator.decide() for _ in range(3)]
        for one in decisions:
            allocator.report(one.request_id, [1.0, 0.1])
        return f"{[one.by for one in decisions]} {allocator.policy_failure} {state_of(allocator).hex()}"

    found = in_child(more)
    assert found.startswith("['policy', 'policy', 'policy']  ")
    assert found == more()  # in this process


def test_a_fork_waits_for_a_call_in_another_thread() -> None:
    allocator = ib.Allocator("mp-ucb", channels=3, users=2)
    allocator._lock.acquire()
    threading.Timer(0.2, allocator._lock.release).start()
    assert in_child(lambda: allocator.decide().channels) == "(0, 1)"
    assert allocator.decide().slot == 1


def test_work_that_was_pending_at_a_fork_puts_the_policy_out_of_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idleband.allocator.supervisor.SETTLE_TIMEOUT", 0.0)
    allocator = ib.Allocator("mp-ucb", channels=3, users=2, deadline=60.0)
    allocator.decide()
    go = threading.Event()
    supervisor = allocator._core.supervisor
    supervisor._submit(lambda: go.wait(60))
    monkeypatch.setattr(supervisor, "settle", lambda: None)  # as if it had waited in vain

    def again() -> str:
        monkeypatch.undo()
        first = f"{allocator.decide().by}: {allocator.policy_failure}"
        allocator.reset()
        return f"{first}; {allocator.decide().by}"

    found = in_child(again)
    go.set()
    assert found == "fallback: slot 2: the process was forked while the policy had pending tasks; policy"
    assert allocator.decide().by == "policy"


# --- steps ------------------------------------------------------------------------------------------------------------


X = np.random.default_rng(0).random((20, K, 2))


def test_step_is_report_and_decide() -> None:
    one, other = small("mp-lucb"), small("mp-lucb")
    found = one.step(decide={"contexts": X[0]})
    assert found == ib.StepResult(None, other.decide(X[0]))
    for i in range(1, 20):
        assert found.decision is not None
        report = {"request_id": found.decision.request_id, "rewards": [(1 + i % 3) / 4] * M}
        found = one.step(report, {"contexts": X[i]})
        assert found.receipt == other.report(**report)
        assert found.decision == other.decide(X[i])
    assert state_of(one) == state_of(other)


@pytest.mark.parametrize(
    ("report", "decide", "error", "message"),
    [
        (None, None, ib.InputError, "one of them must be given"),
        ({"request_id": 1}, None, ib.InputError, "report: rewards must be given"),
        ({"request_id": 1, "rewards": [1.0] * M, "state": []}, None, ib.InputError, "did you mean 'states'"),
        ({"request_id": 1, "rewards": [1.0] * M}, {"context": []}, ib.InputError, "did you mean 'contexts'"),
        ({"request_id": 1, "rewards": [1.0] * M}, {"contexts": [[math.inf] * 2] * K}, ib.InputError, "contexts.0"),
        (
            {"request_id": 1, "rewards": [1.0] * M},
            {"contexts": [[0] * 2] * K, "request_id": "a"},
            ib.ConflictError,
            "'a'",
        ),
        ({"request_id": 1, "rewards": [9.0] * M}, {"contexts": [[0] * 2] * K}, ib.InputError, "rewards: 9"),
        ({"request_id": 7, "rewards": [1.0] * M}, {"contexts": [[0] * 2] * K}, ib.UnknownRequestError, "7"),
        (3, None, ib.InputError, "report = 3"),
    ],
)
def test_refused_step_changes_nothing(report: Any, decide: Any, error: type[Exception], message: str) -> None:
    allocator = small("mp-lucb")
    allocator.decide(X[0])
    allocator.decide(X[1], request_id="a")
    before = state_of(allocator)
    with pytest.raises(error, match=message):
        allocator.step(report, decide)
    assert state_of(allocator) == before
