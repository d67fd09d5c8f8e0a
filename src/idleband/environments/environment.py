"""A scenario that is stepped by hand: an agent selects channels, slot by slot, on the sample paths of `simulate`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from idleband import validation
from idleband.arrays import Flags, Floats, Ints
from idleband.channels import channel_indices, channel_text
from idleband.environments.episode import bind_model, new_episode, overwrite, play_slot, run_kernel, shown_states
from idleband.errors import InputError, counted, shown
from idleband.kernels.packed_state import pack
from idleband.policies.protocol import Feedback
from idleband.scenario.build import ScenarioLike
from idleband.scenario.build import scenario as build_scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.environment import advance, enter
from idleband.simulation.run import named_model
from idleband.simulation.simulate import MAX_REPLICATIONS, MAX_SEED, check_size
from idleband.validation import WholeNumber

# Stand-in: `bind_model` binds the function that finds the memory of an episode to this name.
unpack: Callable[[Any], Any] = NotImplemented


class Observation(NamedTuple):
    """What is observed in a slot before channels are selected.

    Attributes
    ----------
    t : int
        Number of the slot, from 1.
    contexts : array, shape (K, d)
        Context of each channel.
    available : array of bool, shape (K,)
        Channels that may be selected. The array must not be changed.
    sensed : array of int, shape (K,)
        Sensed state of each channel; -1 unless the scenario senses all channels beforehand.
    """

    t: int
    contexts: Floats
    available: Flags
    sensed: Ints


class Step(NamedTuple):
    """What `Environment.step` returns.

    Attributes
    ----------
    reward : float
        Reward of the slot, costs of sensing and switching included.
    feedback : tuple of Feedback
        What each channel returned, in the order in which the channels were given.
    observation : Observation
        What is observed in the next slot. After the last slot it cannot be played any more.
    done : bool
        Whether this was the last slot.
    """

    reward: float
    feedback: tuple[Feedback, ...]
    observation: Observation
    done: bool


class Environment:
    """A scenario that an agent plays slot by slot.

    The sample path is that of `idleband.simulate` with the same seed and replication: the same channels earn the same
    rewards, bit for bit. An agent observes what a policy does, by the scenario's settings of sensing and feedback.

    Parameters
    ----------
    scenario : str, Path, dict, Trace or Scenario
        The scenario, as in `idleband.scenario`.
    horizon : int, optional
        Number of slots; by default 100,000, or the number of slots of the trace if one is replayed.
    seed : int
        Seed of the random streams.
    replication : int
        Number of the replication. Seed and replication identify the sample path.

    Raises
    ------
    InputError
        If an argument is invalid.

    Examples
    --------
    >>> import idleband as ib
    >>> environment = ib.Environment("S1", horizon=100, seed=0, replication=1)
    >>> observation = environment.reset()
    >>> observation.t, observation.contexts.shape, observation.sensed[:3].tolist()
    (1, (10, 8), [-1, -1, -1])
    >>> step = environment.step([0, 1, 2, 3, 4])
    >>> len(step.feedback), step.observation.t, step.done
    (5, 2, False)
    """

    def __init__(
        self,
        scenario: ScenarioLike,
        /,
        *,
        horizon: WholeNumber | None = None,
        seed: WholeNumber = 0,
        replication: WholeNumber = 0,
    ) -> None:
        self._scenario = build_scenario(scenario)
        self._horizon, _, self._seed = check_size(self._scenario, horizon, 1, seed)
        self._replication = check_replication(replication)
        with named_model(self._scenario.perturbation.model, alone=True):
            self._episode = new_episode(self._scenario, self._seed, self._replication)
            packed = pack((self._episode,))
            self._block = packed.block  # contains addresses of arrays of the episode
            self._begin_slots = bind_model(begin_slots, self._scenario, packed)
            self._step_slot = bind_model(step_slot, self._scenario, packed)
        self._sensed = shown_states(self._episode.path, self._episode.sensing, self._episode.hidden)
        self._rows = self._scenario.available
        self._rows.flags.writeable = False
        self._places = [min(self._scenario.users, int(row.sum())) for row in self._rows]
        self._t = 0  # slot that is played next; 0 before the first reset

    @property
    def scenario(self) -> Scenario:
        """The scenario."""
        return self._scenario

    @property
    def horizon(self) -> int:
        """Number of slots."""
        return self._horizon

    @property
    def seed(self) -> int:
        """Seed of the sample path."""
        return self._seed

    @property
    def replication(self) -> int:
        """Replication of the sample path."""
        return self._replication

    @property
    def done(self) -> bool:
        """Whether the last slot has been played."""
        return self._t > self._horizon

    @property
    def total_reward(self) -> float:
        """Reward of all slots since the last reset, as `Result.reward` sums it."""
        return float(self._episode.earned[0])

    def reset(self, seed: WholeNumber | None = None, replication: WholeNumber | None = None) -> Observation:
        """Return to the start of a sample path.

        Parameters
        ----------
        seed, replication : int, optional
            The sample path; by default the same as before.

        Returns
        -------
        Observation
            What is observed in slot 1.

        Examples
        --------
        >>> import idleband as ib
        >>> environment = ib.Environment("S1", horizon=100)
        >>> first = environment.reset()
        >>> (environment.reset().contexts == first.contexts).all()
        np.True_
        >>> (environment.reset(replication=1).contexts == first.contexts).any()
        np.False_
        """
        if seed is not None:
            self._seed = validation.whole(seed, "seed", 0, MAX_SEED)
        if replication is not None:
            self._replication = check_replication(replication)
        overwrite(self._episode, new_episode(self._scenario, self._seed, self._replication))
        self._run(self._begin_slots, self._block)
        self._t = 1
        return self._observation()

    def step(self, channels: Sequence[int | str] | Ints) -> Step:
        """Play channels in this slot.

        Parameters
        ----------
        channels : sequence of int or str
            M different available channels, each given by index (from 0) or by name; all that are available, if they are
            fewer than M.

        Returns
        -------
        Step
            The reward, the feedback of each channel, and the next observation.

        Raises
        ------
        InputError
            If the channels are not allowed, before the first `reset`, or after the last slot.

        Examples
        --------
        >>> import idleband as ib
        >>> environment = ib.Environment("S1", horizon=100)
        >>> observation = environment.reset()
        >>> reward, feedback, observation, done = environment.step(["ch1", "ch2", "ch3", "ch4", "ch5"])
        >>> [one.channel for one in feedback]
        [0, 1, 2, 3, 4]
        """
        t = self._t
        if t == 0:
            raise InputError("step: the environment has not been started; call reset first")
        if t > self._horizon:
            raise InputError(f"step: all {counted(self._horizon, 'slot')} have been played; call reset")
        picks = self._checked(channels, (t - 1) % len(self._rows))
        count = len(picks)
        self._episode.picks[:count] = picks
        reward = self._run(self._step_slot, self._block, t, count)
        self._t = t + 1
        states, rewards, perturbations = self._episode.feedback[:, :count].tolist()
        feedback = tuple(
            [Feedback(k, int(s), r, n, 0) for k, s, r, n in zip(picks, states, rewards, perturbations, strict=True)]
        )
        return Step(reward, feedback, self._observation(), t == self._horizon)

    def _checked(self, channels: Any, row: int) -> tuple[int, ...]:
        """Return the indices of selected channels after validation."""
        scenario, available = self._scenario, self._rows[row]
        picks = channel_indices(channels, scenario.K, scenario.channel_names, "channels")
        if len(picks) != self._places[row]:
            needed = counted(self._places[row], "channel")
            fewer = " (all that are available)" if self._places[row] < scenario.users else ""
            raise InputError(f"channels = {shown(channels)}: has {len(picks)}; slot {self._t} needs {needed}{fewer}")
        if scenario.availability:
            for k in picks:
                if not available[k]:
                    named = channel_text(k, scenario.channel_names)
                    raise InputError(f"channels = {shown(channels)}: {named} is not available in slot {self._t}")
        return picks

    def _run(self, kernel: Callable[..., Any], *arguments: Any) -> Any:
        return run_kernel(self._scenario, self._episode.path, kernel, *arguments)

    def _observation(self) -> Observation:
        available = self._rows[(self._t - 1) % len(self._rows)]
        return Observation(self._t, self._episode.path.x.copy(), available, self._sensed.copy())

    def __repr__(self) -> str:
        path = f"seed {self._seed}, replication {self._replication}"
        return f"Environment({self._scenario.name}: slot {self._t} of {self._horizon}, {path})"


def check_replication(replication: Any) -> int:
    """Return the number of a replication after validation."""
    return validation.whole(replication, "replication", 0, MAX_REPLICATIONS - 1)


# --- kernels ---------------------------------------------------------------------------------------------------------


def begin_slots(block: Any) -> None:
    """Draw the states before slot 1, and advance to it."""
    (episode,) = unpack(block)
    enter(episode.path)
    advance(episode.path)


def step_slot(block: Any, t: int, count: int) -> float:
    """Play channels in slot t, advance to the next slot, and return the reward."""
    (episode,) = unpack(block)
    slot_reward = play_slot(episode, t, count)
    advance(episode.path)
    return slot_reward
