"""Exactly-once semantics of a journaled allocator.

Whatever is repeated, delayed, reordered or killed: the state is that of an allocator which applied every acknowledged
event once, in order, and never stopped.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from idleband.allocator import supervisor
from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, Receipt, RecordedDecision
from idleband.allocator.settings import Settings
from idleband.errors import ConflictError, IdlebandError
from idleband.service.journal import JournalError
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.manager import AllocatorManager
from tests.allocator.helpers import plain

K, M, D, PATIENCE = 4, 2, 2, 6
SHORT_DEADLINE = 0.005  # seconds
REFUSALS = ("", "", "decide", "report", "conflict")  # which part of a step is refused
POLICIES = ("mp-belief-lucb", "mp-lucb-rca", "mp-swucb", "mp-ts")


def made(policy: str, deadline: float | None) -> Settings:
    given = {"policy": policy, "channels": K, "users": M, "dimension": D, "patience": PATIENCE, "deadline": deadline}
    return Settings.checked(given)


def report(
    manager: AllocatorManager, allocator: JournaledAllocator, request_id: str, rewards: Any, states: Any = None
) -> Receipt:
    return manager.report(allocator, request_id, allocator.parse_report(request_id, rewards, states))


class ExactlyOnce(RuleBasedStateMachine):
    """A manager that commits now and then and is killed at any time, beside a core that never stops.

    An event is acknowledged when it is committed. A kill loses the events after the last commit, and the client, which
    got no answer, repeats them or not.
    """

    request_ids = Bundle("request_ids")

    @initialize(policy=st.sampled_from(POLICIES), deadline=st.sampled_from((None, 60.0, SHORT_DEADLINE)))
    def begin(self, policy: str, deadline: float | None) -> None:
        """With a deadline the policy runs in a thread. It never misses one of a minute. It misses a short one whenever
        it has to wait for an event, and perhaps at other times."""
        self.folder = Path(tempfile.mkdtemp())
        self.may_select = threading.Event()
        self.may_select.set()
        if deadline == SHORT_DEADLINE:
            plain(lambda slot, picks: self.may_select.wait(60.0) and None)
            policy = "plain"
        self.settings = made(policy, deadline)
        self.manager = AllocatorManager(self.folder, keep=40, snapshot_every=15)
        self.manager.open("main", self.settings)
        self.reference = AllocatorCore(self.settings)
        self.reference.replaying = True  # missed deadlines are given to it
        self.unacknowledged: list[Callable[[], Any]] = []  # calls of the reference for the next commit
        self.requests: dict[str, dict[str, Any]] = {}
        self.decisions: dict[str, Decision] = {}
        self.number = 0

    @property
    def allocator(self) -> JournaledAllocator:
        return self.manager.allocators["main"]

    def is_kept(self, request_id: str) -> bool:
        """Return whether a decision was acknowledged, or still may be, and has not been deleted."""
        allocator, commits = self.allocator, self.manager.commits  # a decision may have left the state unwritten
        known = (
            allocator.core.has_decision(request_id) or commits.find_decision(allocator.number, request_id) is not None
        )
        return known and request_id in self.decisions

    def reference_report(self, request_id: str, rewards: Any, states: Any) -> None:
        self.reference.learn(self.reference.parse_report(request_id, rewards, states))

    @rule(
        target=request_ids, seed=st.integers(0, 2**32), users=st.integers(0, M), jump=st.integers(1, 3),
        late=st.booleans(), incumbent=st.sampled_from((None, None, [], [2, 0, 1])),
    )  # fmt: skip
    def decide(self, seed: int, users: int, jump: int, late: bool, incumbent: list[int] | None) -> str:
        random = np.random.default_rng(seed)
        self.number += 1
        request_id = f"r{self.number}"
        request: dict[str, Any] = {
            "contexts": random.random((K, D)).tolist(),
            "users": users,
            "available": (random.random(K) < 0.8).tolist(),
            "states": [int(s) if s >= 0 else None for s in random.integers(-3, 2, K)],
            "slot": self.allocator.core.slot + jump,
            "incumbent": incumbent,
            "request_id": request_id,
        }
        if late:
            self.may_select.clear()
        self.decisions[request_id] = self.manager.decide(self.allocator, **request)
        self.may_select.set()
        self.requests[request_id] = request
        self._reference_decides(request_id)
        return request_id

    @rule(request_id=request_ids)
    def repeat_decide(self, request_id: str) -> None:
        """The decision is the same, whether it was acknowledged or lost and requested again, or it is refused."""
        if self.is_kept(request_id):
            repeated = self.manager.decide(self.allocator, **self.requests[request_id])
            assert repeated == self.decisions[request_id]
        elif request_id in self.decisions:
            with pytest.raises(ConflictError, match="too old to be kept"):
                self.manager.decide(self.allocator, **{**self.requests[request_id], "slot": None})

    @rule(request_id=request_ids)
    def decide_with_other_contexts(self, request_id: str) -> None:
        if self.is_kept(request_id):
            other = {**self.requests[request_id], "contexts": np.full((K, D), 0.123).tolist()}
            with pytest.raises(ConflictError):
                self.manager.decide(self.allocator, **other)

    @rule(request_id=request_ids, part=st.integers(0, 3))
    def report(self, request_id: str, part: int) -> None:
        """In any order, complete or in part, in time or late; and the same twice."""
        if not self.is_kept(request_id):
            return
        decision = self.decisions[request_id]
        # Feedback depends on the slot and the channel only: repeated reports are equal.
        states = {k: (k + decision.slot) % 2 for i, k in enumerate(decision.channels) if not part >> i & 1}
        rewards = {k: (0.1, 1.0)[s] for k, s in states.items()}
        late = decision.slot <= self.allocator.core.slot - PATIENCE
        receipt = report(self.manager, self.allocator, request_id, rewards, states)
        again = report(self.manager, self.allocator, request_id, rewards, states)
        assert receipt.late == again.late == late
        if late:
            self.unacknowledged += [self.reference.count_late, self.reference.count_late]
        else:
            assert set(receipt.learned) | set(receipt.repeated) == set(again.repeated) == set(states)
            self.unacknowledged.append(lambda: self.reference_report(request_id, rewards, states))

    @rule(target=request_ids, reported=request_ids, repeat=st.integers(1, 2), refused=st.sampled_from(REFUSALS))
    def step(self, reported: str, repeat: int, refused: str) -> str:
        """Feedback for one decision together with the next one; neither, if one of them is refused."""
        self.number += 1
        request_id = f"r{self.number}"
        asked = {"contexts": np.full((K, D), self.number % 7 / 7).tolist(), "request_id": request_id}
        if not self.is_kept(reported):
            self.decisions[request_id] = self.manager.decide(self.allocator, **asked)
            self.requests[request_id] = asked
            self._reference_decides(request_id)
            return request_id
        decision = self.decisions[reported]
        states = {k: (k + decision.slot) % 2 for k in decision.channels}
        report = {"request_id": reported, "rewards": {k: (0.1, 1.0)[s] for k, s in states.items()}, "states": states}
        late = decision.slot <= self.allocator.core.slot - PATIENCE
        wrong = {
            "decide": (report, {**asked, "contexts": np.full((K, D), np.inf).tolist()}),
            "report": ({**report, "rewards": dict.fromkeys(states, 7.0)}, asked),
            "conflict": (report, {**asked, "slot": 1}),
        }
        if refused and not (refused == "report" and (late or not states)):
            before, events = self.allocator.core.snapshot()(), self.allocator.seq
            with pytest.raises(IdlebandError):
                self.manager.step(self.allocator, *wrong[refused])
            assert (self.allocator.core.snapshot()(), self.allocator.seq) == (before, events)
        for i in range(repeat):
            found, _ = self.manager.step(self.allocator, report, asked)
            assert found.receipt is not None
            assert found.decision is not None
            if i == 0:
                self.decisions[request_id] = found.decision
            assert found.decision == self.decisions[request_id]
            # The first decision of the step may have made the feedback late.
            now_late = decision.slot <= self.allocator.core.slot - PATIENCE if i else late
            assert found.receipt.late == now_late
            if now_late:
                self.unacknowledged.append(self.reference.count_late)
            elif i == 0:
                assert set(found.receipt.learned) | set(found.receipt.repeated) == set(states)
                self.unacknowledged.append(lambda: self.reference_report(reported, report["rewards"], states))
            if i == 0:
                self.requests[request_id] = asked
                self._reference_decides(request_id)
        return request_id

    def _reference_decides(self, request_id: str) -> None:
        request, record = self.requests[request_id], self.allocator.core.record(request_id)
        recorded = None
        if self.settings.deadline == SHORT_DEADLINE:
            recorded = RecordedDecision(record.decision, record.policy_failure)
        self.unacknowledged.append(lambda: self.reference.decide(self.reference.parse_decide(**request), recorded))

    @rule(request_id=request_ids)
    def contradict(self, request_id: str) -> None:
        """Feedback that contradicts an earlier report is refused, and nothing of it is learned."""
        if request_id not in self.decisions or not self.allocator.core.has_decision(request_id):
            return
        for k in self.decisions[request_id].channels:
            state = (k + self.decisions[request_id].slot) % 2
            rewards, states = {k: (0.1, 1.0)[state]}, {k: state}
            if report(self.manager, self.allocator, request_id, rewards, states).learned:
                self.unacknowledged.append(lambda r=rewards, s=states: self.reference_report(request_id, r, s))
            with pytest.raises(ConflictError):
                report(self.manager, self.allocator, request_id, {k: (1.0, 0.1)[state]}, {k: 1 - state})

    @rule(channel=st.integers(0, K - 1), leave=st.booleans())
    def vacate(self, channel: int, leave: bool) -> None:
        if leave:
            self.manager.vacate(self.allocator, [channel])
            self.unacknowledged.append(lambda: self.reference.vacate((channel,)))
        else:
            self.manager.restore(self.allocator, [channel])
            self.unacknowledged.append(lambda: self.reference.restore((channel,)))

    @rule()
    def reset(self) -> None:
        self.manager.reset(self.allocator)
        self.unacknowledged.append(self.reference.reset)

    @rule()
    def commit(self) -> None:
        self.manager.commit()
        self._acknowledge()

    def _acknowledge(self) -> None:
        for event in self.unacknowledged:
            event()
        self.unacknowledged.clear()

    @rule()
    def kill(self) -> None:
        """The manager is dropped without being closed; events that were not committed are lost."""
        self.manager.journal.close()  # only the files, as the end of a process does
        self.manager = AllocatorManager(self.folder, keep=40, snapshot_every=15)
        self._lose()

    def _lose(self) -> None:
        """Forget what was not acknowledged."""
        self.unacknowledged.clear()
        slot = self.allocator.core.slot
        self.decisions = {name: decision for name, decision in self.decisions.items() if decision.slot <= slot}

    @rule()
    def restart(self) -> None:
        self.manager.close()
        self._acknowledge()
        self.manager = AllocatorManager(self.folder, keep=40, snapshot_every=15)

    @rule()
    def close_allocator(self) -> None:
        """It is opened again by the next request, also if its policy has not finished."""
        self.commit()
        self.manager.forget(self.allocator)

    @rule()
    def fill_the_disk(self) -> None:
        """Nothing is acknowledged while the disk is full; allocators are restored from the journal."""
        self.manager.journal._writer.execute("PRAGMA max_page_count = 1")  # no more pages than there are
        try:
            self.manager.commit()
        except JournalError:
            self.manager.reload()
            self._lose()
        else:  # the existing pages had room
            self._acknowledge()
        self.manager.journal._writer.execute("PRAGMA max_page_count = 1000000000")

    @invariant()
    def state_is_that_of_the_reference(self) -> None:
        if not self.unacknowledged:
            assert self.allocator.core.snapshot()() == self.reference.snapshot()()

    def teardown(self) -> None:
        if hasattr(self, "manager"):
            self.manager.commit()
            self._acknowledge()
            self.state_is_that_of_the_reference()
            self.manager.journal.close()
            shutil.rmtree(self.folder)


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = settings(max_examples=25, stateful_step_count=30)  # studies/exactly_once.py has thousands


# --- replay of a policy with a deadline -------------------------------------------------------------------------------

CONTEXTS = np.zeros((K, D)).tolist()


def restarted(manager: AllocatorManager, folder: Path) -> AllocatorManager:
    """Restart after a kill; the status must be the same."""
    before = manager.allocators["main"].core.status()
    manager.journal.close()
    manager = AllocatorManager(folder)
    assert manager.allocators["main"].replayed
    assert manager.allocators["main"].core.status() == before
    return manager


def hanging(folder: Path, may_select: threading.Event, first: int, deadline: float = 0.5) -> AllocatorManager:
    """Return a manager with a policy that waits for an event from slot `first` on."""
    plain(lambda slot, picks: None)
    core = AllocatorCore(made("plain", None))
    core.decide(core.parse_decide(CONTEXTS))  # compiles what it uses
    plain(lambda slot, picks: may_select.wait(60.0) and None if slot.t >= first else None)
    manager = AllocatorManager(folder)
    manager.open("main", made("plain", deadline))
    return manager


def test_replay_repeats_missed_deadlines(tmp_path: Path) -> None:
    """Also for a request of no users and one with an incumbent."""
    may_select = threading.Event()
    manager = hanging(tmp_path, may_select, first=2)
    allocator = manager.allocators["main"]
    manager.decide(allocator, CONTEXTS, request_id="in time")
    decisions = [
        manager.decide(allocator, CONTEXTS, request_id="late"),
        manager.decide(allocator, CONTEXTS, users=0, request_id="no users"),
        manager.decide(allocator, CONTEXTS, request_id="incumbent", incumbent=[3]),
    ]
    assert [decision.by for decision in decisions] == ["fallback", "fallback", "incumbent"]
    assert all(decision.proposed is None for decision in decisions)
    assert allocator.core.status()["counts"]["missed_deadlines"] == 3
    manager.commit()
    may_select.set()
    manager = restarted(manager, tmp_path)
    allocator = manager.allocators["main"]
    assert [allocator.core.record(decision.request_id).decision for decision in decisions] == decisions
    assert manager.decide(allocator, CONTEXTS, request_id="next").by == "policy"


def test_replay_keeps_a_policy_out_of_service_that_was_behind(tmp_path: Path) -> None:
    may_select = threading.Event()
    manager = hanging(tmp_path, may_select, first=1, deadline=1e-4)
    allocator = manager.allocators["main"]
    for i in range(supervisor.MAX_PENDING + 2):
        manager.decide(allocator, CONTEXTS, request_id=f"r{i}")
    assert allocator.core.policy_failure
    manager.commit()
    may_select.set()
    manager = restarted(manager, tmp_path)
    allocator = manager.allocators["main"]
    assert manager.decide(allocator, CONTEXTS, request_id="next").by == "fallback"
    manager.reset(allocator)
    assert not allocator.core.policy_failure


def test_policy_that_hangs_in_replay_does_not_prevent_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "REPLAY_TIMEOUT", 1.0)
    may_select = threading.Event()
    manager = hanging(tmp_path, may_select, first=2)
    allocator = manager.allocators["main"]
    decisions = [manager.decide(allocator, CONTEXTS, request_id=f"r{i}") for i in range(4)]
    manager.commit()
    manager.journal.close()
    manager = AllocatorManager(tmp_path)
    allocator = manager.allocators["main"]
    assert allocator.core.policy_failure.startswith("slot 2: ")
    assert [allocator.core.record(f"r{i}").decision for i in range(4)] == decisions
    assert manager.decide(allocator, CONTEXTS, request_id="next").by == "fallback"
    may_select.set()
    manager.close()
