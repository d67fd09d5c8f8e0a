"""What happens to an allocator: questions that are answered, and feedback."""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.errors import InputError

Id = str | int

# Who decided.
POLICY, INCUMBENT, FALLBACK = "policy", "incumbent", "fallback"


class Unknown(InputError):
    """A decision that there is not, or not any more."""


class Conflict(InputError):
    """Something else was said of the same thing before."""


class Ask(NamedTuple):
    """A question for channels, checked but for the size of the numbers."""

    id: Id
    slot: int
    users: int
    x: Floats  # (K, d)
    available: Flags  # (K,)
    sensed: Ints  # (K,) states, -1 where not sensed
    incumbent: tuple[int, ...] | None  # what is handed out instead of the policy's choice, if given

    def same_as(self, other: "Ask") -> bool:
        """Whether it is the same question, whatever slot it came in."""
        return (
            self.users == other.users
            and self.incumbent == other.incumbent
            and np.array_equal(self.x, other.x)
            and np.array_equal(self.available, other.available)
            and np.array_equal(self.sensed, other.sensed)
        )


class Decision(NamedTuple):
    """The channels that are handed out in a slot, numbered from 0."""

    id: Id
    channels: tuple[int, ...]
    slot: int
    by: str  # policy, incumbent or fallback
    proposed: tuple[int, ...] | None  # what the policy would have handed out; None if it had no say


class Decided(NamedTuple):
    """A decision as a journal keeps it, to be gone through again."""

    decision: Decision
    broken: str  # why the policy was out of service then; empty if it was not


class Report(NamedTuple):
    """What channels of a decision have returned, one entry each in its order; checked but for the ranges."""

    id: Id
    rewards: Floats  # nan: nothing is reported of this channel
    states: Floats  # nan where not known
    perturbations: Floats  # nan where not measured


class Receipt(NamedTuple):
    """What became of a report."""

    learned: tuple[int, ...]  # channels of which it was the first
    repeated: tuple[int, ...] = ()  # channels of which the same had been reported before
    late: bool = False  # it came after more than `patience` slots: not learned


class Record(NamedTuple):
    """A decision that feedback may still come for, and questions."""

    ask: Ask
    decision: Decision
    allowed: Flags  # (K,) what could be handed out
    n: Floats  # (K,) perturbations, for an oracle
    terms: Floats  # (K, TERMS) why
    channels: Ints  # the decision's, as an array
    kept: Floats  # (3, channels) rewards, states and perturbations that were reported, else nan
    broken: str  # why the policy was out of service then; empty if it was not
