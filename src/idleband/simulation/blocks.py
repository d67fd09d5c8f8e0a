"""Values per block of a replayed recording: replications are aligned by the slot at which they start."""

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.scenario.recording import Recording
from idleband.simulation.statistics import Samples


def block_slots(recording: Recording, t: Ints, replications: int) -> tuple[Ints, Ints]:
    """Return for each replication and checkpoint the block of the slots since the checkpoint before, and their number.

    The ends of blocks are checkpoints, so that these slots lie in one block. The remainder of the recording belongs to
    the last block.
    """
    before = np.append(0, t[:-1])
    first = np.array([recording.first_slot(i) for i in range(replications)])
    blocks = (first[:, None] + before) % recording.T // recording.block
    return np.minimum(blocks, recording.blocks - 1), np.asarray(t - before)


def block_samples(recording: Recording, t: Ints, curve: Floats) -> Samples:
    """Return means per slot of a cumulative value, one for each block that was run.

    Parameters
    ----------
    recording
        The recording that is replayed.
    t
        Checkpoints, which contain the ends of blocks, shape (C,).
    curve
        Cumulative values at the checkpoints, shape (R, C).
    """
    R = len(curve)
    blocks, slots = block_slots(recording, t, R)
    gained = np.diff(curve, axis=1, prepend=0.0)
    total = np.bincount(blocks.ravel(), gained.ravel(), recording.blocks)
    count = np.bincount(blocks.ravel(), np.tile(slots, R), recording.blocks)
    run = count > 0
    return Samples(total[run] / count[run], R, count[run] / count.sum())
