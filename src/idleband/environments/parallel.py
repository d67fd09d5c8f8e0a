"""A scenario without a base station as a parallel environment of PettingZoo: each user is an agent."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from idleband import validation
from idleband.environments.copies import DEFAULT_HORIZON
from idleband.environments.episode import bind_model, run_kernel
from idleband.environments.observation import (
    Row,
    forget,
    layout,
    limits,
    new_history,
    observe_user,
    remember_user,
)  # fmt: skip
from idleband.environments.replications import Replications
from idleband.environments.users_episode import SILENT, UsersSlots, begin_users, play_users, send_users
from idleband.errors import InputError, shown
from idleband.kernels.compile import INTERPRETED
from idleband.kernels.packed_state import pack
from idleband.scenario.build import ScenarioLike
from idleband.simulation.environment import advance, enter
from idleband.simulation.run import named_model
from idleband.validation import WholeNumber

try:
    from gymnasium import spaces
    from gymnasium.utils import EzPickle, seeding
    from pettingzoo import ParallelEnv
except ModuleNotFoundError as error:
    raise InputError(f"idleband.environments.parallel needs {error.name}; pip install 'idleband[gym]'") from None

INVALID = ("silent", "error")

# Stand-in: `bind_model` binds the function that finds the memory of a user to this name.
unpack: Callable[[Any], Any] = NotImplemented


class UsersParallelEnv(ParallelEnv[str, Row, Any], EzPickle):  # type: ignore[misc]
    """A scenario without a base station as a parallel environment of PettingZoo.

    The agents are ``"user_0"``, ``"user_1"``, and so on. An episode is a sample path of `idleband.simulate`:
    ``reset(seed=s)`` starts replication 0 of seed s, and each further ``reset()`` the next replication;
    ``reset(options={"replication": r})`` chooses one. Agents are truncated at the horizon.

    An agent is one of `agents` from the first arrival of the user to its last departure, with which it terminates.
    While the user is away in between, the agent observes nothing of the slot and can only be silent; when it comes
    back, what it had observed is forgotten. Slots without an agent are skipped.

    The action is a channel, or K to stay silent: ``Discrete(K + 1)``. Where there are control minislots it is
    ``MultiDiscrete([K + 1, n + 1, ..., n + 1])``: after the channel come `control_bits` numbers of minislots in which
    the user sends after the slot, or n for none, where n = users * control_bits. They are chosen before the feedback of
    the slot is known. ``infos[agent]["action_mask"]`` masks channels that are not available, in the form that
    ``action_space(agent).sample(mask)`` takes.

    The observation is a flat array of float32, whose parts are listed in `layout`. It contains what the user observed
    itself, and nothing that the scenario hides from users.

    Parameters
    ----------
    scenario : str, Path, dict, Trace or Scenario
        The scenario, as in `idleband.scenario`, with ``users={"coordination": "none"}``.
    horizon : int, optional
        Slots of an episode; by default 1,000, or the number of slots of the trace if one is replayed.
    invalid : {"silent", "error"}
        What happens to a user that chooses a channel that is not available, or any channel while it is away: it stays
        silent, or an `InputError` is raised.

    Attributes
    ----------
    layout : dict
        The slice of the observation in which each part is.

    Examples
    --------
    >>> import idleband as ib
    >>> from idleband.environments.parallel import parallel_env
    >>> environment = parallel_env(ib.scenario("S1", users={"count": 3, "coordination": "none"}), horizon=100)
    >>> observations, infos = environment.reset(seed=0)
    >>> environment.agents, observations["user_0"].shape
    (['user_0', 'user_1', 'user_2'], (151,))
    >>> observations, rewards, terminations, truncations, infos = environment.step(
    ...     {"user_0": 4, "user_1": 4, "user_2": 10}
    ... )
    >>> rewards["user_0"], rewards["user_2"]
    (0.0, 0.0)
    >>> [float(observations[agent][environment.layout["collision"]][0]) for agent in environment.agents]
    [1.0, 1.0, 0.0]
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "idleband_users_v1",
        "render_modes": [],
        "is_parallelizable": True,
    }

    def __init__(self, scenario: ScenarioLike, horizon: WholeNumber | None = None, invalid: str = "silent") -> None:
        EzPickle.__init__(self, scenario, horizon, invalid)
        self._slots = slots = UsersSlots(scenario, horizon, DEFAULT_HORIZON)
        self._strict = validation.choice(invalid, "invalid", INVALID) == "error"
        self._numbers = {f"user_{j}": j for j in range(slots.scenario.users)}
        self.possible_agents = list(self._numbers)
        self.agents: list[str] = []
        self.render_mode = None
        self.layout = layout(slots.scenario)
        self._low, self._high = limits(slots.scenario)
        tally = slots.episode.tally
        self._sizes = [slots.scenario.K + 1] + [tally.minislots.size + 1] * tally.control_bits
        self.observation_spaces = {name: spaces.Box(self._low, self._high, dtype=np.float32) for name in self._numbers}
        self.action_spaces = {name: self._action_space() for name in self._numbers}
        with named_model(slots.scenario.perturbation.model, alone=True):
            packed = [pack((slots.episode, new_history(slots.scenario))) for _ in self._numbers]
            self._values = [one.values for one in packed]  # keeps the memory that the blocks point to
            self._blocks = self._values if INTERPRETED else np.stack([one.block for one in packed])
            self._begin = bind_model(begin_agents, slots.scenario, packed[0])
            self._step = bind_model(step_agents, slots.scenario, packed[0])
        self._replications = Replications()
        self._lives: dict[str, tuple[int, int]] = {}  # first slot of each agent, and the first one after its last

    def observation_space(self, agent: str) -> Any:
        """Return the space of the observations of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return the space of the actions of an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Row], dict[str, dict[str, Any]]]:
        """Start an episode.

        Parameters
        ----------
        seed : int, optional
            Start replication 0 of this seed; without a seed the next replication, or at first a random seed.
        options : dict, optional
            ``{"replication": r}`` starts replication r. Other keys are left to wrappers, as PettingZoo demands.

        Returns
        -------
        tuple
            Observations and infos of the agents.
        """
        own = {key: value for key, value in (options or {}).items() if key == "replication"}
        seed, replication = self._replications.next(seed, own, 1, seeding.np_random()[0])
        slots = self._slots
        slots.restart(seed, replication)
        self._lives = self._find_lives()
        slots.next()
        observations = self._run(self._begin)
        self.agents = self._next_agents(observations)
        rows = {name: observations[self._numbers[name]] for name in self.agents}
        more = {"seed": seed, "replication": replication}
        return rows, {name: {"action_mask": self._mask(self._numbers[name]), **more} for name in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Row], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Play a slot.

        Parameters
        ----------
        actions : dict
            An action for each of `agents`.

        Returns
        -------
        tuple
            Observations, rewards, terminations, truncations and infos, of the agents of this slot and of those who
            arrive with the next one.
        """
        slots, before, t = self._slots, self.agents, self._slots.t
        self._read(actions)
        slots.next()
        observations = self._run(self._step, t)
        earned = slots.episode.earned.tolist()
        after = self._next_agents(observations)
        names = before if before == after else [name for name in self._numbers if name in before or name in after]
        self.agents = after
        terminations = {name: self._lives[name][1] <= t + 1 for name in names}
        return (
            {name: observations[self._numbers[name]] for name in names},
            {name: earned[self._numbers[name]] for name in names},
            terminations,
            {name: slots.over and not terminations[name] for name in names},
            {name: {"action_mask": self._mask(self._numbers[name])} for name in names},
        )

    def render(self) -> None:
        """Return None: this environment is not drawn."""

    def _action_space(self) -> Any:
        return spaces.MultiDiscrete(self._sizes) if len(self._sizes) > 1 else spaces.Discrete(self._sizes[0])

    def _find_lives(self) -> dict[str, tuple[int, int]]:
        """Return the first slot of each agent, and the first slot after its last one."""
        never = self._slots.horizon + 2
        lives: dict[str, tuple[int, int]] = {}
        for change in self._slots.presence.changes:
            name = self.possible_agents[change.user]
            first = lives.get(name, (change.slot, never))[0]
            lives[name] = first, never if change.arrives else change.slot
        return lives

    def _living(self) -> list[str]:
        """Return the agents of this slot; none after the last slot."""
        if self._slots.over:
            return []
        lives, t = self._lives, self._slots.t
        return [name for name in self._numbers if name in lives and lives[name][0] <= t < lives[name][1]]

    def _next_agents(self, observations: Row) -> list[str]:
        """Go on to a slot with agents, or to the end; return them, and replace the observations of those who arrive."""
        slots, agents, later = self._slots, self._living(), observations
        while not (agents or slots.over):
            t = slots.t
            slots.choose_nothing()
            slots.next()
            later = self._run(self._step, t)
            agents = self._living()
        for name in agents if later is not observations else ():
            observations[self._numbers[name]] = later[self._numbers[name]]
        return agents

    def _mask(self, j: int) -> Any:
        """Return the mask of the next action of a user."""
        mask = np.ones(self._sizes[0], np.int8)
        mask[:-1] = self._slots.available if j in self._slots.users else 0
        return (mask, *(np.ones(size, np.int8) for size in self._sizes[1:])) if len(self._sizes) > 1 else mask

    def _read(self, actions: Any) -> None:
        """Write actions after validation to where the kernels read them."""
        slots = self._slots
        if slots.t == 0:
            raise InputError("step: the environment has not been started; call reset first")
        if not self.agents:
            raise InputError("step: the episode is over; call reset")
        if not isinstance(actions, dict):
            raise InputError(f"actions = {shown(actions)}: must be a dict with an action for each agent")
        for name in actions:
            if name not in self.agents:
                raise InputError(f"actions: {shown(name)} is not an agent in slot {slots.t}; must be {self._listed()}")
        chosen = {}
        for name in self.agents:
            if name not in actions:
                raise InputError(f"actions: {name} is missing; must be {self._listed()}")
            chosen[self._numbers[name]] = self._checked(name, actions[name])
        slots.choose_nothing()
        for j, (k, *sent) in chosen.items():
            if j in slots.users:
                slots.episode.choices[j] = k
                for i in sent:
                    if i < self._sizes[1] - 1:
                        slots.episode.sends[j, i] = 1

    def _checked(self, name: str, action: Any) -> list[int]:
        """Return the channel of an agent, or SILENT, and the numbers of its minislots after validation."""
        slots, K, given = self._slots, self._sizes[0] - 1, np.asarray(action)
        values: list[int] = given.ravel().tolist()
        right = given.dtype.kind in "iu" and len(values) == len(self._sizes)
        if not right or not all(0 <= value < size for value, size in zip(values, self._sizes, strict=True)):
            raise InputError(f"actions, {name}: {shown(action)} must be an element of {self.action_spaces[name]}")
        k, *sent = values
        here = self._numbers[name] in slots.users
        if self._strict and k < K and not (here and slots.available[k]):
            reason = f"channel {k} is not available" if here else "the user is away"
            raise InputError(f"actions, {name}: {reason} in slot {slots.t}; must be {K} to stay silent, or masked")
        return [k if k < K and slots.available[k] else SILENT, *sent]

    def _listed(self) -> str:
        return ", ".join(self.agents)

    def _run(self, kernel: Callable[..., Any], *arguments: Any) -> Row:
        """Call a kernel, and return the observations that it writes, one row per user."""
        observations: Row = np.empty((len(self._numbers), self._low.size), np.float32)
        run_kernel(self._slots.scenario, self._slots.episode.path, kernel, self._blocks, *arguments, observations)
        return observations


parallel_env = UsersParallelEnv  # as PettingZoo names constructors


# --- kernels ---------------------------------------------------------------------------------------------------------


def begin_agents(blocks: Any, observations: Any) -> None:
    """Draw the states before slot 1, begin slot 1, and write what each user observes."""
    episode, _ = unpack(blocks[0])
    enter(episode.path)
    advance(episode.path)
    begin_users(episode, 1)
    for j in range(len(blocks)):
        _, history = unpack(blocks[j])
        forget(history)
        observe_user(history, episode, 1, j, observations[j])


def step_agents(blocks: Any, t: int, observations: Any) -> None:
    """Play slot t, send in its minislots, begin the next slot, and write what each user observes."""
    episode, _ = unpack(blocks[0])
    play_users(episode, t)
    send_users(episode)
    for j in range(len(blocks)):
        _, history = unpack(blocks[j])
        remember_user(history, episode, t, j)
        if episode.arrives[j]:
            forget(history)
    advance(episode.path)
    begin_users(episode, t + 1)
    for j in range(len(blocks)):
        _, history = unpack(blocks[j])
        observe_user(history, episode, t + 1, j, observations[j])
