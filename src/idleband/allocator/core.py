"""The deterministic core of an allocator: decisions and reports change its state, and nothing else does.

Given the same requests in the same order, two cores end in the same state, bit for bit. A journal of the requests is
therefore sufficient to restore one. A core has no lock: its caller makes sure that one thread uses it at a time.

A decide request goes through `parse_decide` and `decide`, a report through `parse_report` and `learn`. The parse
methods check values and change nothing. Time is counted in slots; each decision takes one.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from idleband import validation
from idleband.allocator import inputs, occupancy, serialization, slot_kernels, status
from idleband.allocator.events import (
    FALLBACK,
    INCUMBENT,
    POLICY,
    DecideRequest,
    Decision,
    DecisionRecord,
    Receipt,
    RecordedDecision,
    Report,
    RequestId,
)
from idleband.allocator.explanation import Explanation, explanation
from idleband.allocator.learner import Learner, leaves
from idleband.allocator.settings import Settings
from idleband.allocator.supervisor import SETTLE_TIMEOUT, Supervisor
from idleband.arrays import Floats, Ints
from idleband.channels import channel_indices, channel_label
from idleband.errors import ConflictError, IdlebandError, InputError, UnknownRequestError, counted, shown
from idleband.kernels import compile
from idleband.kernels.interrupt import interruptible
from idleband.kernels.packed_state import PackedState, pack
from idleband.policies.protocol import CONTEXTS_SEEN, PARAMETERS, STATES_SEEN
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.perturbation import perturb
from idleband.scenario.user_models import FAULT, UserModel

# Limits of slots that callers give: a slot that is far ahead by mistake must not use up all later ones.
MAX_SLOT_STEP = 2**32  # from the last slot; more than the seconds since 1970
MAX_SLOT = 2**52  # counting on from there is exact in every language


class AllocatorCore:
    """An allocator without a lock, with separate steps for checking and applying requests."""

    def __init__(self, settings: Settings) -> None:
        K, knows = settings.channels, settings.configured.policy.knows
        self.settings = settings
        self.supervisor = Supervisor(settings, lambda: _new_learner(settings, settings.configured))
        self.fallback = _new_learner(settings, policy(settings.fallback))
        self.incumbent = None if settings.incumbent is None else _new_learner(settings, policy(settings.incumbent))
        self.occupancy = occupancy.new_occupancy(K)
        self.counts = dict.fromkeys(status.COUNTS, 0)
        self.repeated = 0  # repeated feedback; not saved, because it does not change the state
        self.slot = 0  # of the last decision; 0 before the first
        self.records: dict[RequestId, DecisionRecord] = {}
        self.propensities: Floats | None = None  # of the last decision; None if they are not known
        self._oldest = 0  # slot of the oldest record, or an earlier one
        self._vacated = np.zeros(K, np.bool_)
        self._copies: list[weakref.ref[serialization.StateCopy]] = []  # which may share the records

        packed = pack((settings.setup, self.occupancy))
        self._occupancy_block = packed.block
        self._begin_slot = _occupancy_kernel(occupancy.begin_slot, packed)
        self._take_feedback = _occupancy_kernel(occupancy.take_feedback, packed)
        self._place = np.zeros(1, np.int64)

        self._knows_parameters, self._sees_states = PARAMETERS in knows, STATES_SEEN in knows
        self._sees_contexts = any({CONTEXTS_SEEN, PARAMETERS} & one.configured.policy.knows for one in self.learners())
        self._all_available = np.ones(K, np.bool_)
        self._not_sensed = np.full(K, -1, np.int64)
        self._not_measured = np.full(K, np.nan)
        self._no_contexts = np.zeros((K, settings.dimension))
        self._no_feedback = np.full((3, K), np.nan)

    def learners(self) -> list[Learner]:
        """Return the policy, the fallback and, if there is one, the incumbent."""
        return [one for one in (self.supervisor.learner, self.fallback, self.incumbent) if one is not None]

    # --- decide ------------------------------------------------------------------------------------------------------

    def parse_decide(
        self,
        contexts: Any,
        users: Any = None,
        available: Any = None,
        states: Any = None,
        *,
        request_id: str | None = None,
        slot: int | None = None,
        incumbent: Any = None,
    ) -> DecideRequest:
        """Check the arguments of `Allocator.decide`."""
        s = self.settings
        name = None if request_id is None else inputs.request_name(request_id)
        if slot is None:
            slot = self.slot + 1
        elif name not in self.records:
            slot = validation.whole(slot, "slot", self.slot + 1, max(MAX_SLOT, self.slot + 1))
            if slot > self.slot + MAX_SLOT_STEP:
                raise ConflictError(
                    f"slot = {slot}: is too far from the last slot, {self.slot}; must be at most"
                    f" {self.slot + MAX_SLOT_STEP}"
                )
        if states is None and self._sees_states:
            raise InputError(f"states: must be given; policy {s.policy} observes all states before it selects")
        omitted = contexts is None and not self._sees_contexts
        return DecideRequest(
            slot if name is None else name,
            slot,
            s.users if users is None else validation.whole(users, "users", 0, s.users),
            self._no_contexts if omitted else inputs.contexts(contexts, s.channels, s.dimension),
            self._all_available if available is None else inputs.flags(available, s.channels, "available"),
            self._not_sensed if states is None else inputs.states(states, s.setup),
            None if incumbent is None else self.channel_indices(incumbent, "incumbent"),
        )

    def decide(self, request: DecideRequest, recorded: RecordedDecision | None = None) -> Decision:
        """Decide a request, or return the decision that was taken for the same request before.

        In a replay, `recorded` is the decision that the journal stores; it overrides what is decided now.
        """
        earlier = self._earlier_decision(request)
        if earlier is not None:
            return earlier
        s, t = self.settings, request.slot
        allowed, terms = np.empty(s.channels, np.bool_), np.empty((s.channels, slot_kernels.TERMS))
        place = self._begin_slot(
            self._occupancy_block, t, request.users, s.collision_limit, request.contexts, request.available,
            self._vacated, request.sensed, allowed, terms,
        )  # fmt: skip
        if place >= 0:
            raise _context_error(request, int(place))
        self.slot = t
        if self._oldest <= t - s.patience:
            self._forget(t - s.patience)
        perturbations = self._perturbations(request) if self._knows_parameters else self._not_measured
        view = (t, request.users, request.contexts, allowed, request.sensed, perturbations)
        proposed, failure = self.supervisor.propose(view, terms, recorded)
        by, channels = POLICY, proposed
        if request.incumbent is not None:
            by, channels = INCUMBENT, np.array([k for k in request.incumbent if allowed[k]][: request.users], np.int64)
        elif self.incumbent is not None:
            by, channels = INCUMBENT, self._select(self.incumbent, view, np.empty_like(terms))
        elif channels is None:
            by, channels = FALLBACK, self._select(self.fallback, view, terms)
        # A policy that proposed in time has nothing left to do in its thread, so that its arrays do not change.
        self.propensities = self.supervisor.learner.propensities if proposed is channels else None
        assigned = tuple(channels.tolist())
        selected = assigned if proposed is channels else None if proposed is None else tuple(proposed.tolist())
        decision = Decision(request.request_id, assigned, t, by, selected)
        if recorded is not None and decision != recorded.decision:  # another version of the policy decided then
            decision = recorded.decision
            channels = np.array(decision.channels, np.int64)
        self.records[request.request_id] = DecisionRecord(
            request, decision, allowed, perturbations, terms, channels,
            self._no_feedback[:, : len(decision.channels)].copy(), failure,
        )  # fmt: skip
        self._count(request, decision, failure)
        return decision

    def check_decide(self, request: DecideRequest) -> None:
        """Raise what `decide` would raise for a request. Nothing is changed."""
        if self._earlier_decision(request) is None:
            within = np.abs(request.contexts) <= occupancy.MAX_NUMBER
            if not within.all():
                raise _context_error(request, int(np.argmin(within)))

    def _earlier_decision(self, request: DecideRequest) -> Decision | None:
        """Return the decision that was taken for the same request before; None if there is none."""
        record = self.records.get(request.request_id)
        if record is None:
            return None
        if not request.same_as(record.request):
            raise ConflictError(
                f"request_id = {shown(request.request_id)}: was used before for a request with other values"
            )
        return record.decision

    def _count(self, request: DecideRequest, decision: Decision, failure: str) -> None:
        counts, assigned = self.counts, len(decision.channels)
        counts["decisions"] += 1
        counts["requested"] += request.users
        counts["assigned"] += assigned
        if decision.proposed is None and not failure:
            counts["missed_deadlines"] += 1
        if decision.by == FALLBACK:
            counts["fallback"] += 1
        elif decision.by == INCUMBENT:
            counts["shadowed"] += assigned
            counts["agreed"] += len(set(decision.channels) & set(decision.proposed or ()))

    def _forget(self, last: int) -> None:
        """Remove the records of all slots up to `last`."""
        records = self.records
        while records:
            oldest = next(iter(records))
            self._oldest = records[oldest].request.slot
            if self._oldest > last:
                return
            del records[oldest]

    def _select(self, learner: Learner, view: tuple[Any, ...], terms: Floats) -> Ints:
        """Return the selection of the fallback or the incumbent."""
        picks = np.empty(self.settings.channels, np.int64)
        count = learner.choose(learner.block, *view, picks, terms)
        if count < 0:  # it failed too: assign the first channels that are allowed
            _, users, _, allowed, *_ = view
            return np.flatnonzero(allowed)[:users]
        return picks[:count]

    def _perturbations(self, request: DecideRequest) -> Floats:
        """Return the perturbations, without noise, that the scenario's model computes from contexts, for an oracle."""
        scenario, theta = self.settings.built_scenario, self.settings.theta(request.slot)
        assert scenario is not None  # the settings of an oracle have a scenario
        model = scenario.perturbation.model
        found = np.empty(len(request.contexts))
        run = model.kernel.within if isinstance(model, UserModel) else perturb
        run(model.number, theta, request.contexts, found, np.zeros(FAULT))
        return found

    # --- report ------------------------------------------------------------------------------------------------------

    def parse_report(
        self, request_id: RequestId, rewards: Any, states: Any = None, perturbations: Any = None
    ) -> Report:
        """Check the arguments of `Allocator.report`."""
        decision = self.record(request_id).decision
        if perturbations is not None and not self.settings.setup.measured:
            raise InputError("perturbations: must be left out; this allocator has feedback = 'reward'")
        names, unknown = self.settings.channel_names, self._not_measured[: len(decision.channels)]
        return Report(
            decision.request_id,
            inputs.feedback(rewards, decision, names, "rewards"),
            unknown if states is None else inputs.feedback(states, decision, names, "states"),
            unknown if perturbations is None else inputs.feedback(perturbations, decision, names, "perturbations"),
        )

    def learn(self, report: Report) -> Receipt:
        """Learn from the feedback that is new. A report for a forgotten decision is counted as late."""
        record = self.records.get(report.request_id)
        if record is None:
            return self.count_late()
        if self._copies:
            record = self._own_record(record)
        request, channels, feedback = record.request, record.channels, record.feedback
        new = np.empty(len(channels), np.bool_)
        count = self._take_feedback(
            self._occupancy_block, request.slot, channels, report.rewards, report.states, report.perturbations,
            feedback, new, self._place,
        )  # fmt: skip
        if count < 0:
            raise self._feedback_error(count, report, record)
        if count:
            arguments = (
                request.slot, request.users, request.contexts, record.allowed, request.sensed, record.perturbations,
                channels, new, feedback,
            )  # fmt: skip
            self.supervisor.learn(arguments)
            for one in (self.fallback, self.incumbent):
                if one is not None:
                    one.learn(one.block, *arguments)
        if count == len(channels):
            return Receipt(record.decision.channels)
        repeated = ~np.isnan(report.rewards) & ~new
        self.repeated += int(repeated.sum())
        return Receipt(tuple(channels[new].tolist()), tuple(channels[repeated].tolist()))

    def _own_record(self, record: DecisionRecord) -> DecisionRecord:
        """Return a record with feedback that no copy of the state shares."""
        self._copies = [one for one in self._copies if (copy := one()) is not None and not copy.released]
        if self._copies:
            record = record._replace(feedback=record.feedback.copy())
            self.records[record.request.request_id] = record
        return record

    def count_late(self) -> Receipt:
        """Count a report for a decision that is not kept any more."""
        self.counts["late"] += 1
        return Receipt((), late=True)

    def _feedback_error(self, code: int, report: Report, record: DecisionRecord) -> IdlebandError:
        i, setup = int(self._place[0]), self.settings.setup
        k = int(record.channels[i])
        channel = f"channel {channel_label(k, self.settings.channel_names)}"
        if code == occupancy.CONFLICT:
            return ConflictError(
                f"request_id = {shown(report.request_id)}: other feedback was reported for {channel} before"
            )
        if code == occupancy.BAD_REWARD:
            limits = (
                f"from {setup.low:g} to {setup.high:g}" if setup.threshold else f"of at most {occupancy.MAX_NUMBER:g}"
            )
            return InputError(f"rewards: {report.rewards[i]:g} for {channel}: must be a number {limits}")
        if code == occupancy.BAD_STATE:
            return InputError(
                f"states: {report.states[i]:g} for {channel}: must be a whole number from 0 to {setup.states[k] - 1}"
            )
        if code == occupancy.BAD_PERTURBATION:
            return InputError(
                f"perturbations: {report.perturbations[i]:g} for {channel}: must be a number of at most"
                f" {occupancy.MAX_NUMBER:g} in size"
            )
        return InputError(f"rewards: none for {channel}, which has other feedback; must be given with it")

    # --- safety ------------------------------------------------------------------------------------------------------

    def channel_indices(self, channels: Any, field: str = "channels") -> tuple[int, ...]:
        """Check channels that are given by index or by name, and return their indices."""
        return channel_indices(channels, self.settings.channels, self.settings.channel_names, field)

    def vacate(self, channels: tuple[int, ...]) -> tuple[int, ...]:
        """Exclude channels from assignment. Return those that the last decision assigned."""
        self._vacated[list(channels)] = True
        last = next(reversed(self.records.values()), None)
        return () if last is None else tuple(k for k in last.decision.channels if k in channels)

    def restore(self, channels: tuple[int, ...]) -> None:
        """Allow the assignment of channels again."""
        self._vacated[list(channels)] = False

    @property
    def vacated(self) -> tuple[int, ...]:
        """Indices of the vacated channels."""
        return tuple(np.flatnonzero(self._vacated).tolist())

    @property
    def policy_failure(self) -> str:
        """Why the policy is out of service and the fallback decides; empty if it is in service."""
        return self.supervisor.failure

    def reset(self) -> None:
        """Put the policy back into service in its initial state."""
        self.supervisor.reset()

    # --- decisions that are kept -------------------------------------------------------------------------------------

    def has_decision(self, request_id: RequestId) -> bool:
        """Return whether a decision is kept, so that feedback for it can be learned."""
        return request_id in self.records

    def record(self, request_id: RequestId) -> DecisionRecord:
        """Return the record of a decision of the last `patience` slots."""
        try:
            return self.records[request_id]
        except (KeyError, TypeError):
            slots = counted(self.settings.patience, "slot")
            raise UnknownRequestError(
                f"request_id = {shown(request_id)}: no decision of the last {slots} has it"
            ) from None

    def is_late(self, request_id: RequestId) -> bool:
        """Return whether a slot number is that of a decision that is not kept any more."""
        if not isinstance(request_id, int) or request_id in self.records:
            return False
        return 1 <= request_id <= self.slot - self.settings.patience

    def explain(self, request_id: RequestId) -> Explanation:
        """Explain a decision of the last `patience` slots."""
        record = self.record(request_id)
        learner = self.fallback if record.decision.by == FALLBACK else self.supervisor.learner
        return explanation(self.settings, learner, record)

    def status(self) -> dict[str, Any]:
        """Return the present state as plain data."""
        last = next(reversed(self.records.values()), None)
        return status.status(
            self.settings, self.slot, self.policy_failure, {**self.counts, "repeated": self.repeated},
            None if last is None else last.decision, self.occupancy, self._vacated,
        )  # fmt: skip

    # --- snapshots ---------------------------------------------------------------------------------------------------

    @property
    def replaying(self) -> bool:
        """Whether journal events are being replayed; deadlines do not apply then."""
        return self.supervisor.replaying

    @replaying.setter
    def replaying(self, value: bool) -> None:
        self.supervisor.replaying = value

    def snapshot(self, timeout: float = SETTLE_TIMEOUT) -> serialization.StateCopy:
        """Copy the state. The returned copy may be serialized in another thread, once.

        Raises PolicyBusyError if the policy still has work to do after `timeout` seconds.
        """
        self.supervisor.settle(timeout)
        header = {
            "settings": self.settings.to_dict(),
            "slot": self.slot,
            "policy_failure": self.policy_failure,
            "counts": self.counts.copy(),
        }
        arrays = {name: array.copy() for name, array in self._arrays()}
        found = serialization.StateCopy(header, arrays, list(self.records.values()))
        self._copies.append(weakref.ref(found))
        return found

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> "AllocatorCore":
        """Restore a core from a snapshot. Errors begin with `place`, the name of the file or journal."""
        with serialization.errors_named(place):
            header, arrays = serialization.unpack(data)
            settings = Settings.restored(header["settings"])
            records = serialization.records(header, arrays, settings)
            core = cls(settings)
            serialization.refill(dict(core._arrays()), header, arrays)
            core.slot, core.supervisor.failure = header["slot"], str(header["policy_failure"])
            core.counts = {name: int(header["counts"][name]) for name in status.COUNTS}
            core.records = {record.request.request_id: record for record in records}
        return core

    @property
    def max_snapshot_size(self) -> int:
        """Approximate size of a snapshot in bytes when `patience` decisions are kept."""
        return self.fixed_size + self.settings.patience * self.record_size

    @property
    def fixed_size(self) -> int:
        """Bytes of all arrays that do not grow with the number of decisions that are kept."""
        return sum(array.nbytes for _, array in self._arrays())

    @property
    def record_size(self) -> int:
        """Approximate bytes of a decision that is kept, in a snapshot or in memory."""
        s = self.settings
        numbers = 8 * (s.dimension + 2 + slot_kernels.TERMS) + 2  # per channel
        return s.channels * numbers + 50 * s.users + 1000  # with the request_id and the failure, or objects in memory

    def _arrays(self) -> Iterator[tuple[str, Any]]:
        """Yield all arrays that change over time. Their order is part of snapshot format 1."""
        learners = {"policy": self.supervisor.learner, "fallback": self.fallback, "incumbent": self.incumbent}
        for name, learner in learners.items():
            if learner is not None:
                yield from ((f"{name}.{key}", array) for key, array in learner.arrays())
        yield from leaves("occupancy", self.occupancy, "occupancy")
        yield "vacated", self._vacated


def _context_error(request: DecideRequest, place: int) -> InputError:
    """Return the error for a context entry at this place of the flattened contexts."""
    k, i = divmod(place, request.contexts.shape[1])
    return InputError(
        f"contexts[{k}][{i}] = {request.contexts[k, i]}: must be a finite number of at most"
        f" {occupancy.MAX_NUMBER:g} in size"
    )


def _new_learner(s: Settings, configured: ConfiguredPolicy) -> Learner:
    truth = s.truth if configured is s.configured else None
    with interruptible():
        return Learner(configured, s.setup, truth, s.seed, s.replication)


_occupancy_kernels: dict[str, Any] = {}


def _occupancy_kernel(kernel: Callable[..., Any], packed: PackedState) -> Any:
    """Return a compiled kernel for this memory layout."""
    name = f"{kernel.__name__}_{packed.kind}"
    if name not in _occupancy_kernels:
        _occupancy_kernels[name] = compile.specialise(kernel, name, {"unpack": packed.unpack})
    return _occupancy_kernels[name]
