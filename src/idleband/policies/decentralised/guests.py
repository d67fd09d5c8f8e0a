"""When a user may play channels of other users' groups: its belief that no other user plays them.

Whether others play a channel is modelled as a two-state chain, observed by the collisions of the user's own plays and
fitted like the chain of a channel (`two_state_chain.py`). Only slots in which the channel was good count, because users
leave a channel that is not. Expected, not drawn, probabilities are used.

A play pays if no other user plays the channel, and destroys the reward of another user if somebody does. With q, the
probability of that, the channel has the index (1 - q) i - q r instead of its own index i, where r is its expected
reward.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels import logistic, two_state_chain
from idleband.kernels.compile import jit
from idleband.policies.last_observation import NEVER, LastObservation, age_of, new_last_observation
from idleband.policies.protocol import Feedback, Setup

FRESH = 1.05  # factor by which observations grow before a chain is fitted again


class Guests(NamedTuple):
    collided: LastObservation  # whether others played a channel
    pairs: Floats  # (K, BINS, 2, 2) counts of pairs of observations, by age
    ages: Floats  # (BINS,)
    seen: Floats  # (K,)
    due: Floats  # (K,)
    mode: Floats  # (K, 2) logits of the probabilities that others come and leave
    spread: Floats  # (K, 3)


def new_guests(K: int) -> Guests:
    return Guests(
        collided=new_last_observation(K),
        pairs=np.zeros((K, two_state_chain.BINS, 2, 2)),
        ages=two_state_chain.AGES.copy(),
        seen=np.zeros(K),
        due=np.zeros(K),
        mode=np.zeros((K, 2)),
        spread=np.zeros((K, 3)),
    )


@jit
def forget_guests(guests: Guests) -> None:
    """Return to the state of the beginning."""
    guests.collided.state[:] = NEVER
    guests.pairs[:] = 0.0
    guests.seen[:] = 0.0
    guests.due[:] = 0.0
    guests.mode[:] = 0.0


@jit
def occupied(guests: Guests, k: int, t: int) -> float:
    """Return the probability that others play channel k in slot t."""
    come, leave = logistic.probability(guests.mode[k, 0]), logistic.probability(guests.mode[k, 1])
    if guests.collided.state[k] == NEVER:
        return come / (come + leave)
    return two_state_chain.later(come, leave, float(guests.collided.state[k]), age_of(guests.collided, k, t))


@jit
def learn_occupied(setup: Setup, guests: Guests, feedback: Feedback, t: int) -> None:
    """Learn whether others played a channel that is not of the user's own group."""
    k = feedback.channel
    if not setup.good[k, feedback.state]:
        return
    if guests.collided.state[k] != NEVER:
        before = guests.collided.state[k]
        guests.pairs[k, two_state_chain.bin_of(age_of(guests.collided, k, t)), before, feedback.collision] += 1.0
        guests.seen[k] += 1.0
        if guests.seen[k] >= guests.due[k]:
            guests.due[k] = FRESH * guests.seen[k] + 1.0
            two_state_chain.fit(guests.pairs, guests.ages, k, guests.mode, guests.spread)
    guests.collided.state[k], guests.collided.slot[k] = feedback.collision, t
