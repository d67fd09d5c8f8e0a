"""A scenario as an environment of Gymnasium, `idleband/Channels-v1`, alone and as a vector of copies."""

from typing import Any, ClassVar

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats
from idleband.environments.actions import Actions
from idleband.environments.copies import Copies
from idleband.environments.observation import Row, layout
from idleband.environments.rendering import Film
from idleband.environments.replications import Replications
from idleband.errors import InputError, shown
from idleband.scenario.build import ScenarioLike
from idleband.validation import WholeNumber

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ModuleNotFoundError as error:
    raise InputError(f"idleband/Channels-v1 needs {error.name}; pip install 'idleband[gym]'") from None

Bits = np.ndarray[Any, np.dtype[np.int8]]


class ChannelsEnv(gymnasium.Env[Row, Any]):
    """A scenario as an environment of Gymnasium: select channels for M users, slot by slot.

    Made by ``gymnasium.make("idleband/Channels-v1", scenario=...)``. An episode is a sample path of
    `idleband.simulate`: ``reset(seed=s)`` starts replication 0 of seed s, and each further ``reset()`` the next
    replication; ``reset(options={"replication": r})`` chooses one. Episodes are truncated at the horizon and never
    terminate.

    The observation is a flat array of float32, whose parts are listed in `layout`. ``info["action_mask"]`` contains
    which channels may be selected in the next slot, ``info["played"]`` which were played in this one.

    Parameters
    ----------
    scenario : str, Path, dict, Trace or Scenario
        The scenario, as in `idleband.scenario`; S1 by default.
    horizon : int, optional
        Slots of an episode; by default 1,000, or the number of slots of the trace if one is replayed.
    actions : {"channels", "scores"}
        "channels": the action is ``MultiBinary(K)``, with M ones. "scores": it is a ``Box`` with a score for each
        channel, and the M available channels with the largest scores are played, of equal ones the lowest.
    invalid : {"project", "error"}, optional
        What happens to an action with other than M ones, or with channels that are not available. By default it is
        projected: the available channels with ones come first, then those with zeros, by index, and the first M are
        played. "error" raises an `InputError`.
    render_mode : {"rgb_array"}, optional
        Draw the last 60 slots: one row per channel, blue if observed idle, orange if observed busy, grey if not
        observed, white if not available, with a black square if played.

    Attributes
    ----------
    layout : dict
        The slice of the observation in which each part is.

    Examples
    --------
    >>> import gymnasium
    >>> import idleband
    >>> environment = gymnasium.make("idleband/Channels-v1", scenario="S1", horizon=100)
    >>> observation, info = environment.reset(seed=0)
    >>> observation.shape, int(info["action_mask"].sum())
    ((150,), 10)
    >>> observation, reward, terminated, truncated, info = environment.step([1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
    >>> observation[environment.unwrapped.layout["played"]].astype(int).tolist()
    [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}  # type: ignore[misc]

    def __init__(
        self,
        scenario: ScenarioLike = "S1",
        horizon: WholeNumber | None = None,
        actions: str = "channels",
        invalid: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._copies = Copies(scenario, horizon, 1)
        self._actions = Actions(self._copies.scenario, actions, invalid)
        self.layout = layout(self._copies.scenario)
        self.observation_space = spaces.Box(self._copies.low, self._copies.high, dtype=np.float32)
        self.action_space = action_space(self._actions)
        self.render_mode = render_mode if render_mode is None else validation.choice(
            render_mode, "render_mode", self.metadata["render_modes"]
        )  # fmt: skip
        self._film = None if render_mode is None else Film(self._copies.scenario)
        self._sequence = Replications()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        """Start an episode.

        Parameters
        ----------
        seed : int, optional
            Start replication 0 of this seed; without a seed the next replication, or at first a random seed.
        options : dict, optional
            ``{"replication": r}`` starts replication r.

        Returns
        -------
        tuple
            Observation and info.
        """
        super().reset(seed=seed)
        path = self._sequence.next(seed, options, 1, self.np_random)
        observations = self._copies.restart(*path)
        if self._film is not None:
            self._film.restart(self._copies.episode(0), self._copies.available)
        return observations[0], {"action_mask": self._copies.available.copy(), "seed": path[0], "replication": path[1]}

    def step(self, action: Any) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        """Play a slot.

        Parameters
        ----------
        action : array, shape (K,)
            Channels as zeros and ones, or a score for each channel.

        Returns
        -------
        tuple
            Observation, reward, terminated (always False), truncated and info.
        """
        copies = self._copies
        check_started(copies)
        scores = self._actions.scores(action, 1, copies.available, copies.places)
        observations, rewards, played = copies.step(scores)
        if self._film is not None:
            self._film.add(copies.episode(0), played[0], copies.available)
        info = {"action_mask": copies.available.copy(), "played": played[0]}
        return observations[0], float(rewards[0]), False, not copies.started, info

    def render(self) -> Any:
        """Return an image of the last slots, shape (height, width, 3); None without a render mode."""
        if self._film is None:
            gymnasium.logger.warn("render: give render_mode='rgb_array' to gymnasium.make")
            return None
        return self._film.draw()


class ChannelsVectorEnv(VectorEnv[Row, Any, np.ndarray]):
    """Copies of `ChannelsEnv` that are stepped together by one compiled function.

    Made by ``gymnasium.make_vec("idleband/Channels-v1", num_envs=..., scenario=...)``. ``reset(seed=s)`` starts
    replication i of seed s in copy i; the episodes after that are the replications from `num_envs` on, and so forth, so
    that no sample path is played twice. All copies are in the same slot. When they reach the horizon they are
    truncated, and the next `step` ignores its actions and starts the next episodes (`AutoresetMode.NEXT_STEP`).

    Parameters
    ----------
    scenario : str, Path, dict, Trace or Scenario
        The scenario, as in `idleband.scenario`; S1 by default.
    num_envs : int
        Number of copies.
    horizon, actions, invalid
        As in `ChannelsEnv`.
    render_mode : None
        Copies are not drawn.

    Examples
    --------
    >>> import gymnasium
    >>> import idleband
    >>> copies = gymnasium.make_vec("idleband/Channels-v1", num_envs=64, scenario="S1", actions="scores")
    >>> observations, infos = copies.reset(seed=0)
    >>> observations, rewards, terminations, truncations, infos = copies.step(copies.action_space.sample())
    >>> observations.shape, rewards.shape
    ((64, 150), (64,))
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        scenario: ScenarioLike = "S1",
        num_envs: WholeNumber = 1,
        horizon: WholeNumber | None = None,
        actions: str = "channels",
        invalid: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise InputError(f"render_mode = {shown(render_mode)}: a vector of copies is not drawn; leave it out")
        self._copies = Copies(scenario, horizon, num_envs)
        self._actions = Actions(self._copies.scenario, actions, invalid)
        self.num_envs = self._copies.count
        self.layout = layout(self._copies.scenario)
        self.single_observation_space = spaces.Box(self._copies.low, self._copies.high, dtype=np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space = action_space(self._actions)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._sequence = Replications()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        """Start an episode in every copy.

        Parameters
        ----------
        seed : int, optional
            Start replication i of this seed in copy i; without a seed the next replications, or at first a random seed.
        options : dict, optional
            ``{"replication": r}`` starts replication r + i in copy i.

        Returns
        -------
        tuple
            Observations, one row per copy, and infos.
        """
        super().reset(seed=seed)
        path = self._sequence.next(seed, options, self.num_envs, self.np_random)
        return self._copies.restart(*path), self._infos(None)

    def step(self, actions: Any) -> tuple[Row, Floats, Flags, Flags, dict[str, Any]]:
        """Play a slot in every copy, or start the next episodes if the last slot has been played.

        Parameters
        ----------
        actions : array, shape (num_envs, K)
            Channels as zeros and ones, or a score for each channel.

        Returns
        -------
        tuple
            Observations, rewards, terminations (all False), truncations and infos.
        """
        copies, N = self._copies, self.num_envs
        if copies.t > copies.horizon:
            observations, infos = self.reset()
            return observations, np.zeros(N), np.zeros(N, np.bool_), np.zeros(N, np.bool_), infos
        check_started(copies)
        scores = self._actions.scores(actions, N, copies.available, copies.places)
        observations, rewards, played = copies.step(scores)
        return observations, rewards, np.zeros(N, np.bool_), np.full(N, not copies.started), self._infos(played)

    def _infos(self, played: Flags | None) -> dict[str, Any]:
        """Return infos as Gymnasium stacks them: each with an array that tells which copies have it."""
        every = np.ones(self.num_envs, np.bool_)
        found: dict[str, Any] = {
            "action_mask": np.repeat(self._copies.available[None], self.num_envs, axis=0),
            "_action_mask": every,
        }
        if played is None:
            found["seed"], found["_seed"] = np.full(self.num_envs, self._copies.seed), every.copy()
            found["replication"] = self._copies.first + np.arange(self.num_envs)
            found["_replication"] = every.copy()
        else:
            found["played"], found["_played"] = played, every.copy()
        return found


def action_space(actions: Actions) -> Any:
    """Return the space of the actions of one environment."""
    K = actions.scenario.K
    return spaces.Box(-1.0, 1.0, (K,), np.float32) if actions.form == "scores" else spaces.MultiBinary(K)


def check_started(copies: Copies) -> None:
    """Refuse a step before the first reset or after the last slot."""
    if copies.t == 0:
        raise InputError("step: the environment has not been started; call reset first")
    if copies.t > copies.horizon:
        raise InputError(f"step: the episode of {copies.horizon} slots is over; call reset")
