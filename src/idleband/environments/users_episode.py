"""An episode without a base station: users who choose channels on one sample path, slot by slot.

Its kernels consist of the functions of the simulation loop of users, in the same order.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.environments.episode import overwrite, shown_states
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.policies.knowledge import setup_of_user
from idleband.scenario.build import ScenarioLike
from idleband.scenario.build import scenario as build_scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.environment import SamplePath
from idleband.simulation.path import new_path, path_parameters
from idleband.simulation.presence import Presence
from idleband.simulation.simulate import check_size
from idleband.simulation.users_loop import (
    UsersTally,
    begin_slot,
    count_plays,
    earn,
    end_slot,
    feedback_of,
    merge_minislots,
    share_of,
    take,
)  # fmt: skip
from idleband.simulation.users_run import new_users_tally
from idleband.validation import WholeNumber

STATE, REWARD, PERTURBATION, COLLISION = range(4)  # rows of `feedback`
SILENT, ABSENT = -1, -2  # instead of a channel


class UsersEpisode(NamedTuple):
    """A sample path with the users on it. N is the number of users."""

    path: SamplePath
    tally: UsersTally  # without what compares plays with the best fixed channels
    measured: bool  # whether users measure the perturbation of the channel that they played
    choices: Ints  # (N,) channel of each user in the slot; SILENT, or ABSENT
    sends: Ints  # (N, minislots) 1 where a user sends
    arrives: Flags  # (N,) whether the user arrives with the next slot
    earned: Floats  # (N,) reward of each user in the slot, costs included
    feedback: Floats  # (4, N) state, reward, perturbation and collision of each user who played


def new_users_episode(scenario: Scenario, seed: int, replication: int, horizon: int) -> UsersEpisode:
    """Return an episode before its first slot, in memory of its own."""
    N, theta = scenario.users, path_parameters(scenario, seed, replication)[0]
    path = new_path(scenario, seed, replication, theta.copy())
    tally = new_users_tally(scenario, path, np.zeros(N, np.bool_), horizon, seed, replication)
    return UsersEpisode(
        path=path,
        tally=tally,
        measured=setup_of_user(scenario, (), frozenset(), 0).measured,
        choices=np.full(N, ABSENT, np.int64),
        sends=np.zeros((N, tally.minislots.size), np.int64),
        arrives=np.zeros(N, np.bool_),
        earned=np.zeros(N),
        feedback=np.zeros((4, N)),
    )


class UsersSlots:
    """A scenario without a base station, and who is present in each slot of a sample path."""

    def __init__(self, scenario: ScenarioLike, horizon: WholeNumber | None, *default: int) -> None:
        self.scenario = build_scenario(scenario)
        if self.scenario.uncoordinated is None:
            raise InputError(
                f"scenario {self.scenario.name}: has a base station; an environment of single users needs"
                ' scenario.users = {coordination = "none"}'
            )
        self.horizon = check_size(self.scenario, horizon, 1, 0, *default)[0]
        self.rows = self.scenario.available
        self.rows.flags.writeable = False
        self.episode = new_users_episode(self.scenario, 0, 0, self.horizon)
        self.presence = Presence(self.scenario, 0, 0, self.horizon)
        self.sensed = shown_states(self.episode.path, self.episode.tally.sensing, self.episode.tally.hidden_states)
        self.t = 0  # slot that is played next; 0 before the first restart
        self.users: dict[int, int] = {}  # users who are present, and the slot before the first of each

    @property
    def available(self) -> Flags:
        """Which channels may be played in this slot, shape (K,)."""
        return np.asarray(self.rows[(self.t - 1) % len(self.rows)])

    @property
    def over(self) -> bool:
        """Whether the last slot has been played."""
        return self.t > self.horizon

    def restart(self, seed: int, replication: int) -> None:
        """Return to the slot before the first one of a sample path."""
        overwrite(self.episode, new_users_episode(self.scenario, seed, replication, self.horizon))
        self.presence = Presence(self.scenario, seed, replication, self.horizon)
        self.t, self.users = 0, {}

    def next(self) -> None:
        """Go on to the next slot: users arrive and leave. A kernel that plays this slot and begins the next follows."""
        tally, arrives = self.episode.tally, self.episode.arrives
        arrives[:] = False
        for changes, _ in self.presence.stretches(self.t, self.t + 1):
            for _, j, present in changes:
                tally.present[j] = arrives[j] = present
                if present:
                    self.users[j] = tally.before[j] = self.t
                    tally.last[j] = SILENT
                else:
                    del self.users[j]
            if changes:
                self.users = dict(sorted(self.users.items()))
        self.t += 1

    def choose_nothing(self) -> None:
        """Let all users who are present be silent, and send nothing."""
        self.episode.choices[:] = ABSENT
        for j in self.users:
            self.episode.choices[j] = SILENT
        if self.episode.sends.size:
            self.episode.sends[:] = 0


# --- kernels ---------------------------------------------------------------------------------------------------------


@jit
def begin_users(episode: UsersEpisode, t: int) -> None:
    """Begin slot t, to which the path has advanced."""
    path = episode.path
    begin_slot(path, episode.tally, path.available[(t - 1) % path.available.shape[0]])


@jit
def play_users(episode: UsersEpisode, t: int) -> None:
    """Let every user play its choice in slot t."""
    path, tally, feedback = episode.path, episode.tally, episode.feedback
    users = episode.choices.size
    for j in range(users):
        if episode.choices[j] >= 0:
            take(tally, j, episode.choices[j])
    count_plays(path, tally, (t - 1) % path.available.shape[0], t, -np.inf)
    slot_reward = 0.0
    for j in range(users):
        episode.earned[j] = 0.0
        if tally.picks[j] >= 0:
            share = share_of(tally, j)
            episode.earned[j] = earn(path, tally, j, share)
            slot_reward += episode.earned[j]
            one = feedback_of(path, tally, j, share, episode.measured)
            feedback[STATE, j], feedback[REWARD, j] = one.state, one.reward
            feedback[PERTURBATION, j], feedback[COLLISION, j] = one.perturbation, one.collision
    end_slot(tally, slot_reward, 0.0)


@jit
def send_users(episode: UsersEpisode) -> None:
    """Let every user send in the control minislots."""
    tally = episode.tally
    tally.minislots[:] = 0
    for j in range(episode.choices.size):
        for i in range(tally.minislots.size):
            tally.own_minislots[i] = episode.sends[j, i]
        merge_minislots(tally)
