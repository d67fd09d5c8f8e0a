"""An allocator: these are the contexts, which channels? And then a place to say what happened.

Time is counted in slots: each decision is one. Feedback may come whole or in part, late, twice or never; what a channel
returned in a slot is learned once. Given the same events in the same order, an allocator ends in the same state, bit by
bit: `ask` and `parse` read what a caller gives, `decide` and `take` are all that changes what it has learned.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from idleband import validation
from idleband.allocator import inputs, occupancy, serialization, slot_kernels
from idleband.allocator.events import (
    FALLBACK,
    INCUMBENT,
    POLICY,
    Ask,
    Conflict,
    Decided,
    Decision,
    Id,
    Receipt,
    Record,
    Report,
    Unknown,
)
from idleband.allocator.explanation import Explanation, explanation
from idleband.allocator.learner import Learner, leaves
from idleband.allocator.settings import Settings
from idleband.allocator.supervisor import SETTLE_TIMEOUT, Behind, Supervisor
from idleband.arrays import Floats, Ints
from idleband.durable import write_durably
from idleband.errors import InputError, shown
from idleband.kernels import compile
from idleband.kernels.packed_state import PackedState, pack
from idleband.policies.protocol import CONTEXTS_SEEN, PARAMETERS, STATES_SEEN
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.perturbation import perturb
from idleband.scenario.user_models import FAULT, UserModel

LAST_SLOT = 2**52  # that can be asked for: counting on from there stays exact in every language
COUNTS = ("decisions", "asked_for", "handed_out", "late", "fallback", "too_late", "shadowed", "agreed")


class Allocator:
    """A policy that hands out channels slot by slot and learns from what is reported.

    Keywords that are not named here are settings (docs/allocator.md has them all) or parameters of the policy.

    >>> allocator = Allocator("mp-lucb", channels=4, users=2, dimension=3)
    >>> decision = allocator.allocate(np.zeros((4, 3)))
    >>> decision.id, decision.channels
    (1, (0, 1))
    >>> allocator.report(decision.id, rewards=[1.0, 0.1], states=[1, 0]).learned
    (0, 1)
    """

    def __init__(
        self, policy: Any, /, *, channels: Any = None, users: Any = None, dimension: Any = None, **settings: Any
    ) -> None:
        size = {"channels": channels, "users": users, "dimension": dimension}
        self._start(Settings.checked({"policy": policy, **size, **settings}))

    @classmethod
    def of(cls, settings: Settings) -> "Allocator":
        """One with settings that were checked."""
        allocator = cls.__new__(cls)
        allocator._start(settings)
        return allocator

    def _start(self, settings: Settings) -> None:
        self.settings = settings
        known, K = settings.known, settings.channels
        knows = settings.case.policy.knows
        self._policy = Supervisor(settings, lambda: _new_learner(settings, settings.case))
        self._fallback = _new_learner(settings, policy(settings.fallback))
        self._incumbent = None if settings.incumbent is None else _new_learner(settings, policy(settings.incumbent))
        self._watch = occupancy.new_occupancy(K)
        frozen = pack((known, self._watch))
        self._watch_block = frozen.block
        self._look, self._receive = _watch_kernel(occupancy.look, frozen), _watch_kernel(occupancy.receive, frozen)
        self._told, self._sees_states = PARAMETERS in knows, STATES_SEEN in knows
        self._sees_contexts = any({CONTEXTS_SEEN, PARAMETERS} & one.configured.policy.knows for one in self._learners())
        self._all, self._hidden, self._untold = np.ones(K, np.bool_), np.full(K, -1, np.int64), np.full(K, np.nan)
        self._no_contexts, self._nothing = np.zeros((K, settings.dimension)), np.full((3, K), np.nan)
        self._vacated = np.zeros(K, np.bool_)
        self._records: dict[Id, Record] = {}
        self._counts = dict.fromkeys(COUNTS, 0)
        self._slot = 0
        self._oldest = 0  # slot of the oldest record, or before
        self._repeated = 0  # feedback that was there already; not saved, because it changes nothing
        self._place = np.zeros(1, np.int64)
        self._lock = Lock()

    def _learners(self) -> list[Learner]:
        return [one for one in (self._policy.learner, self._fallback, self._incumbent) if one is not None]

    def __repr__(self) -> str:
        s = self.settings
        return f"Allocator({s.case.label}: {s.channels} channels, {s.users} users, slot {self._slot})"

    @property
    def slot(self) -> int:
        """The slot of the last decision; 0 before the first."""
        return self._slot

    # --- asking ------------------------------------------------------------------------------------------------------

    def allocate(
        self,
        contexts: Any,
        users: Any = None,
        available: Any = None,
        states: Any = None,
        *,
        id: str | None = None,
        slot: int | None = None,
        incumbent: Any = None,
    ) -> Decision:
        """Which channels to hand out now.

        `contexts` (channels x dimension); may be None for a policy that does not look at them. `users`: how many
        channels are wanted, up to the allocator's. `available`: a flag per channel, or None for all. `states`: what was
        sensed of each channel before, None (or -1) where nothing was. `id`: a name of your own for the decision (else
        it is the slot's number); asked again with the same question, the answer is the same. `slot`: a number above
        the last one's, if slots have passed in which nobody asked. `incumbent`: channels to be handed out instead,
        while the policy learns in their shadow.
        """
        with self._lock:
            return self.decide(self.ask(contexts, users, available, states, id=id, slot=slot, incumbent=incumbent))

    def ask(
        self,
        contexts: Any,
        users: Any = None,
        available: Any = None,
        states: Any = None,
        *,
        id: str | None = None,
        slot: int | None = None,
        incumbent: Any = None,
    ) -> Ask:
        """The question of `allocate`, read; nothing is decided yet."""
        s = self.settings
        name = None if id is None else inputs.name(id)
        if slot is None:
            slot = self._slot + 1
        elif name not in self._records:
            slot = validation.whole(slot, "slot", self._slot + 1, LAST_SLOT)
        if states is None and self._sees_states:
            raise InputError(f"states: must be given; policy {s.policy} sees all of them")
        blind = contexts is None and not self._sees_contexts
        return Ask(
            slot if name is None else name,
            slot,
            s.users if users is None else validation.whole(users, "users", 0, s.users),
            self._no_contexts if blind else inputs.contexts(contexts, s.channels, s.dimension),
            self._all if available is None else inputs.flags(available, s.channels, "available"),
            self._hidden if states is None else inputs.states(states, s.known),
            None if incumbent is None else inputs.channels(incumbent, s.channels, "incumbent"),
        )

    def decide(self, ask: Ask, then: Decided | None = None) -> Decision:
        """Answer a question; or, with `then`, go through what was decided then, as a journal has it."""
        if ask.id in self._records:
            record = self._records[ask.id]
            if not ask.same_as(record.ask):
                raise Conflict(f"id = {shown(ask.id)}: was used for another question before")
            return record.decision
        s, t = self.settings, ask.slot
        allowed, terms = np.empty(s.channels, np.bool_), np.empty((s.channels, slot_kernels.TERMS))
        place = self._look(
            self._watch_block, t, ask.users, s.collision_limit, ask.x, ask.available, self._vacated, ask.sensed,
            allowed, terms,
        )  # fmt: skip
        if place >= 0:
            k, i = divmod(int(place), s.dimension)
            raise InputError(
                f"contexts[{k}][{i}] = {ask.x[k, i]}: must be a finite number of at most {occupancy.LARGEST:g} in size"
            )
        self._slot = t
        if self._oldest <= t - s.patience:
            self._forget(t - s.patience)
        n = self._perturbations(ask.x) if self._told else self._untold
        sees = (t, ask.users, ask.x, allowed, ask.sensed, n)
        proposed, broken = self._policy.propose(sees, terms, then)
        by, channels = POLICY, proposed
        if ask.incumbent is not None:
            by, channels = INCUMBENT, np.array([k for k in ask.incumbent if allowed[k]][: ask.users], np.int64)
        elif self._incumbent is not None:
            by, channels = INCUMBENT, self._picks(self._incumbent, sees, np.empty_like(terms))
        elif channels is None:
            by, channels = FALLBACK, self._picks(self._fallback, sees, terms)
        handed = tuple(channels.tolist())
        would = handed if proposed is channels else None if proposed is None else tuple(proposed.tolist())
        decision = Decision(ask.id, handed, t, by, would)
        if then is not None and decision != then.decision:  # another version of the policy decided then
            decision = then.decision
            by, handed, would = decision.by, decision.channels, decision.proposed
            channels = np.array(handed, np.int64)
        self._records[ask.id] = Record(
            ask, decision, allowed, n, terms, channels, self._nothing[:, : len(handed)].copy(), broken
        )
        counts = self._counts
        counts["decisions"] += 1
        counts["asked_for"] += ask.users
        counts["handed_out"] += len(handed)
        if would is None and not broken:
            counts["too_late"] += 1
        if by == FALLBACK:
            counts["fallback"] += 1
        elif by == INCUMBENT:
            counts["shadowed"] += len(handed)
            counts["agreed"] += len(set(handed) & set(would or ()))
        return decision

    def _forget(self, last: int) -> None:
        """Decisions up to a slot are not kept any longer."""
        records = self._records
        while records:
            oldest = next(iter(records))
            self._oldest = records[oldest].ask.slot
            if self._oldest > last:
                return
            del records[oldest]

    def _picks(self, learner: Learner, sees: tuple[Any, ...], terms: Floats) -> Ints:
        picks = np.empty(self.settings.channels, np.int64)
        count = learner.choose(learner.block, *sees, picks, terms)
        if count < 0:  # not even this one works: what is handed out is allowed all the same
            _, users, _, allowed, *_ = sees
            return np.flatnonzero(allowed)[:users]
        return picks[:count]

    # --- reporting ---------------------------------------------------------------------------------------------------

    def report(self, id: Id, rewards: Any, states: Any = None, perturbations: Any = None) -> Receipt:
        """What the channels of a decision have returned: a value for each in the order of `channels` (None where there
        is no report yet), or a dict by channel. States that are left out are inferred from the rewards."""
        with self._lock:
            if isinstance(id, int) and 1 <= id <= self._slot - self.settings.patience and id not in self._records:
                return self.late()
            return self.take(self.parse(self.decision(id), rewards, states, perturbations))

    def parse(self, decision: Decision, rewards: Any, states: Any = None, perturbations: Any = None) -> Report:
        """The feedback of `report`, read; nothing is learned yet."""
        if perturbations is not None and not self.settings.known.measured:
            raise InputError("perturbations: leave them out; this allocator has feedback = 'reward'")
        nothing = self._untold[: len(decision.channels)]
        return Report(
            decision.id,
            inputs.feedback(rewards, decision, "rewards"),
            nothing if states is None else inputs.feedback(states, decision, "states"),
            nothing if perturbations is None else inputs.feedback(perturbations, decision, "perturbations"),
        )

    def take(self, report: Report) -> Receipt:
        """Learn what is news in a report."""
        record = self._records.get(report.id)
        if record is None:
            return self.late()
        ask, channels, kept = record.ask, record.channels, record.kept
        news = np.empty(len(channels), np.bool_)
        count = self._receive(
            self._watch_block, ask.slot, channels, report.rewards, report.states, report.perturbations, kept, news,
            self._place,
        )  # fmt: skip
        if count < 0:
            raise self._refusal(count, report, record)
        if count:
            lesson = (ask.slot, ask.users, ask.x, record.allowed, ask.sensed, record.n, channels, news, kept)
            self._policy.learn(lesson)
            for one in (self._fallback, self._incumbent):
                if one is not None:
                    one.learn(one.block, *lesson)
        if count == len(channels):
            return Receipt(record.decision.channels)
        again = ~np.isnan(report.rewards) & ~news
        self._repeated += int(again.sum())
        return Receipt(tuple(channels[news].tolist()), tuple(channels[again].tolist()))

    def late(self) -> Receipt:
        """Feedback of a decision that is forgotten already: counted, not learned."""
        self._counts["late"] += 1
        return Receipt((), late=True)

    def _refusal(self, wrong: int, report: Report, record: Record) -> InputError:
        i, known = int(self._place[0]), self.settings.known
        k = int(record.channels[i])
        if wrong == occupancy.CONFLICT:
            return Conflict(f"id = {shown(report.id)}: something else was reported of channel {k} before")
        if wrong == occupancy.BAD_REWARD:
            limits = f"from {known.low:g} to {known.high:g}" if known.threshold else f"of at most {occupancy.LARGEST:g}"
            return InputError(f"rewards: {report.rewards[i]:g} of channel {k}: must be a number {limits}")
        if wrong == occupancy.BAD_STATE:
            return InputError(
                f"states: {report.states[i]:g} of channel {k}: must be a whole number from 0 to {known.states[k] - 1}"
            )
        if wrong == occupancy.BAD_PERTURBATION:
            return InputError(
                f"perturbations: {report.perturbations[i]:g} of channel {k}: must be a number of at most"
                f" {occupancy.LARGEST:g} in size"
            )
        return InputError(f"rewards: none of channel {k}, of which there is something else: must be given with it")

    # --- safety ------------------------------------------------------------------------------------------------------

    def vacate(self, channels: Any) -> tuple[int, ...]:
        """These channels must be left now, and are not handed out until they are restored, whatever a policy says.
        Returns those of them that the last decision handed out."""
        with self._lock:
            left = inputs.channels(channels, self.settings.channels, "channels")
            self._vacated[list(left)] = True
            last = next(reversed(self._records.values()), None)
            return () if last is None else tuple(k for k in last.decision.channels if k in left)

    def restore(self, channels: Any) -> None:
        """These channels may be handed out again."""
        with self._lock:
            self._vacated[list(inputs.channels(channels, self.settings.channels, "channels"))] = False

    @property
    def vacated(self) -> tuple[int, ...]:
        """Channels that are not handed out until they are restored."""
        return tuple(np.flatnonzero(self._vacated).tolist())

    @property
    def broken(self) -> str:
        """Why the policy is out of service and the fallback decides; empty if it is not."""
        return self._policy.broken

    def replay(self, whether: bool) -> None:
        """From now on what happened before is gone through again, and there is no hurry; or not any more."""
        self._policy.replaying = whether

    def settle(self) -> None:
        """Wait for a policy that is behind, for some seconds."""
        self._policy.settle()

    def reset(self) -> None:
        """Have the policy begin anew, having learned nothing, and decide again."""
        with self._lock:
            self._policy.reset()

    # --- looking -----------------------------------------------------------------------------------------------------

    def remembers(self, id: Id) -> bool:
        """Whether feedback for a decision could still be learned."""
        return id in self._records

    def decision(self, id: Id) -> Decision:
        """A decision of the last `patience` slots again."""
        return self._record(id).decision

    def decided(self, id: Id) -> Decided:
        """The same as a journal keeps it."""
        record = self._record(id)
        return Decided(record.decision, record.broken)

    def explain(self, id: Id) -> Explanation:
        """Why a decision of the last `patience` slots was taken, in words and numbers."""
        with self._lock:
            record = self._record(id)
            whose = self._fallback if record.decision.by == FALLBACK else self._policy.learner
            return explanation(self.settings, whose, record)

    def _record(self, id: Id) -> Record:
        try:
            return self._records[id]
        except (KeyError, TypeError):
            raise Unknown(f"id = {shown(id)}: no decision of the last {self.settings.patience} slots has it") from None

    def snapshot(self) -> dict[str, Any]:
        """How it stands, as plain data: counts since the start, and what is known of each channel."""
        with self._lock:
            seen, s = self._watch, self.settings
            last = next(reversed(self._records.values()), None)
            counted = zip(occupancy.COUNTS, seen.counts.tolist(), strict=True)
            return {
                "policy": s.case.label,
                "channels": s.channels,
                "users": s.users,
                "dimension": s.dimension,
                "feedback": s.feedback,
                "collision_limit": s.collision_limit,
                "slot": self._slot,
                "broken": self.broken,
                "counts": {
                    **self._counts,
                    "repeated": self._repeated,
                    **{name: int(value) if value.is_integer() else value for name, value in counted},
                },
                "last": None if last is None else last.decision._asdict(),
                "channel": [self._channel(k) for k in range(s.channels)],
            }

    def _channel(self, k: int) -> dict[str, Any]:
        seen = self._watch
        plays, state = int(seen.plays[k].sum()), int(seen.last_observation.state[k])
        return {
            "channel": k,
            "belief": float(seen.belief[k]),
            "plays": plays,
            "mean_reward": float(seen.earned[k].sum()) / plays if plays else None,
            "seen": None if state < 0 else ("busy", "free")[state],
            "seen_slot": int(seen.last_observation.slot[k]),
            "vacated": bool(self._vacated[k]),
        }

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write all of it to a file that `load` reads."""
        until = time.monotonic() + SETTLE_TIMEOUT
        while True:
            try:
                with self._lock:  # not while it waits: deadlines hold for whoever asks meanwhile
                    picture = self.picture(0.0)
                break
            except Behind:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        write_durably(Path(path), picture())

    @classmethod
    def load(cls, path: str | Path) -> "Allocator":
        """An allocator as it was saved: it goes on bit by bit as if it had never stopped."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        return cls.from_bytes(data, str(path))

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        return self.picture()()

    @property
    def size(self) -> int:
        """Bytes, about, that its state takes when all decisions it may remember are there."""
        s = self.settings
        record = s.channels * (8 * (s.dimension + 2 + slot_kernels.TERMS) + 2) + 50 * s.users + 1000  # names, and why
        return sum(array.nbytes for _, array in self._arrays()) + s.patience * record

    def picture(self, longest: float = SETTLE_TIMEOUT) -> Callable[[], bytes]:
        """All of it as it is now, after waiting for a policy that is behind: a function that makes bytes of it, which
        takes longer and may be called from another thread."""
        self._policy.settle(longest)
        head = {
            "settings": self.settings.as_data(),
            "slot": self._slot,
            "broken": self.broken,
            "counts": self._counts.copy(),
        }
        arrays = {name: array.copy() for name, array in self._arrays()}
        records = [record._replace(kept=record.kept.copy()) for record in self._records.values()]  # all else stays
        return lambda: serialization.pack(head, arrays, records)

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> "Allocator":
        """From what `to_bytes` gave; `place` is what to call it where it is damaged."""
        with serialization.told(place):
            head, arrays = serialization.unpack(data)
            settings = Settings.restored(head["settings"])
            records = serialization.records(head, arrays, settings)
            allocator = cls.of(settings)
            serialization.refill(dict(allocator._arrays()), arrays)
            allocator._slot, allocator._policy.broken = head["slot"], str(head["broken"])
            allocator._counts = {name: int(head["counts"][name]) for name in COUNTS}
            allocator._records = {record.ask.id: record for record in records}
        return allocator

    def _arrays(self) -> Iterator[tuple[str, Any]]:
        """All arrays that change as it works, by name."""
        learners = {"learner": self._policy.learner, "fallback": self._fallback, "incumbent": self._incumbent}
        for name, learner in learners.items():
            if learner is not None:
                yield from ((f"{name}.{key}", array) for key, array in learner.arrays())
        yield from leaves("watch", self._watch, "watch")
        yield "vacated", self._vacated

    def _perturbations(self, x: Floats) -> Floats:
        """What the scenario's model makes of contexts: an oracle is told."""
        world, theta = self.settings.world, self.settings.theta
        assert world is not None  # an oracle has a scenario
        assert theta is not None
        model = world.perturbation.model
        n = np.empty(len(x))
        run = model.kernel.within if isinstance(model, UserModel) else perturb
        run(model.number, theta, x, n, np.zeros(FAULT))
        return n


def _new_learner(s: Settings, case: ConfiguredPolicy) -> Learner:
    with compile.interruptible():
        return Learner(case, s.known, s.truth if case is s.case else None, s.seed, s.replication)


_watch_kernels: dict[str, Any] = {}


def _watch_kernel(kernel: Callable[..., Any], frozen: PackedState) -> Any:
    name = f"{kernel.__name__}_{frozen.kind}"
    if name not in _watch_kernels:
        _watch_kernels[name] = compile.specialise(kernel, name, {"unpack": frozen.unpack})
    return _watch_kernels[name]
