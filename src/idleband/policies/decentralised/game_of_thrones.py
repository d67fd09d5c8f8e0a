"""GAME-OF-THRONES: users for whom different channels are good find an assignment with a large sum of rewards.

Bistritz and Leshem, "Distributed multi-player bandits: a game of thrones approach", NeurIPS 2018; looked up in the
MP-MAB code of Wang, Leshem, Niyato and Han (wbwang2020/MP-MAB). Epoch n consists of

    exploration    c1 n^d slots of random channels, in which a user learns its mean reward u_k of each channel
    game           c2 n^d slots. A user is content with a channel or discontent. Content, it plays this channel or,
                   with probability epsilon^c, a random other one; discontent, a random one. Its utility is u_k, or 0
                   on a collision. With utility 0 it becomes discontent. Content and on its channel, it stays content.
                   Otherwise it becomes content with channel k with probability u_k / u_max epsilon^(u_max - u_k).
    exploitation   c3 2^n slots of the channel with which the user was content most often in the second half of the game

All users must arrive together. The game begins content, with the channel of the last exploitation or, first, a random
one. Settings of that code: d = 2, epsilon = 0.1 or 0.01; c1, c2, c3 from 1 to 3000; c is 1.2 times the number of users,
which a user does not know here, so that c is a parameter. The theory needs c above the sum of the u_max of all users
minus the largest sum of rewards; smaller values search more. The defaults are ours, for three to five users for whom
different channels are good within 10^5 slots. More users with the same good channels need a larger c, and are better
served by index policies.

Means are rescaled to [0, 1]. Where its channel is not available, a user is silent and the state of the game stays.
"""

from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.decentralised.user_statistics import draw_available
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot, to_unit

EXPLORATION, GAME, EXPLOITATION = range(3)
MAX_EPOCH = 40


class Params(NamedTuple):
    c1: Annotated[int, AtLeast(1, 10**9), "slots of exploration in the first epoch"] = 200
    c2: Annotated[int, AtLeast(1, 10**9), "slots of the game in the first epoch"] = 500
    c3: Annotated[int, AtLeast(1, 10**9), "half the slots of exploitation in the first epoch"] = 1000
    d: Annotated[float, AtLeast(0.0, 10.0), "both of the first grow as n^d with the epoch n"] = 1.0
    epsilon: Annotated[float, AtLeast(1e-9, 1.0), "how often users try other channels in the game"] = 0.01
    c: Annotated[float, AtLeast(0.0, 1e3), "a content user does so with probability epsilon^c"] = 1.0


class State(NamedTuple):
    total: Floats  # (K,) rewards without collision in explorations, on [0, 1]
    plays: Floats  # (K,)
    epoch: Ints  # (1,) n
    stage: Ints  # (1,) EXPLORATION, GAME or EXPLOITATION
    slots: Ints  # (1,) slots of it so far, this one included
    length: Ints  # (1,) slots of it
    channel: Ints  # (1,) channel of the user, with which it is content or has collided; to exploit
    content: Ints  # (1,)
    visits: Ints  # (K,) slots of the second half of the game in which it was content with a channel


def init(setup: Setup) -> State:
    K, one = setup.K, np.zeros(1, np.int64)
    return State(
        total=np.zeros(K),
        plays=np.zeros(K),
        epoch=one,
        stage=np.full(1, EXPLOITATION, np.int64),
        slots=one.copy(),
        length=one.copy(),
        channel=np.full(1, -1, np.int64),
        content=one.copy(),
        visits=np.zeros(K, np.int64),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    while state.slots[0] >= state.length[0]:
        begin_stage(setup, state, slot)
    state.slots[0] += 1
    k = state.channel[0]
    if state.stage[0] == EXPLORATION:
        slot.indices[:] = 0.0
        k = draw_available(slot)
    elif state.stage[0] == GAME:
        if state.content[0] == 0:
            k = int(setup.K * uniform(slot.rng))
        elif setup.K > 1 and uniform(slot.rng) < setup.params.epsilon**setup.params.c:
            k = (k + 1 + int((setup.K - 1) * uniform(slot.rng))) % setup.K
    picks[0] = k
    return int(k >= 0 and slot.available[k])


@jit
def begin_stage(setup: Setup, state: State, slot: Slot) -> None:
    state.slots[0] = 0
    if state.stage[0] == EXPLOITATION:
        state.stage[0] = EXPLORATION
        state.epoch[0] = min(state.epoch[0] + 1, MAX_EPOCH)
        state.length[0] = int(setup.params.c1 * float(state.epoch[0]) ** setup.params.d)
    elif state.stage[0] == EXPLORATION:
        state.stage[0] = GAME
        state.length[0] = int(setup.params.c2 * float(state.epoch[0]) ** setup.params.d)
        state.content[0] = 1
        state.visits[:] = 0
        if state.channel[0] < 0:
            state.channel[0] = int(setup.K * uniform(slot.rng))
    else:
        state.stage[0] = EXPLOITATION
        state.length[0] = setup.params.c3 << state.epoch[0]
        most = 0
        for k in range(setup.K):
            if state.visits[k] > most:
                most = state.visits[k]
                state.channel[0] = k


@jit
def mean_of(state: State, k: int) -> float:
    return state.total[k] / state.plays[k] if state.plays[k] > 0.0 else 0.0


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k = feedback.channel
    if state.stage[0] == EXPLORATION:
        if feedback.collision == 0:
            state.total[k] += to_unit(setup, feedback.reward)
            state.plays[k] += 1.0
    elif state.stage[0] == GAME:
        largest = 0.0
        for i in range(setup.K):
            largest = max(largest, mean_of(state, i))
        utility = mean_of(state, k) if feedback.collision == 0 else 0.0
        if utility <= 0.0:
            state.content[0] = 0
        elif state.content[0] == 0 or k != state.channel[0]:
            probability = utility / largest * setup.params.epsilon ** (largest - utility)
            state.content[0] = int(uniform(slot.rng) < probability)
        state.channel[0] = k
        if state.content[0] == 1 and 2 * state.slots[0] > state.length[0]:
            state.visits[k] += 1
