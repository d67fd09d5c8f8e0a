"""Copies of a scenario that are stepped together by one compiled function, and observed as rows of numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband import validation
from idleband.arrays import Flags, Floats
from idleband.environments.episode import Episode, bind_model, new_episode, overwrite, play_slot
from idleband.environments.observation import Row, forget, limits, new_history, observe, remember
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.compile import INTERPRETED
from idleband.kernels.packed_state import pack
from idleband.kernels.selection import top_m
from idleband.scenario.build import ScenarioLike
from idleband.scenario.build import scenario as build_scenario
from idleband.simulation.environment import advance, enter
from idleband.simulation.path import draw_ahead, prepare_drawing
from idleband.simulation.run import check_model, named_model
from idleband.simulation.simulate import MAX_REPLICATIONS, check_size
from idleband.validation import WholeNumber

DEFAULT_HORIZON = 1000  # slots of an episode
MAX_COPIES = 2**20

# Stand-in: `bind_model` binds the function that finds the memory of a copy to this name.
unpack: Callable[[Any], Any] = NotImplemented


class Copies:
    """N copies of a scenario in the same slot, on different sample paths."""

    def __init__(self, scenario: ScenarioLike, horizon: WholeNumber | None, count: WholeNumber) -> None:
        self.scenario = build_scenario(scenario)
        self.horizon = check_size(self.scenario, horizon, 1, 0, DEFAULT_HORIZON)[0]
        self.count = validation.whole(count, "num_envs", 1, MAX_COPIES)
        self.low, self.high = limits(self.scenario)
        self.rows = self.scenario.available
        self.t = 0  # slot that is played next; 0 before the first restart
        self.seed, self.first = 0, 0  # copy i plays replication first + i of the seed
        self._places = [min(self.scenario.users, int(row.sum())) for row in self.rows]
        with named_model(self.scenario.perturbation.model, alone=True):
            packed = [pack((new_episode(self.scenario, 0, 0), new_history(self.scenario))) for _ in range(self.count)]
            self._values = [one.values for one in packed]  # keeps the memory that the blocks point to
            self._blocks = self._values if INTERPRETED else np.stack([one.block for one in packed])
            self._restart = bind_model(begin_copies, self.scenario, packed[0])
            self._step = bind_model(step_copies, self.scenario, packed[0])

    @property
    def started(self) -> bool:
        """Whether there is a slot to play."""
        return 0 < self.t <= self.horizon

    @property
    def available(self) -> Flags:
        """Which channels may be selected in this slot, shape (K,)."""
        return np.asarray(self.rows[(self.t - 1) % len(self.rows)])

    @property
    def places(self) -> int:
        """How many channels are selected in this slot."""
        return self._places[(self.t - 1) % len(self.rows)]

    def episode(self, i: int) -> Episode:
        """Return the memory of a copy."""
        found: Episode = self._values[i][0]
        return found

    def restart(self, seed: int, first: int) -> Row:
        """Start the replications from `first` on of a seed; return what is observed in slot 1, one row per copy."""
        if first + self.count > MAX_REPLICATIONS:
            raise InputError(f"replication = {first}: a seed has replications from 0 to {MAX_REPLICATIONS - 1}")
        self.seed, self.first = seed, first
        prepare_drawing(self.scenario, self.count)
        for i in range(self.count):
            draw_ahead(self.scenario, seed, first + i, first + self.count)
            overwrite(self.episode(i), new_episode(self.scenario, seed, first + i))
        observations: Row = np.empty((self.count, self.low.size), np.float32)
        self.t = 1
        self._run(self._restart, self._blocks, observations)
        return observations

    def step(self, scores: Floats) -> tuple[Row, Floats, Flags]:
        """Play the available channels with the largest scores in every copy.

        Parameters
        ----------
        scores
            Shape (N, K). Of equal scores the lower channel is played.

        Returns
        -------
        tuple
            What is observed in the next slot, one row per copy; rewards, shape (N,); played channels, shape (N, K).
        """
        observations: Row = np.empty((self.count, self.low.size), np.float32)
        rewards, played = np.empty(self.count), np.empty((self.count, self.scenario.K), np.bool_)
        t, self.t = self.t, self.t + 1
        self._run(self._step, self._blocks, t, scores, observations, rewards, played)
        return observations, rewards, played

    def _run(self, kernel: Callable[..., Any], *arguments: Any) -> None:
        model = self.scenario.perturbation.model
        if model.source is None:
            compile.call(kernel, *arguments)
            return
        with named_model(model, alone=True):
            compile.call(kernel, *arguments)
        for i in range(self.count):
            check_model(self.scenario, self.episode(i).path.fault)


# --- kernels ---------------------------------------------------------------------------------------------------------


def begin_copies(blocks: Any, observations: npt.NDArray[np.float32]) -> None:
    """Draw the states of every copy before slot 1, advance to it, and write the observations."""
    for i in range(len(blocks)):
        episode, history = unpack(blocks[i])
        forget(history)
        enter(episode.path)
        advance(episode.path)
        observe(history, episode.path, 1, episode.path.available[0], observations[i])


def step_copies(
    blocks: Any, t: int, scores: Floats, observations: npt.NDArray[np.float32], rewards: Floats, played: Flags
) -> None:
    """Play slot t in every copy, advance to the next one, and write observations, rewards and played channels."""
    for i in range(len(blocks)):
        episode, history = unpack(blocks[i])
        path = episode.path
        rows = path.available.shape[0]
        count = top_m(scores[i], path.available[(t - 1) % rows], episode.M, path.scratch, episode.picks)
        rewards[i] = play_slot(episode, t, count)
        remember(history, episode, t, count)
        for k in range(history.played.size):
            played[i, k] = history.played[k]
        advance(path)
        observe(history, path, t + 1, path.available[t % rows], observations[i])
