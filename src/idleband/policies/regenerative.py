"""RCA-M: the regenerative cycle algorithm with M parallel blocks.

Tekin and Liu, "Online learning of rested and restless bandits", IEEE Transactions on Information Theory 58(8), 2012.
The regenerative state of a channel is the first state that was observed on it. A block of a channel consists of

    SB1   from its start until the regenerative state is observed (empty in the first block of a channel)
    SB2   from there until the state is observed again
    SB3   that last slot

The index of a channel is mean over SB2 + sqrt(L ln t2 / T2_k), with T2_k the slots in its counted SB2. With one block
at a time, t2 is the number of slots in SB2 of all blocks. With M blocks at once the paper's sentence can be read in two
ways: slots in which at least one channel is in SB2, or the sum of T2_k over channels, in which a slot may count M
times. Here it is the sum, `Blocks.all_slots`; the other reading is smaller by a factor of at most M, so ln t2 by at
most ln M. (The paper is from memory.)

Rewards are earned in all of them. Only SB2 enters the statistics, when the block ends; a block that is dropped is not
counted. M blocks run in parallel. A free place goes to the channel with the largest index among those not in a block.

A live base station may report late, in another order or not at all. SB2 is counted only if each of its slots was
reported in order; otherwise the block is dropped. Feedback of slots before a block is not part of it. A block without
feedback for PATIENCE slots is dropped.

`Blocks` and its functions can be combined with any index. A policy in this frame implements `select` as

    places = free_places(blocks, ...)         drop blocks of unavailable channels, count the free places
    if places > 0: index of every idle channel, then start_blocks(...)
    return playing(blocks, picks)

and calls `observe` in `update`. The plain policy RCA-M is at the end of the file.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import ESTIMATE, WIDTH, Feedback, Setup, Slot

IDLE, SB1, SB2, DONE = range(4)  # DONE: the block has ended, the place is kept until all are refilled
PATIENCE = 1000  # slots without feedback after which a block is dropped


class Blocks(NamedTuple):
    origin: Ints  # (K,) regenerative state, -1 before the first play
    phase: Ints  # (K,) IDLE, SB1, SB2 or DONE
    open_sum: Floats  # (K,) SB2 of the running block
    open_slots: Floats  # (K,)
    began: Ints  # (K,) first slot of the block
    last: Ints  # (K,) latest reported slot of the block
    total: Floats  # (K,) SB2 of finished blocks
    slots: Floats  # (K,)
    all_slots: Floats  # (1,) t2, the sum of slots over channels
    dropped: Ints  # (1,) number of dropped blocks
    idle: Flags  # (K,) working array: available and not in a block


def new_blocks(K: int) -> Blocks:
    return Blocks(
        origin=np.full(K, -1, np.int64),
        phase=np.zeros(K, np.int64),
        open_sum=np.zeros(K),
        open_slots=np.zeros(K),
        began=np.zeros(K, np.int64),
        last=np.zeros(K, np.int64),
        total=np.zeros(K),
        slots=np.zeros(K),
        all_slots=np.zeros(1),
        dropped=np.zeros(1, np.int64),
        idle=np.zeros(K, np.bool_),
    )


@jit
def drop(blocks: Blocks, k: int) -> None:
    """End the block of channel k without counting it."""
    if blocks.phase[k] != DONE:
        blocks.dropped[0] += 1
    blocks.phase[k] = IDLE


@jit
def begin(blocks: Blocks, k: int, t: int) -> None:
    """Start a block of channel k in slot t."""
    blocks.phase[k] = SB1
    blocks.began[k] = t
    blocks.last[k] = t - 1


@jit
def free_places(blocks: Blocks, slot: Slot, M: int, synchronous: bool) -> int:
    """Drop the blocks of unavailable or silent channels, and those beyond M, and return the number of free places."""
    available = slot.available
    usable, busy, running = 0, 0, 0
    for k in range(available.size):
        usable += available[k]
    for k in range(available.size):
        if blocks.phase[k] != IDLE:
            silent = blocks.phase[k] != DONE and slot.t - blocks.last[k] > PATIENCE
            if not available[k] or silent or busy == M:
                drop(blocks, k)
        busy += blocks.phase[k] != IDLE
        running += (blocks.phase[k] == SB1) | (blocks.phase[k] == SB2)
    if synchronous and running == 0:  # the last block of the round has ended
        for k in range(available.size):
            blocks.phase[k] = IDLE
        busy = 0
    return min(M, usable) - busy


@jit
def start_blocks(blocks: Blocks, slot: Slot, places: int, picks: Ints) -> None:
    """Give the free places to the idle channels with the highest slot.indices. Uses picks as working space."""
    for k in range(slot.indices.size):
        blocks.idle[k] = slot.available[k] & (blocks.phase[k] == IDLE)
    count = top_m(slot.indices, blocks.idle, places, slot.scratch, picks)
    for i in range(count):
        begin(blocks, picks[i], slot.t)


@jit
def playing(blocks: Blocks, picks: Ints) -> int:
    """Write the channels that are in a block into picks, in increasing order, and return their number."""
    count = 0
    for k in range(blocks.phase.size):
        picks[count] = k
        count += blocks.phase[k] != IDLE
    return count


@jit
def observe(blocks: Blocks, k: int, s: int, t: int, value: float, synchronous: bool) -> None:
    """Record that channel k was played in slot t, in state s, with the value that enters the statistics."""
    if blocks.origin[k] < 0:
        blocks.origin[k] = s
    if t < blocks.began[k] or t <= blocks.last[k]:  # belongs to an earlier block, or to SB1 and is late
        return
    if blocks.phase[k] == SB2 and t != blocks.last[k] + 1:
        drop(blocks, k)
        return
    blocks.last[k] = t
    home = s == blocks.origin[k]
    if blocks.phase[k] == SB1:
        if home:
            blocks.phase[k] = SB2
            blocks.open_sum[k] = value
            blocks.open_slots[k] = 1.0
    elif blocks.phase[k] == SB2:
        if home:  # this slot is SB3
            blocks.total[k] += blocks.open_sum[k]
            blocks.slots[k] += blocks.open_slots[k]
            blocks.all_slots[0] += blocks.open_slots[k]
            blocks.phase[k] = DONE if synchronous else IDLE
        else:
            blocks.open_sum[k] += value
            blocks.open_slots[k] += 1.0


@jit
def block_index(blocks: Blocks, k: int, width: float, log_slots: float) -> float:
    """Return mean over SB2 + width sqrt(log_slots / T2_k), with log_slots = L ln t2; inf before the first block."""
    if blocks.slots[k] == 0.0:
        return np.inf
    return blocks.total[k] / blocks.slots[k] + width * math.sqrt(log_slots / blocks.slots[k])


@jit
def log_slots(blocks: Blocks, L: float) -> float:
    """Return L ln t2, for block_index."""
    return L * math.log(max(blocks.all_slots[0], 1.0))


# --- RCA-M ---------------------------------------------------------------------------------------------------------


class Params(NamedTuple):
    L: Annotated[float, AtLeast(0.0), "scale L of the confidence width sqrt(L ln t2 / T2_k)"] = 1.0
    synchronous: Annotated[bool, "refill all places together when the last block ends"] = False


def init(setup: Setup) -> Blocks:
    return new_blocks(setup.K)


@jit
def select(setup: Setup, blocks: Blocks, slot: Slot, picks: Ints) -> int:
    places = free_places(blocks, slot, setup.M, setup.params.synchronous)
    if places > 0:
        log_t2 = log_slots(blocks, setup.params.L)
        for k in range(setup.K):
            slot.indices[k] = block_index(blocks, k, setup.span, log_t2)
        start_blocks(blocks, slot, places, picks)
    return playing(blocks, picks)


@jit
def update(setup: Setup, blocks: Blocks, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    observe(blocks, k, s, slot.t, r, setup.params.synchronous)


@jit
def explain(setup: Setup, blocks: Blocks, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        if blocks.slots[k] > 0.0:
            terms[k, ESTIMATE] = blocks.total[k] / blocks.slots[k]
            terms[k, WIDTH] = setup.span * math.sqrt(log_slots(blocks, setup.params.L) / blocks.slots[k])


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward in blocks", "width of its confidence interval"
