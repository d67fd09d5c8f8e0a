"""Values per block of a replayed recording: replications are aligned by the slot at which they start."""

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.scenario.recording import Recording
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Scenario
from idleband.simulation.path import path_parameters
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


def block_reference(scenario: Scenario, seed: int, t: Ints, replications: int) -> float:
    """Return the mean reward per slot of the best fixed set of channels of each block, chosen in hindsight.

    As in the static reference, rewards are means given the perturbation model.
    """
    recording = scenario.recording
    assert recording is not None
    blocks, slots = block_slots(recording, t, replications)
    levels = [_best_of_blocks(scenario, recording, seed, i) for i in range(replications)]
    return float(np.mean([level[row] @ slots for level, row in zip(levels, blocks, strict=True)])) / float(t[-1])


def _best_of_blocks(scenario: Scenario, recording: Recording, seed: int, replication: int) -> Floats:
    """Return the reward per slot of the best fixed set of each block, shape (blocks,)."""
    theta, means = path_parameters(scenario, seed, replication)
    if scenario.recorded_rewards:
        change = recording.block_means(recording.trace.reward) - scenario.mean_h
    else:
        change = recording.block_means(recording.trace.idle) - recording.idle_share
        if scenario.reward == "threshold":
            clear, negative = (scenario.probabilities_below(theta, level)[0] for level in (1.0, 0.0))
            change = change * (HIGH - LOW) * (clear - negative)
        else:
            change = change * np.array([h[1] - h[0] for h in scenario.rewards])
    in_block = means + scenario.reward_factor * change
    best = [-np.sort(-in_block[:, row], axis=1)[:, : scenario.users].sum(axis=1) for row in scenario.available]
    return np.asarray(np.mean(best, axis=0))
