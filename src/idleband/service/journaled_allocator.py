"""A desk: one allocator and its journal. What it answers is as durable as the events that it hands to its caller."""

import json
from typing import Any, Protocol

import msgspec
import numpy as np

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import DecideRequest, Decision, Receipt, RecordedDecision, Report
from idleband.allocator.settings import Settings
from idleband.errors import ConflictError, IdlebandError, InputError, UnknownRequestError, shown
from idleband.service.journal import DECIDE, LATE, REPORT, RESET, RESTORE, VACATE, Event, Journal, Stored


class _Decided(msgspec.Struct, array_like=True):
    """A decision as the journal keeps it: the question, then the answer."""

    slot: int
    users: int
    x: bytes
    available: bytes
    sensed: bytes
    incumbent: tuple[int, ...] | None
    channels: tuple[int, ...]
    by: str
    proposed: tuple[int, ...] | None
    broken: str


class _Reported(msgspec.Struct, array_like=True):
    rewards: bytes
    states: bytes
    perturbations: bytes


class _Channels(msgspec.Struct, array_like=True):
    channels: tuple[int, ...]


_packed = msgspec.msgpack.Encoder().encode
_decided = msgspec.msgpack.Decoder(_Decided).decode
_reported = msgspec.msgpack.Decoder(_Reported).decode
_channels = msgspec.msgpack.Decoder(_Channels).decode


class Events(Protocol):
    """Where events go, and where decisions that an allocator has forgotten are found again."""

    def append(self, allocator: int, kind: int, request: str | None, body: bytes) -> None: ...

    def decision(self, allocator: int, request: str) -> Event | None: ...


class JournaledAllocator:
    """One allocator under its name. Each call that changes it appends an event; it is acknowledged to a client when
    that event is committed, and not before."""

    def __init__(self, stored: Stored, journal: Journal, events: Events) -> None:
        self.number, self.name = stored.number, stored.name
        self._events = events
        place = f"{journal.path}: allocator {stored.name}"
        if stored.state is not None:
            self.allocator = AllocatorCore.from_bytes(stored.state, place)
        else:
            self.allocator = AllocatorCore(Settings.restored(json.loads(stored.settings)))
        self.replayed = 0
        self.allocator.replaying = True
        for event in journal.events(stored.number, stored.seq):
            try:
                self._replay(event)
            except (msgspec.DecodeError, IdlebandError, ValueError, IndexError) as error:
                raise InputError(f"{place}: event {event.seq} cannot be read: {error}") from None
            self.replayed += 1
        self.allocator.replaying = False

    def _replay(self, event: Event) -> None:
        allocator = self.allocator
        if event.kind == DECIDE:
            ask, then = self._read(event)
            allocator.decide(ask, then)
        elif event.kind == REPORT:
            said = _reported(event.body)
            assert event.request is not None
            allocator.learn(Report(event.request, *map(_floats, (said.rewards, said.states, said.perturbations))))
        elif event.kind == LATE:
            allocator.count_late()
        elif event.kind == VACATE:
            allocator.vacate(_channels(event.body).channels)
        elif event.kind == RESTORE:
            allocator.restore(_channels(event.body).channels)
        elif event.kind == RESET:
            allocator.reset()

    def _read(self, event: Event) -> tuple[DecideRequest, RecordedDecision]:
        s, kept, request = self.allocator.settings, _decided(event.body), event.request
        assert request is not None
        ask = DecideRequest(
            request,
            kept.slot,
            kept.users,
            _floats(kept.x).reshape(s.channels, s.dimension),
            np.frombuffer(kept.available, np.bool_).copy(),
            np.frombuffer(kept.sensed, np.int64).copy(),
            kept.incumbent,
        )
        return ask, RecordedDecision(Decision(request, kept.channels, kept.slot, kept.by, kept.proposed), kept.broken)

    # --- what clients ask --------------------------------------------------------------------------------------------

    def decide(self, request: str, contexts: Any, **more: Any) -> Decision:
        """An answer; the same to the same question under the same name, for as long as it is kept."""
        allocator = self.allocator
        new = not allocator.has_decision(request)
        if new and (event := self._events.decision(self.number, request)) is not None:
            asked, then = self._read(event)
            if not allocator.parse_decide(contexts, request_id=request, **{**more, "slot": None}).same_as(asked):
                raise ConflictError(f"request = {shown(request)}: was used for another question before")
            return then.decision
        ask = allocator.parse_decide(contexts, request_id=request, **more)
        decision = allocator.decide(ask)
        if new:
            self._events.append(self.number, DECIDE, request, _packed(_Decided(
                ask.slot, ask.users, ask.contexts.tobytes(), ask.available.tobytes(), ask.sensed.tobytes(),
                ask.incumbent, decision.channels, decision.by, decision.proposed,
                allocator.record(request).policy_failure,
            )))  # fmt: skip
        return decision

    def report(self, request: str, rewards: Any, states: Any = None, perturbations: Any = None) -> Receipt:
        allocator = self.allocator
        if not allocator.has_decision(request):
            if self._events.decision(self.number, request) is None:
                raise UnknownRequestError(f"request = {shown(request)}: there is no such decision, or not any more")
            self._events.append(self.number, LATE, request, b"")
            return allocator.count_late()
        said = allocator.parse_report(request, rewards, states, perturbations)
        receipt = allocator.learn(said)
        if receipt.learned:
            body = _Reported(said.rewards.tobytes(), said.states.tobytes(), said.perturbations.tobytes())
            self._events.append(self.number, REPORT, request, _packed(body))
        return receipt

    def vacate(self, channels: Any) -> tuple[int, ...]:
        indices = self.allocator.channel_indices(channels)
        left = self.allocator.vacate(indices)
        self._events.append(self.number, VACATE, None, _packed(_Channels(indices)))
        return left

    def restore(self, channels: Any) -> None:
        indices = self.allocator.channel_indices(channels)
        self.allocator.restore(indices)
        self._events.append(self.number, RESTORE, None, _packed(_Channels(indices)))

    def reset(self) -> None:
        self.allocator.reset()
        self._events.append(self.number, RESET, None, b"")


def _floats(data: bytes) -> Any:
    return np.frombuffer(data, np.float64).copy()
