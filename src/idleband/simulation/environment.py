"""One sample path of a scenario, slot by slot: states, contexts, perturbations and observations.

It does not depend on the policy. All state is kept in arrays, so that a caller can advance it in segments.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng
from idleband.scenario.channel_process import ChannelProcess, enter_states, next_states, playback_row
from idleband.scenario.contexts import ContextProcess, next_contexts
from idleband.scenario.noise import add_noise
from idleband.scenario.perturbation import perturb
from idleband.scenario.reward import expected_noisy_reward, expected_reward, reward
from idleband.scenario.sensing_errors import observe_states


class SamplePath(NamedTuple):
    """One sample path of a scenario at some slot. It does not depend on the policy."""

    state_rng: Rng  # (2,)
    context_rng: Rng  # (2,)
    sensing_rng: Rng  # (2,)
    noise_rng: Rng  # (2,)
    process: ChannelProcess
    context: ContextProcess
    h: Floats  # (K, S)
    good: Flags  # (K, S)
    mean_h: Floats  # (K,) stationary mean of h
    good_share: Floats  # (K,) stationary share of good states
    available: Flags  # (P, K) rows used in turn, slot by slot
    reward: int  # kind of reward
    factor: float  # share of a slot that is left after sensing
    switching_cost: float  # reward lost for a channel that was not played in the slot before
    model: int  # kind of perturbation
    theta: Floats  # (K, size) the model's parameters in this slot
    theta_ends: Floats  # (2, K, size) at the start and at the end of a drift; empty if theta does not move
    drift: int  # slots of the drift
    noise: float  # standard deviation of the noise
    errors: bool  # whether there are sensing errors
    missed: Floats  # (K,) probability that a busy channel is observed as idle
    false_alarm: Floats  # (K,) probability that an idle channel is observed as busy
    u: Floats  # (K,) working array
    s: Ints  # (K,) states
    observed: Ints  # (K,) states as sensors see them; only with sensing errors
    contexts: Floats  # (K*d,) the same memory as x, flat
    x: Floats  # (K, d)
    f: Floats  # (K,) perturbations without noise, the means given the contexts; n itself where there is no noise
    n: Floats  # (K,) perturbations
    fault: Floats  # (4,) faults of a user's model
    expected: Floats  # (K,) E[r | x]
    rewards: Floats  # (K,) reward of each channel (references only)
    scratch: Floats  # (2K,)


@jit
def enter(path: SamplePath) -> None:
    """Draw the states before slot 1 from their stationary distribution."""
    enter_states(path.process, path.state_rng, path.u, path.s)


@jit
def advance(path: SamplePath) -> None:
    """Advance by one slot: new states, contexts, perturbations and observations."""
    next_states(path.process, path.state_rng, path.u, path.s)
    next_contexts(path.context, path.context_rng, path.contexts)
    if path.drift > 0:
        move_theta(path)
    perturb(path.model, path.theta, path.x, path.f if path.noise > 0.0 else path.n, path.fault)
    if path.noise > 0.0:
        make_noisy(path)
    else:
        for k in range(path.s.size):
            path.expected[k] = expected_reward(path.reward, path.mean_h[k], path.good_share[k], path.n[k])
    if path.errors:
        observe_states(path.missed, path.false_alarm, path.sensing_rng, path.u, path.s, path.observed)


@jit
def make_noisy(path: SamplePath) -> None:
    """Write perturbations with noise, and expected rewards given the contexts."""
    add_noise(path.f, path.noise, path.noise_rng, path.n)
    for k in range(path.s.size):
        mean_h, good_share = path.mean_h[k], path.good_share[k]
        path.expected[k] = expected_noisy_reward(path.reward, mean_h, good_share, path.f[k], path.noise)


@jit
def move_theta(path: SamplePath) -> None:
    """Move theta along the straight line of its drift."""
    share = min(1.0, path.process.slot[0] / path.drift)
    for k in range(path.theta.shape[0]):
        for i in range(path.theta.shape[1]):
            first = path.theta_ends[0, k, i]
            path.theta[k, i] = first + share * (path.theta_ends[1, k, i] - first)


@jit
def state_reward(path: SamplePath, k: int, s: int) -> float:
    """Return the reward of channel k in state s without perturbation; the recorded one where rewards are replayed."""
    if path.process.playback.rewards.shape[0] > 0:
        return path.process.playback.rewards[playback_row(path.process), k]
    return path.h[k, s]


@jit
def sensed_states(sensing: bool, errors: bool, s: Ints, observed: Ints, hidden: Ints) -> Ints:
    """Return the states that are observed before channels are selected: of no channel, or of all, perhaps with errors.

    The arrays are arguments because compiled code cannot return arrays of other origin.
    """
    if not sensing:
        return hidden
    if errors:
        return observed
    return s


@jit
def play(
    path: SamplePath, k: int, t: int, last_pick: Ints, measured: bool, slot_reward: float
) -> tuple[float, bool, int, float, float]:
    """Play channel k in slot t; return the reward of the slot with it, whether it is good, and its feedback.

    The feedback is the observed state, the reward and the perturbation. Costs of sensing and switching are not part of
    it. `last_pick` contains the slot in which each channel was played last.
    """
    switches = path.switching_cost > 0.0 and t > 1 and last_pick[k] != t - 1
    last_pick[k] = t
    s = path.s[k]
    good = path.good[k, s]
    r = reward(path.reward, state_reward(path, k, s), good, path.n[k])
    slot_reward += path.factor * r
    if switches:
        slot_reward -= path.switching_cost
    if path.errors:  # the reward that belongs to the observed state
        s = path.observed[k]
        r = reward(path.reward, state_reward(path, k, s), path.good[k, s], path.n[k])
    return slot_reward, good, s, r, path.n[k] if measured else np.nan
