"""An episode: one sample path that an agent plays slot by slot, with the same functions as the simulation loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import compile
from idleband.kernels.compile import jit
from idleband.kernels.packed_state import PackedState
from idleband.scenario.scenario import Scenario
from idleband.simulation.environment import SamplePath, play, sensed_states
from idleband.simulation.loop import add
from idleband.simulation.path import new_path, path_parameters
from idleband.simulation.run import model_bindings

STATE, REWARD, PERTURBATION = range(3)  # rows of `feedback`


class Episode(NamedTuple):
    """A sample path with what is played on it."""

    path: SamplePath
    M: int  # number of channels to select in a slot
    measured: bool  # whether the perturbation of a played channel is measured
    sensing: bool  # whether all states are observed before channels are selected
    hidden: Ints  # (K,) of -1, what is observed otherwise
    last_pick: Ints  # (K,) slot in which a channel was played last
    picks: Ints  # (K,) channels that are played in the slot
    feedback: Floats  # (3, K) state, reward and perturbation of each of them
    earned: Floats  # (2,) reward so far, and its rounding error


def new_episode(scenario: Scenario, seed: int, replication: int) -> Episode:
    """Return an episode before its first slot, in memory of its own."""
    K, theta = scenario.K, path_parameters(scenario, seed, replication)[0]
    return Episode(
        path=new_path(scenario, seed, replication, theta.copy()),
        M=scenario.users,
        measured=scenario.feedback == "perturbation",
        sensing=scenario.sensing == "all",
        hidden=np.full(K, -1, np.int64),
        last_pick=np.zeros(K, np.int64),
        picks=np.zeros(K, np.int64),
        feedback=np.zeros((3, K)),
        earned=np.zeros(2),
    )


def restart(episode: Episode, scenario: Scenario, seed: int, replication: int) -> None:
    """Start another sample path of the scenario in the memory of an episode."""
    _overwrite(episode, new_episode(scenario, seed, replication))


def _overwrite(mine: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Copy the arrays in nested tuples into those of another one, except arrays that all paths share."""
    for a, b in zip(mine, other, strict=True):
        if a is b:
            continue
        if isinstance(a, tuple):
            _overwrite(a, b)
        elif isinstance(a, np.ndarray) and (a.base is None or not np.may_share_memory(a, b)):
            a[...] = b


def shown_states(episode: Episode) -> Ints:
    """Return the array of the states that are observed before channels are selected, which each slot overwrites."""
    function: Callable[..., Ints] = getattr(sensed_states, "py_func", sensed_states)
    path = episode.path
    return function(episode.sensing, path.errors, path.s, path.observed, episode.hidden)


def bind_model(kernel: Callable[..., Any], scenario: Scenario, packed: PackedState) -> Callable[..., Any]:
    """Return a kernel for packed episodes of a scenario, compiled, with the scenario's perturbation model."""
    functions, name, cacheable, allocates = model_bindings(scenario.perturbation.model)
    bound: Callable[..., Any] = compile.specialise(
        kernel,
        f"{kernel.__name__}_{packed.kind}_{name}",
        functions | {"unpack": packed.unpack},
        cached=cacheable,
        allocates=allocates,
    )
    return bound


@jit
def play_slot(episode: Episode, t: int, count: int) -> float:
    """Play the first `count` channels of `picks` in slot t; return what they earn together."""
    slot_reward = 0.0
    for i in range(count):
        slot_reward, _, s, r, n = play(
            episode.path, episode.picks[i], t, episode.last_pick, episode.measured, slot_reward
        )
        episode.feedback[STATE, i] = s
        episode.feedback[REWARD, i] = r
        episode.feedback[PERTURBATION, i] = n
    episode.earned[0], episode.earned[1] = add(episode.earned[0], episode.earned[1], slot_reward)
    return slot_reward
