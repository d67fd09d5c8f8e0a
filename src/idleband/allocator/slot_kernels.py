"""One slot of a policy as two kernels: `choose`, and `learn` when feedback arrives. The simulation loop does both."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.policies.protocol import Feedback, Setup, Slot

# Columns of `terms`, after those that the policy's `explain` fills: the index, the probability that the channel is
# idle as `occupancy` estimates it, and the status of the channel. TERMS is the number of columns.
INDEX, OCCUPANCY_BELIEF, STATUS, TERMS = 3, 4, 5, 6
AVAILABLE, UNAVAILABLE, VACATED, WITHHELD = range(4)

INVALID, NOT_A_NUMBER = -1, -2  # returned by `choose` instead of a count


class Workspace(NamedTuple):
    """Working arrays of a policy."""

    indices: Floats  # (K,)
    scratch: Floats  # (2K,)
    taken: Flags  # (K,) to detect a channel that is picked twice
    propensities: Floats  # (K,) with which channels were selected in the latest slot; nan where they are not known


def new_workspace(K: int) -> Workspace:
    """Return working arrays for K channels."""
    return Workspace(np.zeros(K), np.zeros(2 * K), np.zeros(K, np.bool_), np.full(K, np.nan))


# `Learner` binds the functions of a policy, and the function that finds its memory, to these names.
select: Callable[..., int] = NotImplemented
update: Callable[..., None] = NotImplemented
explain: Callable[..., None] = NotImplemented
propensities: Callable[..., None] = NotImplemented
unpack: Callable[[Any], Any] = NotImplemented


@jit
def explain_nothing(setup: Setup, state: Any, slot: Slot, terms: Floats) -> None:
    """Leave `terms` as they are, for policies without an `explain` function."""


@jit
def no_propensities(setup: Setup, state: Any, slot: Slot, out: Floats) -> None:
    """Leave the propensities unknown, for policies without a `propensities` function."""


@jit
def with_users(setup: Setup, M: int) -> Setup:
    """Return the setup with another number of channels to select."""
    return Setup(
        setup.K, M, setup.d, setup.low, setup.high, setup.span, setup.h_span, setup.h, setup.states, setup.good,
        setup.threshold, setup.measured, setup.missed, setup.false_alarm, setup.switching_cost, M, setup.horizon,
        setup.control_bits, setup.observes, setup.params,
    )  # fmt: skip


def choose(
    block: Any, t: int, users: int, contexts: Floats, available: Flags, sensed: Ints, perturbations: Floats,
    picks: Ints, terms: Floats,
) -> int:  # fmt: skip
    """Write the policy's selection for slot t into `picks` and its explanation into `terms`; return its length.

    Return INVALID or NOT_A_NUMBER if the selection breaks the rules. With t = 0 nothing happens, which serves to
    compile the kernel.
    """
    default, state, rng, workspace = unpack(block)
    if t == 0:
        return 0
    setup = with_users(default, users)
    slot = Slot(t, contexts, available, sensed, perturbations, workspace.indices, workspace.scratch, rng)
    count = select(setup, state, slot, picks)
    usable = 0
    for k in range(setup.K):
        if np.isnan(workspace.indices[k]):
            return NOT_A_NUMBER
        usable += available[k]
        workspace.taken[k] = False
        terms[k, INDEX] = workspace.indices[k]
    explain(setup, state, slot, terms)
    propensities(setup, state, slot, workspace.propensities)
    if count != min(users, usable):
        return INVALID
    for i in range(count):
        k = picks[i]
        if k < 0 or k >= setup.K or not available[k] or workspace.taken[k]:
            return INVALID
        workspace.taken[k] = True
    return count


def learn(
    block: Any, t: int, users: int, contexts: Floats, available: Flags, sensed: Ints, perturbations: Floats,
    channels: Ints, new: Flags, feedback: Floats,
) -> None:  # fmt: skip
    """Update the policy with the feedback of slot t for the channels marked in `new`. With t = 0 nothing happens."""
    default, state, rng, workspace = unpack(block)
    if t == 0:
        return
    setup = with_users(default, users)
    slot = Slot(t, contexts, available, sensed, perturbations, workspace.indices, workspace.scratch, rng)
    for i in range(channels.size):
        if new[i]:
            reward, s, n = feedback[0, i], int(feedback[1, i]), feedback[2, i]
            update(setup, state, slot, Feedback(channels[i], s, reward, n, 0))
