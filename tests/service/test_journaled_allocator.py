"""Exactly once: whatever is repeated, delayed, reordered or killed, the state is that of an allocator which was told
every acknowledged event once, in order, and never stopped."""

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

import idleband as ib
from idleband.allocator import supervisor
from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, RecordedDecision
from idleband.allocator.settings import Settings
from idleband.service.journal import JournalError
from idleband.service.manager import AllocatorManager
from tests.allocator.helpers import plain

K, M, D, PATIENCE = 4, 2, 2, 6
LATE = 0.005  # seconds
POLICIES = ("mp-belief-lucb", "mp-lucb-rca", "mp-swucb", "mp-ts")


def made(policy: str, deadline: float | None) -> Settings:
    given = {"policy": policy, "channels": K, "users": M, "dimension": D, "patience": PATIENCE, "deadline": deadline}
    return Settings.checked(given)


class ExactlyOnce(RuleBasedStateMachine):
    """An office that is committed now and then and killed at any time, beside a plain allocator.

    A client is told of an event when it is committed. So what happened after the last commit is gone with a kill, and
    the client, who was not told, says it again or not.
    """

    requests = Bundle("requests")

    @initialize(policy=st.sampled_from(POLICIES), deadline=st.sampled_from((None, 60.0, LATE)))
    def begin(self, policy: str, deadline: float | None) -> None:
        """With a deadline the policy works in a thread of its own: never too late if it has a minute, and the same in
        the end. With a short one it is late now and then, when it waits at a gate, or by chance."""
        self.folder = Path(tempfile.mkdtemp())
        self.gate = threading.Event()
        self.gate.set()
        if deadline == LATE:
            plain(lambda slot, picks: self.gate.wait(60.0) and None)
            policy = "plain"
        self.settings = made(policy, deadline)
        self.office = AllocatorManager(self.folder, keep=40, snapshot_every=15)
        self.office.open("main", self.settings)
        self.reference = AllocatorCore(self.settings)
        self.reference.replaying = True  # it is told who was late
        self.unacknowledged: list[Callable[[], Any]] = []  # what the reference is to be told at the next commit
        self.asked: dict[str, dict[str, Any]] = {}  # acknowledged questions
        self.answers: dict[str, Decision] = {}
        self.number = 0

    @property
    def desk(self) -> Any:
        return self.office.desks["main"]

    def kept(self, request: str) -> bool:
        """Whether a decision was acknowledged, or may still be, and is not too old to be asked about."""
        desk = self.desk
        known = desk.allocator.has_decision(request) or self.office.journal.decision(desk.number, request) is not None
        return known and request in self.answers

    @rule(
        target=requests, seed=st.integers(0, 2**32), users=st.integers(0, M), jump=st.integers(1, 3),
        late=st.booleans(), incumbent=st.sampled_from((None, None, [], [2, 0, 1])),
    )  # fmt: skip
    def decide(self, seed: int, users: int, jump: int, late: bool, incumbent: list[int] | None) -> str:
        random = np.random.default_rng(seed)
        self.number += 1
        request = f"r{self.number}"
        question = {
            "contexts": random.random((K, D)).tolist(),
            "users": users,
            "available": (random.random(K) < 0.8).tolist(),
            "states": [int(s) if s >= 0 else None for s in random.integers(-3, 2, K)],
            "slot": self.desk.allocator.slot + jump,
            "incumbent": incumbent,
        }
        if late:
            self.gate.clear()
        self.answers[request] = self.desk.decide(request, **question)
        self.gate.set()
        self.asked[request] = question
        record = self.desk.allocator.record(request)
        then = RecordedDecision(record.decision, record.policy_failure) if self.settings.deadline == LATE else None
        self.unacknowledged.append(
            lambda: self.reference.decide(self.reference.parse_decide(request_id=request, **question), then)
        )
        return request

    @rule(request=requests)
    def ask_again(self, request: str) -> None:
        """The same answer, whether the question is acknowledged or was lost and is asked anew."""
        if self.kept(request):
            assert self.desk.decide(request, **self.asked[request]) == self.answers[request]

    @rule(request=requests)
    def ask_something_else(self, request: str) -> None:
        if self.kept(request):
            other = {**self.asked[request], "contexts": np.full((K, D), 0.123).tolist()}
            with pytest.raises(ib.ConflictError):
                self.desk.decide(request, **other)

    @rule(request=requests, seed=st.integers(0, 2**32), part=st.integers(0, 3))
    def report(self, request: str, seed: int, part: int) -> None:
        """In any order, whole or in part, as late as may be; and the same twice."""
        if not self.kept(request):
            return
        channels = self.answers[request].channels
        # What a channel returned does not depend on when it is reported: the same feedback comes again and again.
        said = {k: ((k + self.answers[request].slot) % 2) for i, k in enumerate(channels) if not part >> i & 1}
        rewards, states = {k: (0.1, 1.0)[s] for k, s in said.items()}, said
        before = self.desk.allocator.slot
        receipt = self.desk.report(request, rewards, states)
        again = self.desk.report(request, rewards, states)
        late = self.answers[request].slot <= before - PATIENCE
        assert receipt.late == again.late == late
        if late:
            self.unacknowledged += [self.reference.count_late, self.reference.count_late]
        else:
            assert set(receipt.learned) | set(receipt.repeated) == set(again.repeated) == set(said)
            self.unacknowledged.append(lambda: self._learn(request, rewards, states))

    def _learn(self, request: str, rewards: dict[int, float], states: dict[int, int]) -> None:
        self.reference.learn(self.reference.parse_report(request, rewards, states))

    @rule(request=requests)
    def contradict(self, request: str) -> None:
        """What was reported stands; the other is refused and nothing of it is learned."""
        if request not in self.answers or not self.desk.allocator.has_decision(request):
            return
        for k in self.answers[request].channels:
            truth = (k + self.answers[request].slot) % 2
            if self.desk.report(request, {k: (0.1, 1.0)[truth]}, {k: truth}).learned:
                self.unacknowledged.append(
                    lambda k=k, s=truth: self._learn(request, {k: (0.1, 1.0)[s]}, {k: s})
                )
            with pytest.raises(ib.ConflictError):
                self.desk.report(request, {k: (1.0, 0.1)[truth]}, {k: 1 - truth})

    @rule(channel=st.integers(0, K - 1), leave=st.booleans())
    def vacate(self, channel: int, leave: bool) -> None:
        if leave:
            self.desk.vacate([channel])
            self.unacknowledged.append(lambda: self.reference.vacate((channel,)))
        else:
            self.desk.restore([channel])
            self.unacknowledged.append(lambda: self.reference.restore((channel,)))

    @rule()
    def reset(self) -> None:
        self.desk.reset()
        self.unacknowledged.append(self.reference.reset)

    @rule()
    def commit(self) -> None:
        self.office.commit()
        self._acknowledge()

    def _acknowledge(self) -> None:
        for event in self.unacknowledged:
            event()
        self.unacknowledged.clear()

    @rule()
    def kill(self) -> None:
        """The object is dropped unclosed: what was not committed is gone."""
        self.office.journal.close()  # its files, as the end of a process does
        self.office = AllocatorManager(self.folder, keep=40, snapshot_every=15)
        self._lose()

    def _lose(self) -> None:
        """What was not acknowledged did not happen."""
        self.unacknowledged.clear()
        slot = self.desk.allocator.slot
        self.answers = {request: answer for request, answer in self.answers.items() if answer.slot <= slot}

    @rule()
    def restart(self) -> None:
        self.office.close()
        self._acknowledge()
        self.office = AllocatorManager(self.folder, keep=40, snapshot_every=15)

    @rule()
    def fail(self) -> None:
        """The disk is full: nothing is acknowledged, and desks are made anew."""
        self.office.journal._writer.execute("PRAGMA max_page_count = 1")  # no more than there are
        try:
            self.office.commit()
        except JournalError:
            self.office.reload()
            self._lose()
        else:  # there was room within the pages
            self._acknowledge()
        self.office.journal._writer.execute("PRAGMA max_page_count = 1000000000")

    @invariant()
    def same_state(self) -> None:
        if not self.unacknowledged:
            assert self.desk.allocator.to_bytes() == self.reference.to_bytes()

    def teardown(self) -> None:
        if hasattr(self, "office"):
            self.office.commit()
            self._acknowledge()
            assert self.desk.allocator.to_bytes() == self.reference.to_bytes()
            self.office.journal.close()
            shutil.rmtree(self.folder)


# --- a policy with a deadline, gone through again ---------------------------------------------------------------------


def restarted(office: AllocatorManager, folder: Path) -> AllocatorManager:
    """After a kill; and both say the same of themselves."""
    before = office.desks["main"].allocator.status()
    office.journal.close()
    office = AllocatorManager(folder)
    assert office.desks["main"].replayed
    assert office.desks["main"].allocator.status() == before
    return office


def hanging(folder: Path, gate: threading.Event, first: int, deadline: float = 0.5) -> AllocatorManager:
    """With a policy that hangs from a slot on, and is in time before."""
    plain(lambda slot, picks: None)
    core = AllocatorCore(made("plain", None))
    core.decide(core.parse_decide(np.zeros((K, D))))  # what it uses is compiled
    plain(lambda slot, picks: gate.wait(60.0) and None if slot.t >= first else None)
    office = AllocatorManager(folder)
    office.open("main", made("plain", deadline))
    return office


def test_who_was_late_is_late_again(tmp_path: Path) -> None:
    """Also where nobody asked for a channel, or an incumbent said which."""
    gate = threading.Event()
    office = hanging(tmp_path, gate, first=2)
    desk, x = office.desks["main"], np.zeros((K, D)).tolist()
    desk.decide("in time", x)
    answers = [desk.decide("late", x), desk.decide("for nobody", x, users=0), desk.decide("told", x, incumbent=[3])]
    assert [answer.by for answer in answers] == ["fallback", "fallback", "incumbent"]
    assert all(answer.proposed is None for answer in answers)
    assert desk.allocator.status()["counts"]["missed_deadlines"] == 3
    office.commit()
    gate.set()  # what it does when there is time for it
    desk = restarted(office, tmp_path).desks["main"]
    assert [desk.allocator.record(answer.request_id).decision for answer in answers] == answers
    assert desk.decide("again", x).by == "policy"


def test_who_is_out_of_service_for_being_behind_stays_so(tmp_path: Path) -> None:
    gate = threading.Event()
    office = hanging(tmp_path, gate, first=1, deadline=1e-4)
    desk, x = office.desks["main"], np.zeros((K, D)).tolist()
    for i in range(supervisor.MAX_PENDING + 2):
        desk.decide(f"r{i}", x)
    assert "1000 pending tasks" in desk.allocator.policy_failure
    office.commit()
    gate.set()
    desk = restarted(office, tmp_path).desks["main"]
    assert desk.decide("next", x).by == "fallback"
    desk.reset()
    assert not desk.allocator.policy_failure


def test_who_hangs_again_does_not_keep_it_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "REPLAY_TIMEOUT", 1.0)
    gate = threading.Event()
    office = hanging(tmp_path, gate, first=2)
    desk, x = office.desks["main"], np.zeros((K, D)).tolist()
    answers = [desk.decide(f"r{i}", x) for i in range(4)]
    office.commit()
    office.journal.close()
    office = AllocatorManager(tmp_path)
    allocator = office.desks["main"].allocator
    assert allocator.policy_failure == "slot 2: a task took more than 1 s"
    assert [allocator.record(f"r{i}").decision for i in range(4)] == answers
    assert office.desks["main"].decide("next", x).by == "fallback"
    gate.set()
    office.close()


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = settings(max_examples=60, stateful_step_count=40)
