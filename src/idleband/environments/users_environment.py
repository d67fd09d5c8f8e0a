"""A scenario without a base station that is stepped by hand: each user chooses a channel, slot by slot."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats, Ints
from idleband.channels import channel_index, channel_text
from idleband.environments.environment import check_replication
from idleband.environments.episode import bind_model, run_kernel
from idleband.environments.users_episode import SILENT, UsersSlots, begin_users, play_users, send_users
from idleband.errors import InputError, counted, shown
from idleband.kernels.packed_state import pack
from idleband.policies.protocol import Feedback
from idleband.scenario.build import ScenarioLike
from idleband.scenario.scenario import Scenario
from idleband.simulation.environment import advance, enter
from idleband.simulation.run import named_model
from idleband.simulation.simulate import MAX_SEED, check_size
from idleband.simulation.users_loop import REWARD, USER_COLLISIONS, USER_CURVES
from idleband.validation import WholeNumber

# Stand-in: `bind_model` binds the function that finds the memory of an episode to this name.
unpack: Callable[[Any], Any] = NotImplemented

Choices = Mapping[int, int | str | None]
Minislots = Mapping[int, Sequence[int]]


class UsersObservation(NamedTuple):
    """What users observe in a slot before they choose channels.

    It is the same for all users, who know how long they have been present: each is shown the contexts, the available
    channels, the sensed states and what was heard, and nothing of other users.

    Attributes
    ----------
    t : int
        Number of the slot, from 1.
    users : dict of int to int
        Users who are present; for each the number of the slot counted from its arrival, from 1.
    contexts : array, shape (K, d)
        Context of each channel.
    available : array of bool, shape (K,)
        Channels that may be played. The array must not be changed.
    sensed : array of int, shape (K,)
        Sensed state of each channel; -1 unless the scenario senses all channels beforehand.
    heard : array of int, shape (number of control minislots,)
        1 for each control minislot after the slot before in which any user sent, else 0.
    """

    t: int
    users: dict[int, int]
    contexts: Floats
    available: Flags
    sensed: Ints
    heard: Ints


class UsersStep(NamedTuple):
    """What `UsersEnvironment.step` returns.

    Attributes
    ----------
    rewards : dict of int to float
        Reward of each user who was present, costs of sensing and switching included; 0 for a silent user.
    feedback : dict of int to Feedback
        What each user who played a channel observed of it. A state or a collision that is not observed is -1.
    observation : UsersObservation
        What is observed in the next slot. After the last slot it cannot be played any more.
    done : bool
        Whether this was the last slot.
    """

    rewards: dict[int, float]
    feedback: dict[int, Feedback]
    observation: UsersObservation
    done: bool


class UsersEnvironment:
    """A scenario without a base station in which an agent chooses for each user, slot by slot.

    The sample path is that of `idleband.simulate` with the same seed and replication: users who choose the same
    channels earn the same rewards, bit for bit. Users arrive, leave, collide and observe by the scenario's settings.

    Parameters
    ----------
    scenario : str, Path, dict, Trace or Scenario
        The scenario, as in `idleband.scenario`, with ``users={"coordination": "none"}``.
    horizon : int, optional
        Number of slots; by default 100,000, or the number of slots of the trace if one is replayed.
    seed : int
        Seed of the random streams.
    replication : int
        Number of the replication. Seed and replication identify the sample path.

    Raises
    ------
    InputError
        If an argument is invalid, or the scenario has a base station.

    Examples
    --------
    >>> import idleband as ib
    >>> scenario = ib.scenario("S1", users={"count": 3, "coordination": "none"})
    >>> environment = ib.UsersEnvironment(scenario, horizon=100, seed=0)
    >>> observation = environment.reset()
    >>> observation.t, observation.users
    (1, {0: 1, 1: 1, 2: 1})
    >>> rewards, feedback, observation, done = environment.step({0: "ch1", 1: "ch1", 2: None})
    >>> rewards[0], feedback[0].collision, 2 in feedback
    (0.0, 1, False)
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
        self._slots = slots = UsersSlots(scenario, horizon)
        self._seed = check_size(slots.scenario, horizon, 1, seed)[2]
        self._replication = check_replication(replication)
        with named_model(slots.scenario.perturbation.model, alone=True):
            packed = pack((slots.episode,))
            self._block = packed.block  # contains addresses of arrays of the episode
            self._kernels = {
                kernel: bind_model(kernel, slots.scenario, packed)
                for kernel in (begin, step, play_choices, send_choices)
            }
        self._bits = slots.episode.tally.control_bits
        self._played: tuple[dict[int, float], dict[int, Feedback]] | None = None  # between `play` and `send`

    @property
    def scenario(self) -> Scenario:
        """The scenario."""
        return self._slots.scenario

    @property
    def horizon(self) -> int:
        """Number of slots."""
        return self._slots.horizon

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
        return self._slots.over

    @property
    def total_reward(self) -> float:
        """Reward of all users in all slots since the last reset, as `Result.reward` sums it."""
        return float(self._slots.episode.tally.now[REWARD])

    @property
    def user_rewards(self) -> Floats:
        """Reward of each user in all slots since the last reset, as `Result.users.reward` sums it, shape (users,)."""
        first = len(USER_CURVES)
        return self._slots.episode.tally.now[first : first + self.scenario.users].copy()

    @property
    def collisions(self) -> int:
        """Colliding users in all slots since the last reset: two users on one channel count as two."""
        return int(self._slots.episode.tally.now[USER_COLLISIONS])

    def reset(self, seed: WholeNumber | None = None, replication: WholeNumber | None = None) -> UsersObservation:
        """Return to the start of a sample path.

        Parameters
        ----------
        seed, replication : int, optional
            The sample path; by default the same as before.

        Returns
        -------
        UsersObservation
            What is observed in slot 1.

        Examples
        --------
        >>> import idleband as ib
        >>> scenario = ib.scenario("S1", users={"count": 2, "coordination": "none", "arrive": [1, 4]})
        >>> ib.UsersEnvironment(scenario, horizon=100).reset().users
        {0: 1}
        """
        if seed is not None:
            self._seed = validation.whole(seed, "seed", 0, MAX_SEED)
        if replication is not None:
            self._replication = check_replication(replication)
        self._slots.restart(self._seed, self._replication)
        self._played = None
        self._slots.next()
        self._run(begin, self._block)
        return self._observation()

    def step(self, channels: Choices, minislots: Minislots | None = None) -> UsersStep:
        """Let each user play a channel in this slot, and send in control minislots after it.

        Parameters
        ----------
        channels : dict of int to int, str or None
            For each user who is present an available channel, by index (from 0) or by name, or None to stay silent.
        minislots : dict of int to sequence of int, optional
            Control minislots after this slot in which a user sends, at most `control_bits` of
            ``users * control_bits``, numbered from 0. Users who are left out send nothing. They are chosen before the
            feedback of the slot is known; `play` and `send` divide the slot for users who choose them after it.

        Returns
        -------
        UsersStep
            Rewards, feedback, the next observation, and whether this was the last slot.

        Raises
        ------
        InputError
            If the choices are not allowed, before the first `reset`, or after the last slot.

        Examples
        --------
        >>> import idleband as ib
        >>> scenario = ib.scenario("S1", users={"count": 2, "coordination": "none", "control_bits": 1})
        >>> environment = ib.UsersEnvironment(scenario, horizon=100)
        >>> observation = environment.reset()
        >>> environment.step({0: "ch1", 1: 4}, {0: [1]}).observation.heard.tolist()
        [0, 1]
        """
        self._check_playable("step")
        picks = self._checked_channels(channels)
        sends = self._checked_minislots(minislots)
        self._write(picks, sends)
        t, present = self._slots.t, tuple(self._slots.users)
        self._slots.next()
        self._run(step, self._block, t)
        return self._step(*self._outcome(picks, present))

    def play(self, channels: Choices) -> dict[int, Feedback]:
        """Let each user play a channel in this slot, which `send` ends: the first half of `step`.

        Parameters
        ----------
        channels : dict of int to int, str or None
            As in `step`.

        Returns
        -------
        dict of int to Feedback
            What each user who played a channel observed of it.

        Raises
        ------
        InputError
            If the channels are not allowed, before the first `reset`, or after the last slot.

        Examples
        --------
        >>> import idleband as ib
        >>> scenario = ib.scenario("S1", users={"count": 2, "coordination": "none", "control_bits": 1})
        >>> environment = ib.UsersEnvironment(scenario, horizon=100)
        >>> observation = environment.reset()
        >>> feedback = environment.play({0: "ch1", 1: "ch2"})
        >>> busy = {user: [user] for user, one in feedback.items() if one.state == 0}
        >>> environment.send(busy).observation.t
        2
        """
        self._check_playable("play")
        picks = self._checked_channels(channels)
        self._write(picks, {})
        self._run(play_choices, self._block, self._slots.t)
        self._played = self._outcome(picks, tuple(self._slots.users))
        return self._played[1]

    def send(self, minislots: Minislots | None = None) -> UsersStep:
        """Send in control minislots and go on to the next slot: the second half of `step`.

        Parameters
        ----------
        minislots : dict of int to sequence of int, optional
            As in `step`.

        Returns
        -------
        UsersStep
            As of `step`.

        Raises
        ------
        InputError
            If the minislots are not allowed, or `play` has not been called in this slot.
        """
        if self._played is None:
            raise InputError(f"send: no channels have been played in slot {self._slots.t}; call play first")
        for j, sent in self._checked_minislots(minislots).items():
            self._slots.episode.sends[j, sent] = 1
        played, self._played = self._played, None
        t = self._slots.t
        self._slots.next()
        self._run(send_choices, self._block, t)
        return self._step(*played)

    def _check_playable(self, called: str) -> None:
        if self._slots.t == 0:
            raise InputError(f"{called}: the environment has not been started; call reset first")
        if self._played is not None:
            raise InputError(f"{called}: channels have been played in slot {self._slots.t}; call send first")
        if self._slots.over:
            raise InputError(f"{called}: all {counted(self.horizon, 'slot')} have been played; call reset")

    def _checked_channels(self, channels: Any) -> dict[int, int]:
        """Return the channel of each user after validation, SILENT for none."""
        users, scenario, available = self._slots.users, self.scenario, self._slots.available
        self._check_users(channels, "channels")
        picks = {}
        for j in users:
            if j not in channels:
                raise InputError(f"channels: user {j} is missing; give a channel, or None to stay silent")
            given = channels[j]
            if given is None:
                picks[j] = SILENT
                continue
            k = channel_index(given, scenario.K, scenario.channel_names, f"channels, user {j}")
            if not available[k]:
                named = channel_text(k, scenario.channel_names)
                raise InputError(f"channels, user {j}: {named} is not available in slot {self._slots.t}")
            picks[j] = k
        return picks

    def _checked_minislots(self, minislots: Any) -> dict[int, list[int]]:
        """Return the minislots in which each user sends after validation."""
        if minislots is None:
            return {}
        if self._bits == 0:
            raise InputError("minislots: there are none; scenario.users.control_bits = 0")
        self._check_users(minislots, "minislots")
        count, found = self._slots.episode.tally.minislots.size, {}
        for j, given in minislots.items():
            where = f"minislots, user {j}"
            sent = [validation.whole(i, where, 0, count - 1) for i in validation.sequence(given, where, "of minislots")]
            if len(set(sent)) != len(sent):
                raise InputError(f"{where} = {shown(given)}: each minislot may be given once")
            if len(sent) > self._bits:
                raise InputError(
                    f"{where} = {shown(given)}: has {len(sent)}; must be at most {self._bits}"
                    " (scenario.users.control_bits)"
                )
            found[int(j)] = sent
        return found

    def _check_users(self, given: Any, field: str) -> None:
        """Refuse what is not given by users who are present."""
        if not isinstance(given, Mapping):
            raise InputError(f"{field} = {shown(given)}: must be a dict with an entry for each user")
        users = self._slots.users
        for j in given:
            whole = isinstance(j, int | np.integer) and not isinstance(j, bool)
            if not whole or j not in users:
                present = ", ".join(str(user) for user in users) or "none"
                raise InputError(f"{field}: user {shown(j)} is not present in slot {self._slots.t}; present: {present}")

    def _write(self, picks: dict[int, int], sends: dict[int, list[int]]) -> None:
        """Write choices after validation to where the kernels read them."""
        self._slots.choose_nothing()
        episode = self._slots.episode
        for j, k in picks.items():
            episode.choices[j] = k
        for j, sent in sends.items():
            episode.sends[j, sent] = 1

    def _outcome(self, picks: dict[int, int], present: Sequence[int]) -> tuple[dict[int, float], dict[int, Feedback]]:
        """Return what each user earned and observed in the slot that has been played."""
        earned = self._slots.episode.earned.tolist()
        states, rewards, perturbations, collisions = self._slots.episode.feedback.tolist()
        feedback = {
            j: Feedback(k, int(states[j]), rewards[j], perturbations[j], int(collisions[j]))
            for j, k in picks.items()
            if k >= 0
        }
        return {j: earned[j] for j in present}, feedback

    def _step(self, rewards: dict[int, float], feedback: dict[int, Feedback]) -> UsersStep:
        return UsersStep(rewards, feedback, self._observation(), self._slots.over)

    def _run(self, kernel: Callable[..., Any], *arguments: Any) -> None:
        run_kernel(self.scenario, self._slots.episode.path, self._kernels[kernel], *arguments)

    def _observation(self) -> UsersObservation:
        slots = self._slots
        users = {j: slots.t - before for j, before in slots.users.items()}
        heard = slots.episode.tally.minislots.copy()
        return UsersObservation(
            slots.t, users, slots.episode.path.x.copy(), slots.available, slots.sensed.copy(), heard
        )

    def __repr__(self) -> str:
        path = f"seed {self._seed}, replication {self._replication}"
        return f"UsersEnvironment({self.scenario.name}: slot {self._slots.t} of {self.horizon}, {path})"


# --- kernels ---------------------------------------------------------------------------------------------------------


def begin(block: Any) -> None:
    """Draw the states before slot 1, and begin slot 1."""
    (episode,) = unpack(block)
    enter(episode.path)
    advance(episode.path)
    begin_users(episode, 1)


def step(block: Any, t: int) -> None:
    """Play slot t, send in its minislots, and begin the next slot."""
    (episode,) = unpack(block)
    play_users(episode, t)
    send_users(episode)
    advance(episode.path)
    begin_users(episode, t + 1)


def play_choices(block: Any, t: int) -> None:
    """Play slot t."""
    (episode,) = unpack(block)
    play_users(episode, t)


def send_choices(block: Any, t: int) -> None:
    """Send in the minislots of slot t, and begin the next slot."""
    (episode,) = unpack(block)
    send_users(episode)
    advance(episode.path)
    begin_users(episode, t + 1)
