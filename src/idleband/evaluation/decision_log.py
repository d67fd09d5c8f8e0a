"""The decision log: what an allocator decided with which probability, and what came of it, one row per slot.

A log is collected event by event from a journal or from an allocator in the same process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from idleband.allocator.events import DecideRequest, Decision, Report, RequestId
from idleband.allocator.settings import DEFINED_BY_SCENARIO, Settings
from idleband.arrays import Flags, Floats, Ints
from idleband.errors import InputError
from idleband.policies.registry import policy

ROUNDING = 1e-6  # by which probabilities may miss their sum


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """Decisions of one allocator with their outcomes, for T slots and K channels."""

    place: str  # the file or allocator, for messages
    settings: dict[str, Any]  # of the allocator, as plain data
    request_id: Sequence[str]
    slot: Ints  # (T,) increasing
    time: Floats  # (T,) seconds since 1970; nan if unknown
    users: Ints  # (T,) channels that were requested
    by: Sequence[str]  # what decided: "policy", "incumbent" or "fallback"
    contexts: Floats  # (T, K, d)
    available: Flags  # (T, K) channels that could be assigned
    sensed: Ints  # (T, K) states before the decision, -1 where not sensed
    selected: Flags  # (T, K)
    propensity: Floats  # (T, K) probability of being selected; nan in slots where it is not known
    reported_after: Ints  # (T, K) the last slot that was decided when feedback was reported; 0 if it was not
    reward: Floats  # (T, K) nan where not reported
    state: Ints  # (T, K) -1 where not reported
    perturbation: Floats  # (T, K) nan where not reported

    @property
    def known(self) -> Flags:
        """The slots whose propensities are known, shape (T,)."""
        return np.asarray(~np.isnan(self.propensity).any(axis=1))

    @cached_property
    def problem(self) -> Settings:
        """The settings of the allocator with its policy replaced by one that needs nothing."""
        return self.settings_for("mp-random")

    def settings_for(self, policy: Any) -> Settings:
        """Return the settings of the allocator with another policy; no safety measure withholds channels from it."""
        own: tuple[str, ...] = ("seed", "replication", "patience")
        if self.settings.get("scenario") is None:
            own = (*own, "channel_names", *DEFINED_BY_SCENARIO)
        else:
            own = (*own, "scenario")
        for key in own:
            if key not in self.settings:
                raise InputError(f"{self.place}: the settings of the allocator have no {key}")
        given = {key: self.settings[key] or None if key == "dimension" else self.settings[key] for key in own}
        return Settings.checked({**given, "policy": policy})

    def check(self) -> "DecisionLog":
        """Return the log; raise InputError where its values contradict each other."""
        setup = self.problem.setup
        K = self.selected.shape[1]
        if K != setup.K or self.contexts.shape[2] != setup.d:
            raise InputError(
                f"{self.place}: has {K} channels and dimension {self.contexts.shape[2]}, but its settings say"
                f" {setup.K} and {setup.d}"
            )
        self._refuse(np.diff(self.slot, prepend=0) <= 0, "slot must increase from 1 on")
        self._refuse((self.users < 0) | (self.users > setup.M), f"users must be a number from 0 to {setup.M}")
        played = self.selected.sum(axis=1)
        self._refuse((self.selected & ~self.available).any(axis=1), "a channel is selected that is not available")
        self._refuse(played > self.users, "more channels are selected than there are users")
        known = self.known
        some = ~np.isnan(self.propensity).all(axis=1)
        self._refuse(some & ~known, "propensity is given for some channels and not for others")
        p = np.where(known[:, None], self.propensity, 0.0)
        self._refuse(((p < 0.0) | (p > 1.0 + ROUNDING)).any(axis=1), "propensity must be a probability from 0 to 1")
        self._refuse(((p > 0.0) & ~self.available).any(axis=1), "propensity of a channel that is not available")
        off = known & (np.abs(p.sum(axis=1) - played) > ROUNDING * K)
        self._refuse(off, "the propensities of a slot must add up to the number of selected channels")
        impossible = known & (self.selected & (p <= 0.0)).any(axis=1)
        self._refuse(impossible, "a channel is selected whose propensity is 0")
        reported = self.reported_after > 0
        self._refuse((self.reported_after < 0).any(axis=1), "reported_after must not be before the slot")
        self._refuse((reported & ~self.selected).any(axis=1), "feedback of a channel that is not selected")
        early = reported & (self.reported_after < self.slot[:, None])
        self._refuse(early.any(axis=1), "reported_after must not be before the slot")
        self._refuse((reported & ~np.isfinite(self.reward)).any(axis=1), "reward must be a finite number")
        for states in (self.state, self.sensed):
            self._refuse(((states < -1) | (states >= setup.states)).any(axis=1), "a state is not one of the channel's")
        self._refuse(~np.isfinite(self.contexts).all(axis=(1, 2)), "context must consist of finite numbers")
        return self

    def _refuse(self, wrong: Any, reason: str) -> None:
        if wrong.any():
            raise InputError(f"{self.place}: slot {self.slot[int(np.argmax(wrong))]}: {reason}")


class LogCollector:
    """Collects decisions and reports, in the order in which they happened."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._rows: list[tuple[Any, ...]] = []
        self._feedback: list[Floats] = []  # (3, K) rewards, states and perturbations of each row
        self._reported: list[Ints] = []
        self._place: dict[RequestId, tuple[int, tuple[int, ...]]] = {}

    def decide(
        self, request: DecideRequest, decision: Decision, allowed: Flags, propensities: Floats | None, time: float = 0.0
    ) -> None:
        """Add a decision. `time` is in seconds since 1970, 0 if it is not known."""
        K = self.settings.channels
        selected = np.zeros(K, np.bool_)
        selected[list(decision.channels)] = True
        p = np.full(K, np.nan) if propensities is None else propensities
        self._place[decision.request_id] = len(self._rows), decision.channels
        self._rows.append(
            (
                str(decision.request_id), request.slot, time or np.nan, request.users, decision.by, request.contexts,
                allowed, request.sensed, selected, p,
            )
        )  # fmt: skip
        self._feedback.append(np.full((3, K), np.nan))
        self._reported.append(np.zeros(K, np.int64))

    def report(self, report: Report) -> None:
        """Add feedback that was learned; for a channel that was reported before, and for a decision that is not in the
        log, it is ignored."""
        found = self._place.get(report.request_id)
        if found is None:
            return
        row, channels = found
        now = self._rows[-1][1]
        for i, k in enumerate(channels):
            if not np.isnan(report.rewards[i]) and not self._reported[row][k]:
                self._reported[row][k] = now
                self._feedback[row][:, k] = report.rewards[i], report.states[i], report.perturbations[i]

    def log(self, place: str) -> DecisionLog:
        """Return what was collected so far."""
        if not self._rows:
            raise InputError(f"{place}: contains no decision")
        request_id, slot, time, users, by, contexts, available, sensed, selected, propensity = zip(
            *self._rows, strict=True
        )
        reward, state, perturbation = np.array(self._feedback).transpose(1, 0, 2)
        return DecisionLog(
            place=place,
            settings=self.settings.to_dict(),
            request_id=request_id,
            slot=np.array(slot),
            time=np.array(time),
            users=np.array(users),
            by=by,
            contexts=np.array(contexts),
            available=np.array(available),
            sensed=np.array(sensed),
            selected=np.array(selected),
            propensity=np.array(propensity),
            reported_after=np.array(self._reported),
            reward=reward,
            state=np.nan_to_num(state, nan=-1.0).astype(np.int64),
            perturbation=perturbation,
        ).check()


def logging_policy(log: DecisionLog) -> str:
    """Return the name of the policy that decided, with the parameters that differ from their defaults."""
    name, parameters = log.settings.get("policy"), log.settings.get("parameters")
    try:
        return policy(name, **parameters).label  # type: ignore[arg-type]
    except (InputError, TypeError):  # a user's policy, whose file may not be here
        return str(name)
