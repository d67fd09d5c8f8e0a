"""Requests to an allocator and its answers, as checked records."""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints

RequestId = str | int

# Values of `Decision.by`.
POLICY, INCUMBENT, FALLBACK = "policy", "incumbent", "fallback"


class DecideRequest(NamedTuple):
    """A request for channels. Everything is checked except the size of the context entries."""

    request_id: RequestId
    slot: int
    users: int
    contexts: Floats  # (K, d)
    available: Flags  # (K,)
    sensed: Ints  # (K,) states, -1 where not sensed
    incumbent: tuple[int, ...] | None  # channels to assign instead of the policy's selection

    def same_as(self, other: "DecideRequest") -> bool:
        """Return whether both requests ask for the same, in whichever slot."""
        return (
            self.users == other.users
            and self.incumbent == other.incumbent
            and np.array_equal(self.contexts, other.contexts)
            and np.array_equal(self.available, other.available)
            and np.array_equal(self.sensed, other.sensed)
        )


class Decision(NamedTuple):
    """The channels that are assigned in one slot.

    Attributes
    ----------
    request_id : str or int
        Name of the decision: the `request_id` of the caller, or else the slot number.
    channels : tuple of int
        Indices of the assigned channels, from 0.
    slot : int
        Number of the slot, from 1.
    by : str
        What decided: "policy", "incumbent" or "fallback".
    proposed : tuple of int or None
        The selection of the policy; None if the policy failed or missed its deadline.
    """

    request_id: RequestId
    channels: tuple[int, ...]
    slot: int
    by: str
    proposed: tuple[int, ...] | None


class RecordedDecision(NamedTuple):
    """A decision as a journal stores it, for replay."""

    decision: Decision
    policy_failure: str  # why the policy was out of service at that time; empty if it was in service


class Report(NamedTuple):
    """Feedback for a decision, one entry per assigned channel in the order of the decision. Ranges are not checked."""

    request_id: RequestId
    rewards: Floats  # nan: no feedback for this channel
    states: Floats  # nan where unknown
    perturbations: Floats  # nan where not measured


class Receipt(NamedTuple):
    """The answer to a report.

    Attributes
    ----------
    learned : tuple of int
        Channels whose feedback was new and was learned from.
    repeated : tuple of int
        Channels whose feedback had been reported before, with the same values.
    late : bool
        True if the decision is older than `patience` slots; nothing was learned.
    """

    learned: tuple[int, ...]
    repeated: tuple[int, ...] = ()
    late: bool = False


class StepResult(NamedTuple):
    """The answer to a request that reports and decides.

    Attributes
    ----------
    receipt : Receipt or None
        The answer to the report; None if there was none.
    decision : Decision or None
        The decision; None if none was asked for.
    """

    receipt: Receipt | None
    decision: Decision | None


class DecisionRecord(NamedTuple):
    """A decision that is kept for feedback and explanations."""

    request: DecideRequest
    decision: Decision
    allowed: Flags  # (K,) channels that could be assigned
    perturbations: Floats  # (K,) perturbations of the slot, for oracles; nan for all other policies
    terms: Floats  # (K, TERMS) numbers for the explanation
    channels: Ints  # channels of the decision as an array
    feedback: Floats  # (3, channels) reported rewards, states and perturbations; nan where not reported
    policy_failure: str  # why the policy was out of service; empty if it was in service
