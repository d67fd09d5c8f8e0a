"""One allocator whose changes can be replayed.

Every method that changes the allocator returns its answer and a `Change`, or None where nothing changed; `step` returns
two of them, for one transaction. The caller writes the changes to the journal, and sends the answer to the client after
they are committed.
"""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import DecideRequest, Decision, Receipt, Report, StepResult
from idleband.allocator.settings import Settings
from idleband.errors import ConflictError, IdlebandError, InputError, UnknownRequestError, shown
from idleband.service.event_bodies import (
    channels_body,
    decision_body,
    read_channels,
    read_decision,
    read_report,
    report_body,
)
from idleband.service.journal import (
    CHANGE,
    DECIDE,
    LATE,
    REPORT,
    RESET,
    RESTORE,
    VACATE,
    Change,
    Event,
    Snapshot,
    Stored,
    change_body,
    read_change,
)
from idleband.service.slot_thread import SlotThread

OBJECTS_BYTES = 100_000  # of an allocator beside its arrays and records; half of it is what the page shows
MAX_STATE_BYTES = 9 * 10**8  # of an allocator; a snapshot takes about as much memory while it is written


class Decisions(Protocol):
    """Decisions of the journal that are not in the state any more."""

    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        """Return the DECIDE event with this request_id if it is kept."""

    def is_expired(self, allocator: int, request_id: str) -> bool:
        """Return whether there was one that is not kept any more, or one of an earlier allocator of this name."""


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
        self.number, self.name = stored.number, stored.name  # the manager changes the name
        self._first_settings = stored.first_settings
        self.thread: SlotThread | None = None  # if it does not run in the event loop
        self.timed = 0  # number of requests whose processor time is to be taken, because one has taken long
        self._decisions = decisions
        self._status: dict[str, Any] = {}
        place = f"{where}: allocator {stored.name}"
        if snapshot is not None:
            self.core = AllocatorCore.from_bytes(snapshot.state, place)
        else:
            self.core = core or AllocatorCore(Settings.restored(json.loads(stored.first_settings)))
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
        self._fixed_size = OBJECTS_BYTES + self.core.fixed_size
        self._record_size = self.core.record_size

    @property
    def size(self) -> int:
        """Estimate of the bytes of memory that the allocator takes, with what the page shows of it."""
        return self._fixed_size + len(self.core.records) * self._record_size

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way in a thread of the allocator or of its policy."""
        return (self.thread is None or self.thread.calls == 0) and self.core.supervisor.is_idle

    @property
    def uncovered(self) -> int:
        """Number of events that are not in the snapshot."""
        return self.seq - self.snapshot_seq

    def _replay(self, event: Event) -> None:
        core = self.core
        if event.kind == DECIDE:
            core.decide(*read_decision(event, core.settings)[:2])
        elif event.kind == REPORT:
            core.learn(read_report(event))
        elif event.kind == LATE:
            core.count_late()
        elif event.kind == VACATE:
            core.vacate(core.channel_indices(read_channels(event)))
        elif event.kind == RESTORE:
            core.restore(core.channel_indices(read_channels(event)))
        elif event.kind == RESET:
            core.reset()
        elif event.kind == CHANGE:
            settings = Settings.restored(json.loads(read_change(event.body)[1]))
            if settings != core.settings:
                core.change_settings(settings)

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
            asked, recorded, _ = read_decision(earlier, core.settings)
            if not request.same_as(asked):
                raise ConflictError(
                    f"request_id = {shown(request_id)}: was used before for a request with other values"
                )
            return request, recorded.decision
        if core.has_decision(request_id):
            return request, core.decide(request)
        if self._decisions.is_expired(self.number, request_id):
            raise ConflictError(
                f"request_id = {shown(request_id)}: was used before, for a decision that is too old to be kept, or of"
                " an earlier allocator of this name; nothing is decided again; a new decision needs a new request_id"
            )
        return request, None

    def _decide(self, request: DecideRequest) -> tuple[Decision, Change]:
        """Take a new decision."""
        core, request_id = self.core, str(request.request_id)
        decision = core.decide(request)
        record = core.record(request_id)
        body = decision_body(request, decision, record.policy_failure, record.allowed, core.propensities, time.time())
        return decision, Change(self.number, DECIDE, request_id, body)

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
        return receipt, Change(self.number, REPORT, request_id, report_body(report))

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
        return self.core.vacate(indices), Change(self.number, VACATE, None, channels_body(indices))

    def restore(self, channels: Any) -> tuple[None, Change]:
        """Allow vacated channels again."""
        indices = self.core.channel_indices(channels)
        self.core.restore(indices)
        return None, Change(self.number, RESTORE, None, channels_body(indices))

    def reset(self) -> tuple[None, Change]:
        """Restart the policy without anything learned."""
        self.core.reset()
        return None, Change(self.number, RESET, None, b"")

    def change(self, name: str, given: Mapping[str, Any]) -> tuple[None, Change | None]:
        """Use another name or other settings from now on, or both. The manager sets the name."""
        settings = self.core.settings.changed(given) if given else self.core.settings
        if settings != self.core.settings:
            check_size(name, self.core, settings.patience)
            self.core.change_settings(settings)
        elif name == self.name:
            return None, None
        return None, Change(self.number, CHANGE, None, change_body(name, json.dumps(settings.to_dict())))

    def agrees_with(self, settings: Settings) -> bool:
        """Return whether each of these settings is that of the allocator, at present or when it was created."""
        present = self.core.settings
        return settings == present or agree(settings, present, Settings.restored(json.loads(self._first_settings)))


def agree(settings: Settings, *allowed: Settings) -> bool:
    """Return whether each of some settings is one of those allowed."""
    tables = [one.to_dict() for one in allowed]
    return all(any(value == one[key] for one in tables) for key, value in settings.to_dict().items())


def check_size(name: str, core: AllocatorCore, patience: int) -> None:
    """Refuse an allocator that is too large for a snapshot when it keeps so many decisions."""
    size = core.fixed_size + patience * core.record_size
    if size > MAX_STATE_BYTES:
        raise InputError(
            f"allocator {name}: its state may take {size / 1e9:.1f} GB; must be at most {MAX_STATE_BYTES / 1e9:g} GB:"
            " use fewer channels, a smaller dimension, less patience or another policy"
        )
