"""What an agent of Gymnasium observes: one row of numbers per slot, made from contexts and from earlier feedback.

Nothing in it is more than a policy sees in `Slot` and `Feedback`. The parts of a row, in this order, with one entry per
channel unless another number is given:

- `contexts`: the context of every channel in this slot, K d entries
- `available`: 1 if the channel may be selected in this slot, else 0
- `sensed`: sensed state in this slot; only where the scenario senses all channels
- `played`: 1 if the channel was played in the slot before, else 0
- `perturbation`: perturbation that was measured in the slot before, 0 if the channel was not played; only where the
  scenario measures it
- `last_state`: last state that was observed in an earlier slot; -1 before the first observation
- `recency`: 1 / age of that observation, in slots: 1 for the slot before; 0 before the first observation
- `last_reward`: reward of the last play; -1 before the first play
- `mean_reward`: mean reward of all plays; -1 before the first play

States are divided by the largest state of the channel: a two-state channel is 0 if busy and 1 if idle. Rewards are
rescaled from the range of the scenario's rewards to [0, 1]. Values beyond the limits of the space are clipped: normal
contexts, which have no bounds, to [-3, 4], which is 12 standard deviations, and perturbations to [-10, 10].
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from idleband.arrays import Flags, Floats
from idleband.environments.episode import PERTURBATION, REWARD, STATE, Episode
from idleband.kernels.compile import jit
from idleband.scenario.scenario import Scenario
from idleband.simulation.environment import sensed_states

Row = npt.NDArray[np.float32]

NORMAL_LOW, NORMAL_HIGH = -3.0, 4.0  # limits of contexts with a normal margin
LARGEST_PERTURBATION = 10.0


def parts(scenario: Scenario) -> dict[str, tuple[int, float, float]]:
    """Return the parts of an observation in their order: number of entries, smallest and largest value."""
    K, contexts = scenario.K, scenario.contexts
    low, high = (0.0, 1.0) if contexts.bounded else (NORMAL_LOW, NORMAL_HIGH)
    found = {"contexts": (K * scenario.dimension, low, high)}
    found["available"] = (K, 0.0, 1.0)
    if scenario.sensing == "all":
        found["sensed"] = (K, 0.0, 1.0)
    found["played"] = (K, 0.0, 1.0)
    if scenario.feedback == "perturbation":
        found["perturbation"] = (K, -LARGEST_PERTURBATION, LARGEST_PERTURBATION)
    found["last_state"] = (K, -1.0, 1.0)
    found["recency"] = (K, 0.0, 1.0)
    found["last_reward"] = (K, -1.0, 1.0)
    found["mean_reward"] = (K, -1.0, 1.0)
    return found


def layout(scenario: Scenario) -> dict[str, slice]:
    """Return where each part of an observation is.

    >>> import idleband as ib
    >>> layout(ib.scenario("S1"))["recency"]
    slice(120, 130, None)
    """
    found, first = {}, 0
    for name, (size, _, _) in parts(scenario).items():
        found[name] = slice(first, first + size)
        first += size
    return found


def limits(scenario: Scenario) -> tuple[Row, Row]:
    """Return the smallest and the largest value of each entry."""
    described = parts(scenario).values()
    low, high = (np.concatenate([np.full(part[0], part[i], np.float32) for part in described]) for i in (1, 2))
    return low, high


class History(NamedTuple):
    """What has been observed in an episode, as the entries of an observation where possible."""

    low: float  # smallest reward
    scale: float  # 1 / range of rewards
    unbounded: bool  # whether contexts have no bounds
    state_scale: Floats  # (K,) 1 / largest state
    state: Floats  # (K,) last observed state, divided by the largest one; -1 before the first observation
    slot: Floats  # (K,) slot of that observation, -inf before it
    reward: Floats  # (K,) reward of the last play, rescaled; -1 before the first play
    mean: Floats  # (K,) mean of rescaled rewards; -1 before the first play
    total: Floats  # (K,) sum of rescaled rewards
    plays: Floats  # (K,)
    played: Flags  # (K,) in the slot before
    perturbation: Floats  # (K,) measured in the slot before, else 0


def new_history(scenario: Scenario) -> History:
    """Return a history without observations."""
    K, (low, high) = scenario.K, scenario.reward_range()
    return History(
        low=low,
        scale=1.0 / (high - low) if high > low else 0.0,
        unbounded=not scenario.contexts.bounded,
        state_scale=np.array([1.0 / max(1, len(P) - 1) for P in scenario.transition]),
        state=np.full(K, -1.0),
        slot=np.full(K, -np.inf),
        reward=np.full(K, -1.0),
        mean=np.full(K, -1.0),
        total=np.zeros(K),
        plays=np.zeros(K),
        played=np.zeros(K, np.bool_),
        perturbation=np.zeros(K),
    )


@jit
def forget(history: History) -> None:
    """Remove all observations."""
    for k in range(history.state.size):
        history.state[k], history.slot[k] = -1.0, -np.inf
        history.reward[k], history.mean[k], history.total[k], history.plays[k] = -1.0, -1.0, 0.0, 0.0
        history.played[k], history.perturbation[k] = False, 0.0


@jit
def remember(history: History, episode: Episode, t: int, count: int) -> None:
    """Add what was observed in slot t, in which the first `count` channels of `picks` were played."""
    for k in range(history.played.size):
        history.played[k], history.perturbation[k] = False, 0.0
    if episode.sensing:
        path = episode.path
        sensed = sensed_states(True, path.errors, path.s, path.observed, episode.hidden)
        for k in range(sensed.size):
            history.state[k], history.slot[k] = sensed[k] * history.state_scale[k], t
    for i in range(count):
        k = episode.picks[i]
        r = min(1.0, max(0.0, (episode.feedback[REWARD, i] - history.low) * history.scale))
        history.played[k] = True
        history.state[k], history.slot[k] = episode.feedback[STATE, i] * history.state_scale[k], t
        history.total[k] += r
        history.plays[k] += 1.0
        history.reward[k], history.mean[k] = r, history.total[k] / history.plays[k]
        if episode.measured:
            n = episode.feedback[PERTURBATION, i]
            history.perturbation[k] = min(LARGEST_PERTURBATION, max(-LARGEST_PERTURBATION, n))


@jit
def observe(history: History, episode: Episode, t: int, available: Flags, row: Any) -> None:
    """Write what is observed in slot t, before channels are selected, into a row of float32."""
    path, contexts, K = episode.path, episode.path.contexts, available.size
    for i in range(contexts.size):
        row[i] = contexts[i]
    at = contexts.size
    if history.unbounded:
        for i in range(at):
            row[i] = min(NORMAL_HIGH, max(NORMAL_LOW, contexts[i]))
    for k in range(K):
        row[at + k] = available[k]
    at += K
    if episode.sensing:
        sensed = sensed_states(True, path.errors, path.s, path.observed, episode.hidden)
        for k in range(K):
            row[at + k] = sensed[k] * history.state_scale[k]
        at += K
    for k in range(K):
        row[at + k] = history.played[k]
    at += K
    if episode.measured:
        for k in range(K):
            row[at + k] = history.perturbation[k]
        at += K
    for k in range(K):
        row[at + k] = history.state[k]
        row[at + K + k] = 1.0 / (t - history.slot[k])
        row[at + 2 * K + k] = history.reward[k]
        row[at + 3 * K + k] = history.mean[k]
