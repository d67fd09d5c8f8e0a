"""What users without a base station have earned, with their collisions, and the regret divided by its causes."""

from dataclasses import dataclass

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.scenario.scenario import Scenario


@dataclass(frozen=True, repr=False)
class UsersResult:
    """Results that only exist without a base station. R is the number of replications, N that of users.

    Attributes
    ----------
    reward : array of float, shape (R, N)
        Reward of each user.
    collisions : array of int, shape (R, K)
        Plays of each channel that collided with those of other users: n users on a channel are n of them.
    switches : array of int, shape (R,)
        Plays of a channel that is not the one that the user played last.
    messages : array of int, shape (R,)
        Control minislots in which users sent.
    last_collision : array of int, shape (R,)
        Slot of the last collision between users, the time to orthogonality; 0 if there was none.
    """

    scenario: Scenario
    horizon: int
    plays: Ints
    reward: Floats
    collisions: Ints
    switches: Ints
    messages: Ints
    last_collision: Ints

    def __repr__(self) -> str:
        return f"UsersResult({self.reward.shape[1]} users, {self.collisions.sum(axis=1).mean():.1f} collisions)"

    @property
    def jain(self) -> Floats:
        """Jain's index of fairness of the rewards, shape (R,): 1 if all users earn the same, 1/N if one earns all."""
        squares = (self.reward**2).sum(axis=1)
        sums = self.reward.sum(axis=1) ** 2
        return np.divide(sums, self.reward.shape[1] * squares, out=np.ones_like(sums), where=squares > 0.0)

    def regret_terms(self) -> dict[str, Floats]:
        """Divide the regret by its causes, as Besson and Kaufmann (ALT 2018) do for independent slots.

        Returns
        -------
        dict of str to array, shape (R,)
            `suboptimal`: plays of worse channels; `missed`: slots in which the best channels were not played;
            `collisions`: plays lost in collisions; `silence`: slots in which users played no channel. Their sum is
            `regret("table")` in the mean, where states are independent of earlier slots, and exactly if rewards are
            replaced by their means.

        Raises
        ------
        InputError
            If users earn something in collisions, are not always present, or differ.
        """
        given = self.scenario.uncoordinated
        assert given is not None
        for name, allowed in (
            (f"collision = {given.collision!r}", given.collision == "lost"),
            ("quality", given.quality is None),
            ("arrivals and departures", given.always_present),
        ):
            if not allowed:
                raise InputError(f"scenario.users: the regret cannot be divided with {name}")
        if self.scenario.availability:
            raise InputError("scenario.availability: the regret cannot be divided where channels are not available")
        means, N = self.scenario.table_means, self.scenario.users
        least = np.sort(means)[::-1][N - 1]
        best = np.zeros(len(means), np.bool_)
        best[np.argsort(-means, kind="stable")[:N]] = True
        return {
            "suboptimal": (~best * (least - means) * self.plays).sum(axis=1),
            "missed": (best * (means - least) * (self.horizon - self.plays)).sum(axis=1),
            "collisions": (means * self.collisions).sum(axis=1),
            "silence": least * (N * self.horizon - self.plays.sum(axis=1)),
        }
