"""One allocator whose changes can be replayed.

Every method that changes the allocator returns its answer and a `Change`, or None where nothing changed; `step` returns
two of them, for one transaction. The caller writes the changes to the journal, and sends the answer to the client after
they are committed.
"""

import json
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
import numpy as np

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import DecideRequest, Decision, Receipt, RecordedDecision, Report, StepResult
from idleband.allocator.settings import Settings
from idleband.errors import ConflictError, IdlebandError, InputError, UnknownRequestError, shown
from idleband.service.journal import DECIDE, LATE, REPORT, RESET, RESTORE, VACATE, Change, Event, Snapshot, Stored
from idleband.service.slot_thread import SlotThread


class Decisions(Protocol):
    """Decisions of the journal that are not in the state any more."""

    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        """Return the DECIDE event with this request_id if it is kept."""

    def is_expired(self, allocator: int, request_id: str) -> bool:
        """Return whether there was one that is not kept any more."""


class _DecideBody(msgspec.Struct, array_like=True):
    """Body of a DECIDE event: the request and the decision."""

    slot: int
    users: int
    contexts: bytes
    available: bytes
    sensed: bytes
    incumbent: tuple[int, ...] | None
    channels: tuple[int, ...]
    by: str
    proposed: tuple[int, ...] | None
    policy_failure: str


class _ReportBody(msgspec.Struct, array_like=True):
    """Body of a REPORT event: one value per channel of the decision, NaN where there is none."""

    rewards: bytes
    states: bytes
    perturbations: bytes


class _ChannelsBody(msgspec.Struct, array_like=True):
    """Body of a VACATE or RESTORE event."""

    channels: tuple[int, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_decide = msgspec.msgpack.Decoder(_DecideBody).decode
_decode_report = msgspec.msgpack.Decoder(_ReportBody).decode
_decode_channels = msgspec.msgpack.Decoder(_ChannelsBody).decode


class JournaledAllocator:
    """One allocator of a journal, restored from its snapshot and the events after it."""

    def __init__(
        self,
        stored: Stored,
        snapshot: Snapshot | None,
        events: Iterable[Event],
        decisions: Decisions,
        where: str,
        core: AllocatorCore | None = None,  # of a new allocator
    ) -> None:
        self.number, self.name = stored.number, stored.name
        self.thread: SlotThread | None = None  # if it does not run in the event loop
        self._decisions = decisions
        self._status: dict[str, Any] = {}
        place = f"{where}: allocator {stored.name}"
        if snapshot is not None:
            self.core = AllocatorCore.from_bytes(snapshot.state, place)
        else:
            self.core = core or AllocatorCore(Settings.restored(json.loads(stored.settings)))
        self.snapshot_seq = 0 if snapshot is None else snapshot.seq  # number of the last event in the snapshot
        self.seq = self.snapshot_seq  # number of the last event
        self.core.replaying = True
        for event in events:
            try:
                self._replay(event)
            except (msgspec.DecodeError, IdlebandError, ValueError, IndexError) as error:
                raise InputError(f"{place}: event {event.seq} cannot be read: {error}") from None
            self.seq = event.seq
        self.core.replaying = False
        self.replayed = self.uncovered  # events applied to the snapshot

    @property
    def uncovered(self) -> int:
        """Number of events that are not in the snapshot."""
        return self.seq - self.snapshot_seq

    def _replay(self, event: Event) -> None:
        core = self.core
        if event.kind == DECIDE:
            core.decide(*self._read_decision(event))
        elif event.kind == REPORT:
            body = _decode_report(event.body)
            assert event.request_id is not None
            core.learn(Report(event.request_id, *map(_floats, (body.rewards, body.states, body.perturbations))))
        elif event.kind == LATE:
            core.count_late()
        elif event.kind == VACATE:
            core.vacate(core.channel_indices(_decode_channels(event.body).channels))
        elif event.kind == RESTORE:
            core.restore(core.channel_indices(_decode_channels(event.body).channels))
        elif event.kind == RESET:
            core.reset()

    def _read_decision(self, event: Event) -> tuple[DecideRequest, RecordedDecision]:
        settings, body, request_id = self.core.settings, _decode_decide(event.body), event.request_id
        assert request_id is not None
        request = DecideRequest(
            request_id,
            body.slot,
            body.users,
            _floats(body.contexts).reshape(settings.channels, settings.dimension),
            np.frombuffer(body.available, np.bool_).copy(),
            np.frombuffer(body.sensed, np.int64).copy(),
            body.incumbent,
        )
        decision = Decision(request_id, body.channels, body.slot, body.by, body.proposed)
        return request, RecordedDecision(decision, body.policy_failure)

    def decide(
        self,
        contexts: Any,
        users: Any = None,
        available: Any = None,
        states: Any = None,
        *,
        request_id: str,
        slot: int | None = None,
        incumbent: Any = None,
    ) -> tuple[Decision, Change | None]:
        """Decide, or return the earlier decision with this request_id for as long as the journal keeps it.

        Afterwards the request_id is refused: it is never decided twice.
        """
        request, earlier = self._parse_decide(
            contexts, users, available, states, request_id=request_id, slot=slot, incumbent=incumbent
        )
        return self._decide(request) if earlier is None else (earlier, None)

    def _parse_decide(
        self, contexts: Any = None, users: Any = None, available: Any = None, states: Any = None, *,
        request_id: str, slot: int | None = None, incumbent: Any = None,
    ) -> tuple[DecideRequest, Decision | None]:  # fmt: skip
        """Check the arguments of `decide`; return the request, and the earlier decision if there is one."""
        core = self.core
        earlier = None if core.has_decision(request_id) else self._decisions.find_decision(self.number, request_id)
        if earlier is not None:
            slot = None  # the slot of the earlier decision has passed
        request = core.parse_decide(
            contexts, users, available, states, request_id=request_id, slot=slot, incumbent=incumbent
        )
        if earlier is not None:
            asked, recorded = self._read_decision(earlier)
            if not request.same_as(asked):
                raise ConflictError(
                    f"request_id = {shown(request_id)}: was used before for a request with other values"
                )
            return request, recorded.decision
        if core.has_decision(request_id):
            return request, core.decide(request)
        if self._decisions.is_expired(self.number, request_id):
            raise ConflictError(
                f"request_id = {shown(request_id)}: was used before, for a decision that is too old to be kept; nothing"
                " is decided again; a new decision needs a new request_id"
            )
        return request, None

    def _decide(self, request: DecideRequest) -> tuple[Decision, Change]:
        """Take a new decision."""
        core, request_id = self.core, str(request.request_id)
        decision = core.decide(request)
        body = _DecideBody(
            request.slot, request.users, request.contexts.tobytes(), request.available.tobytes(),
            request.sensed.tobytes(), request.incumbent, decision.channels, decision.by, decision.proposed,
            core.record(request_id).policy_failure,
        )  # fmt: skip
        return decision, Change(self.number, DECIDE, request_id, _encode(body))

    def parse_report(
        self, request_id: str, rewards: Any, states: Any = None, perturbations: Any = None
    ) -> Report | None:
        """Check the feedback for a decision; return None if it is late."""
        if self.core.has_decision(request_id):
            return self.core.parse_report(request_id, rewards, states, perturbations)
        if self._decisions.find_decision(self.number, request_id) is None:
            raise UnknownRequestError(f"request_id = {shown(request_id)}: no decision with this request_id is kept")
        return None

    def report(self, request_id: str, report: Report | None) -> tuple[Receipt, Change | None]:
        """Learn from checked feedback; count it as late if it is None."""
        if report is None:
            return self.core.count_late(), Change(self.number, LATE, request_id, b"")
        receipt = self.core.learn(report)
        if not receipt.learned:
            return receipt, None
        body = _ReportBody(report.rewards.tobytes(), report.states.tobytes(), report.perturbations.tobytes())
        return receipt, Change(self.number, REPORT, request_id, _encode(body))

    def step(
        self, report: dict[str, Any] | None, decide: dict[str, Any] | None
    ) -> tuple[tuple[StepResult, Report | None], Change | None, Change | None]:
        """Learn from feedback and decide, given the arguments of both, or neither if one is refused.

        Returns the checked feedback with the answer; it is None if there is none or it is late.
        """
        checked = None if report is None else self.parse_report(**report)
        request, decision = (None, None) if decide is None else self._parse_decide(**decide)
        # From here on only the feedback may be refused, which changes nothing then.
        if report is not None and request is not None and decision is None:
            self.core.check_decide(request)
        receipt, learned, decided = None, None, None
        if report is not None:
            receipt, learned = self.report(report["request_id"], checked)
        if request is not None and decision is None:
            decision, decided = self._decide(request)
        return (StepResult(receipt, decision), checked), learned, decided

    def status(self) -> dict[str, Any]:
        """Return the status; while the allocator is busy in its thread, an earlier one."""
        if self.thread is None or not (self.thread.busy and self._status):
            self._status = self.core.status()
        return self._status

    def vacate(self, channels: Any) -> tuple[tuple[int, ...], Change]:
        """Vacate channels; return those of them that the last decision assigned."""
        indices = self.core.channel_indices(channels)
        return self.core.vacate(indices), Change(self.number, VACATE, None, _encode(_ChannelsBody(indices)))

    def restore(self, channels: Any) -> tuple[None, Change]:
        """Allow vacated channels again."""
        indices = self.core.channel_indices(channels)
        self.core.restore(indices)
        return None, Change(self.number, RESTORE, None, _encode(_ChannelsBody(indices)))

    def reset(self) -> tuple[None, Change]:
        """Restart the policy without anything learned."""
        self.core.reset()
        return None, Change(self.number, RESET, None, b"")


def _floats(data: bytes) -> Any:
    return np.frombuffer(data, np.float64).copy()
