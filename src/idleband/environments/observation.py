"""What an agent of Gymnasium or PettingZoo observes: one row of numbers per slot, from contexts and earlier feedback.

Nothing in it is more than a policy sees in `Slot` and `Feedback`; an agent of PettingZoo is one user, and observes its
own feedback only. The parts of a row, in this order, with one entry per channel unless another number is given:

- `contexts`: the context of every channel in this slot, K d entries
- `available`: 1 if the channel may be selected in this slot, else 0
- `sensed`: sensed state in this slot; only where the scenario senses all channels
- `played`: 1 if the channel was played in the slot before, else 0
- `perturbation`: perturbation that was measured in the slot before, 0 if the channel was not played; only where the
  scenario measures it
- `last_state`: last state that was observed in an earlier slot; -1 before the first observation. Not where users
  observe no states: with `observes` "collisions" or "rewards", unless the scenario senses all channels
- `recency`: 1 / age of that observation, or of the last play, in slots: 1 for the slot before; 0 before the first one
- `last_reward`: reward of the last play; -1 before the first play
- `mean_reward`: mean reward of all plays; -1 before the first play
- `collision`: one entry, 1 if the user collided in the slot before, else 0; only where users observe collisions
- `heard`: one entry per control minislot, 1 if any user sent in it after the slot before

States are divided by the largest state of the channel: a two-state channel is 0 if busy and 1 if idle. Rewards are
rescaled from the range of the scenario's rewards to [0, 1]. Values beyond the limits of the space are clipped: normal
contexts, which have no bounds, to [-3, 4], which is 12 standard deviations, and perturbations to [-10, 10].
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from idleband.arrays import Flags, Floats
from idleband.environments.episode import PERTURBATION, REWARD, STATE, Episode
from idleband.environments.users_episode import ABSENT, COLLISION, UsersEpisode
from idleband.kernels.compile import jit
from idleband.policies.knowledge import setup_of, setup_of_user
from idleband.policies.protocol import Setup
from idleband.scenario.scenario import Scenario
from idleband.scenario.uncoordinated import REWARDS, SENSING
from idleband.simulation.environment import SamplePath

Row = npt.NDArray[np.float32]

NORMAL_LOW, NORMAL_HIGH = -3.0, 4.0  # limits of contexts with a normal margin
LARGEST_PERTURBATION = 10.0


def observed_setup(scenario: Scenario) -> Setup:
    """Return the setup of a policy that observes as much as an agent: for all users, or without a base station for one.

    It contains which feedback there is, and the range of rewards.
    """
    return setup_of(scenario, ()) if scenario.uncoordinated is None else setup_of_user(scenario, (), frozenset(), 0)


def observes_states(scenario: Scenario) -> bool:
    """Return whether any states are observed."""
    return scenario.sensing == "all" or observed_setup(scenario).observes == SENSING


def parts(scenario: Scenario) -> dict[str, tuple[int, float, float]]:
    """Return the parts of an observation in their order: number of entries, smallest and largest value."""
    K, contexts, setup = scenario.K, scenario.contexts, observed_setup(scenario)
    low, high = (0.0, 1.0) if contexts.bounded else (NORMAL_LOW, NORMAL_HIGH)
    found = {"contexts": (K * scenario.dimension, low, high)}
    found["available"] = (K, 0.0, 1.0)
    if scenario.sensing == "all":
        found["sensed"] = (K, 0.0, 1.0)
    found["played"] = (K, 0.0, 1.0)
    if setup.measured:
        found["perturbation"] = (K, -LARGEST_PERTURBATION, LARGEST_PERTURBATION)
    if observes_states(scenario):
        found["last_state"] = (K, -1.0, 1.0)
    found["recency"] = (K, 0.0, 1.0)
    found["last_reward"] = (K, -1.0, 1.0)
    found["mean_reward"] = (K, -1.0, 1.0)
    if scenario.uncoordinated is not None and setup.observes != REWARDS:
        found["collision"] = (1, 0.0, 1.0)
    if setup.control_bits > 0:
        found["heard"] = (scenario.users * setup.control_bits, 0.0, 1.0)
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
    sensing: bool  # whether all states are observed before channels are selected
    measured: bool  # whether the perturbation of a played channel is measured
    states: bool  # whether any states are observed
    state_scale: Floats  # (K,) 1 / largest state
    state: Floats  # (K,) last observed state, divided by the largest one; -1 before the first observation
    slot: Floats  # (K,) slot of that observation, or of the last play, -inf before it
    reward: Floats  # (K,) reward of the last play, rescaled; -1 before the first play
    mean: Floats  # (K,) mean of rescaled rewards; -1 before the first play
    total: Floats  # (K,) sum of rescaled rewards
    plays: Floats  # (K,)
    played: Flags  # (K,) in the slot before
    perturbation: Floats  # (K,) measured in the slot before, else 0
    collision: Floats  # (1,) whether the user collided in the slot before; empty where that is not observed


def new_history(scenario: Scenario) -> History:
    """Return a history without observations."""
    K, setup = scenario.K, observed_setup(scenario)
    return History(
        low=setup.low,
        scale=1.0 / (setup.high - setup.low) if setup.high > setup.low else 0.0,
        unbounded=not scenario.contexts.bounded,
        sensing=scenario.sensing == "all",
        measured=setup.measured,
        states=observes_states(scenario),
        state_scale=np.array([1.0 / max(1, len(P) - 1) for P in scenario.transition]),
        state=np.full(K, -1.0),
        slot=np.full(K, -np.inf),
        reward=np.full(K, -1.0),
        mean=np.full(K, -1.0),
        total=np.zeros(K),
        plays=np.zeros(K),
        played=np.zeros(K, np.bool_),
        perturbation=np.zeros(K),
        collision=np.zeros(parts(scenario).get("collision", (0,))[0]),
    )


@jit
def forget(history: History) -> None:
    """Remove all observations."""
    for k in range(history.state.size):
        history.state[k], history.slot[k] = -1.0, -np.inf
        history.reward[k], history.mean[k], history.total[k], history.plays[k] = -1.0, -1.0, 0.0, 0.0
    forget_slot(history)


@jit
def forget_slot(history: History) -> None:
    """Remove what is only observed of the slot before."""
    for k in range(history.played.size):
        history.played[k], history.perturbation[k] = False, 0.0
    history.collision[:] = 0.0


@jit
def remember_sensed(history: History, path: SamplePath, t: int) -> None:
    """Add the states that were observed before channels were selected in slot t, if any were."""
    if history.sensing:
        sensed = path.observed if path.errors else path.s
        for k in range(sensed.size):
            history.state[k], history.slot[k] = sensed[k] * history.state_scale[k], t


@jit
def remember_play(history: History, t: int, k: int, state: float, reward: float, perturbation: float) -> None:
    """Add the feedback of channel k in slot t."""
    r = min(1.0, max(0.0, (reward - history.low) * history.scale))
    history.played[k] = True
    history.slot[k] = t
    if state >= 0.0:
        history.state[k] = state * history.state_scale[k]
    history.total[k] += r
    history.plays[k] += 1.0
    history.reward[k], history.mean[k] = r, history.total[k] / history.plays[k]
    if history.measured:
        history.perturbation[k] = min(LARGEST_PERTURBATION, max(-LARGEST_PERTURBATION, perturbation))


@jit
def remember(history: History, episode: Episode, t: int, count: int) -> None:
    """Add what was observed in slot t, in which the first `count` channels of `picks` were played."""
    forget_slot(history)
    remember_sensed(history, episode.path, t)
    for i in range(count):
        feedback = episode.feedback
        remember_play(history, t, episode.picks[i], feedback[STATE, i], feedback[REWARD, i], feedback[PERTURBATION, i])


@jit
def remember_user(history: History, episode: UsersEpisode, t: int, j: int) -> None:
    """Add what user j observed in slot t."""
    forget_slot(history)
    k, feedback = episode.choices[j], episode.feedback
    if k == ABSENT:
        return
    remember_sensed(history, episode.path, t)
    if k >= 0:
        remember_play(history, t, k, feedback[STATE, j], feedback[REWARD, j], feedback[PERTURBATION, j])
        for i in range(history.collision.size):
            history.collision[i] = feedback[COLLISION, j]


@jit
def observe(history: History, path: SamplePath, t: int, available: Flags, row: Any) -> int:
    """Write what is observed in slot t, before channels are selected, into a row of float32; return its length."""
    contexts, K = path.contexts, available.size
    for i in range(contexts.size):
        row[i] = contexts[i]
    at = contexts.size
    if history.unbounded:
        for i in range(at):
            row[i] = min(NORMAL_HIGH, max(NORMAL_LOW, contexts[i]))
    for k in range(K):
        row[at + k] = available[k]
    at += K
    if history.sensing:
        sensed = path.observed if path.errors else path.s
        for k in range(K):
            row[at + k] = sensed[k] * history.state_scale[k]
        at += K
    for k in range(K):
        row[at + k] = history.played[k]
    at += K
    if history.measured:
        for k in range(K):
            row[at + k] = history.perturbation[k]
        at += K
    if history.states:
        for k in range(K):
            row[at + k] = history.state[k]
        at += K
    for k in range(K):
        row[at + k] = 1.0 / (t - history.slot[k])
        row[at + K + k] = history.reward[k]
        row[at + 2 * K + k] = history.mean[k]
    return at + 3 * K


@jit
def observe_user(history: History, episode: UsersEpisode, t: int, j: int, row: Any) -> None:
    """Write what user j observes in slot t. A user who is not present observes nothing of the slot."""
    path, tally = episode.path, episode.tally
    at = observe(history, path, t, path.available[(t - 1) % path.available.shape[0]], row)
    for i in range(history.collision.size):
        row[at + i] = history.collision[i]
    at += history.collision.size
    for i in range(tally.minislots.size):
        row[at + i] = tally.minislots[i]
    if not tally.present[j]:
        row[at:] = 0.0
        row[: path.contexts.size + path.s.size * (2 if history.sensing else 1)] = 0.0
