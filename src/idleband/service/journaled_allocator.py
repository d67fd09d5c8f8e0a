"""A desk: one allocator and its journal. What it answers is as durable as the events that it hands to its caller."""

import json
from typing import Any, Protocol

import msgspec
import numpy as np

from idleband.allocator.allocator import Allocator
from idleband.allocator.events import Ask, Conflict, Decided, Decision, Receipt, Report, Unknown
from idleband.allocator.settings import Settings
from idleband.errors import InputError, shown
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
            self.allocator = Allocator.from_bytes(stored.state, place)
        else:
            self.allocator = Allocator.of(Settings.restored(json.loads(stored.settings)))
        self.replayed = 0
        self.allocator.replay(True)
        for event in journal.events(stored.number, stored.seq):
            try:
                self._replay(event)
            except (msgspec.DecodeError, ValueError, IndexError) as error:
                raise InputError(f"{place}: event {event.seq} cannot be read: {error}") from None
            self.replayed += 1
        self.allocator.replay(False)

    def _replay(self, event: Event) -> None:
        allocator = self.allocator
        if event.kind == DECIDE:
            ask, then = self._read(event)
            allocator.decide(ask, then)
        elif event.kind == REPORT:
            said = _reported(event.body)
            assert event.request is not None
            allocator.take(Report(event.request, *map(_floats, (said.rewards, said.states, said.perturbations))))
        elif event.kind == LATE:
            allocator.late()
        elif event.kind == VACATE:
            allocator.vacate(_channels(event.body).channels)
        elif event.kind == RESTORE:
            allocator.restore(_channels(event.body).channels)
        elif event.kind == RESET:
            allocator.reset()

    def _read(self, event: Event) -> tuple[Ask, Decided]:
        s, kept, request = self.allocator.settings, _decided(event.body), event.request
        assert request is not None
        ask = Ask(
            request,
            kept.slot,
            kept.users,
            _floats(kept.x).reshape(s.channels, s.dimension),
            np.frombuffer(kept.available, np.bool_).copy(),
            np.frombuffer(kept.sensed, np.int64).copy(),
            kept.incumbent,
        )
        return ask, Decided(Decision(request, kept.channels, kept.slot, kept.by, kept.proposed), kept.broken)

    # --- what clients ask --------------------------------------------------------------------------------------------

    def decide(self, request: str, contexts: Any, **more: Any) -> Decision:
        """An answer; the same to the same question under the same name, for as long as it is kept."""
        allocator = self.allocator
        new = not allocator.remembers(request)
        if new and (event := self._events.decision(self.number, request)) is not None:
            asked, then = self._read(event)
            if not allocator.ask(contexts, id=request, **{**more, "slot": None}).same_as(asked):
                raise Conflict(f"request = {shown(request)}: was used for another question before")
            return then.decision
        ask = allocator.ask(contexts, id=request, **more)
        decision = allocator.decide(ask)
        if new:
            self._events.append(self.number, DECIDE, request, _packed(_Decided(
                ask.slot, ask.users, ask.x.tobytes(), ask.available.tobytes(), ask.sensed.tobytes(), ask.incumbent,
                decision.channels, decision.by, decision.proposed, allocator.decided(request).broken,
            )))  # fmt: skip
        return decision

    def report(self, request: str, rewards: Any, states: Any = None, perturbations: Any = None) -> Receipt:
        allocator = self.allocator
        if not allocator.remembers(request):
            if self._events.decision(self.number, request) is None:
                raise Unknown(f"request = {shown(request)}: there is no such decision, or not any more")
            self._events.append(self.number, LATE, request, b"")
            return allocator.late()
        said = allocator.parse(allocator.decision(request), rewards, states, perturbations)
        receipt = allocator.take(said)
        if receipt.learned:
            body = _Reported(said.rewards.tobytes(), said.states.tobytes(), said.perturbations.tobytes())
            self._events.append(self.number, REPORT, request, _packed(body))
        return receipt

    def vacate(self, channels: Any) -> tuple[int, ...]:
        left = self.allocator.vacate(channels)
        self._events.append(self.number, VACATE, None, _packed(_Channels(tuple(channels))))
        return left

    def restore(self, channels: Any) -> None:
        self.allocator.restore(channels)
        self._events.append(self.number, RESTORE, None, _packed(_Channels(tuple(channels))))

    def reset(self) -> None:
        self.allocator.reset()
        self._events.append(self.number, RESET, None, b"")


def _floats(data: bytes) -> Any:
    return np.frombuffer(data, np.float64).copy()
