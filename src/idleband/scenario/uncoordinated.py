"""Users who choose channels themselves, without a base station that coordinates them.

Each user plays one channel per slot, or none. Users who play the same channel in the same slot collide. Settings are
what a user observes, who earns the reward of a collision, how well each channel suits each user, and when users arrive
and leave. Control minislots, if there are any, are heard by all users, the sender included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Floats
from idleband.channels import channel_text
from idleband.errors import InputError, counted
from idleband.kernels.rng import PRESENCE

COORDINATION = ("station", "none")
LOST, ONE, SPLIT = range(3)
COLLISION = ("lost", "one", "split")  # no user earns the reward; a random one does; it is divided equally
SENSING, COLLISIONS, REWARDS = range(3)
OBSERVES = ("sensing", "collisions", "rewards")

MAX_CONTROL_BITS = 64
MAX_SLOT = 10**10
KEYS = (
    "count", "coordination", "collision", "observes", "control_bits", "quality", "arrive", "leave", "spread",
    "mean_stay", "mean_absence",
)  # fmt: skip


class Change(NamedTuple):
    """A user who arrives or leaves."""

    slot: int  # the first one in which the user is present, or absent, from 1
    user: int
    arrives: bool


@dataclass(frozen=True)
class UncoordinatedUsers:
    """Settings of users without a base station.

    Users are present from the beginning to the end, unless one of these is given: arrive and leave; spread; mean_stay
    and mean_absence. A user who arrives knows nothing of earlier slots.
    """

    collision: str = "lost"  # who gets the reward of a channel on which users collide
    observes: str = "sensing"  # state, reward and collision; reward and collision; or the reward alone
    control_bits: int = 0  # control minislots per user and slot
    quality: tuple[tuple[float, ...], ...] | None = None  # (users, K) factor of the reward of each user on each channel
    arrive: tuple[int, ...] = ()  # first slot of each user
    leave: tuple[int, ...] = ()  # first slot in which each user has left; 0: never
    spread: int = 0  # each user starts in a random one of this many first slots
    mean_stay: float = 0.0  # mean slots of a stay and of an absence, both geometric
    mean_absence: float = 0.0

    @property
    def always_present(self) -> bool:
        """Whether all users are present in all slots."""
        return not (self.arrive or self.leave or self.spread or self.mean_stay)

    @property
    def alike(self) -> bool:
        """Whether all users are present in all slots and earn the same on a channel."""
        return self.always_present and self.quality is None

    def to_dict(self, count: int) -> dict[str, Any]:
        """Return the settings as they are written under [scenario.users]."""
        found: dict[str, Any] = {"count": count, "coordination": "none"}
        for key, default in vars(UncoordinatedUsers()).items():
            value = getattr(self, key)
            if value != default or key in ("collision", "observes", "control_bits"):
                found[key] = [list(row) for row in value] if key == "quality" else value
                if isinstance(value, tuple) and key != "quality":
                    found[key] = list(value)
        return found

    def changes(self, count: int, seed: int, replication: int, horizon: int) -> list[Change]:
        """Return who arrives and leaves in the slots up to a horizon, in the order of slots and users."""
        found = []
        for j in range(count):
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(replication, PRESENCE, j)))
            if self.mean_stay:
                found += self._stays(j, rng, horizon)
                continue
            start = self.arrive[j] if self.arrive else 1
            if self.spread:
                start += int(rng.integers(self.spread))
            found.append(Change(start, j, True))
            if self.leave and self.leave[j]:
                found.append(Change(self.leave[j], j, False))
        return sorted(change for change in found if change.slot <= horizon)

    def _stays(self, j: int, rng: np.random.Generator, horizon: int) -> list[Change]:
        """Return the random arrivals and departures of a user, who is present in slot 1 with the long-run share."""
        present = bool(rng.random() < self.mean_stay / (self.mean_stay + self.mean_absence))
        found = [Change(1, j, True)] if present else []
        slot = 1
        while True:
            mean = self.mean_stay if present else self.mean_absence
            slot += int(rng.geometric(1.0 / mean))
            if slot > horizon:
                return found
            present = not present
            found.append(Change(slot, j, present))


def read_users(value: Any, K: int, names: Sequence[str]) -> tuple[int, UncoordinatedUsers | None]:
    """Return the number of users and, if there is no base station, their settings."""
    where = "scenario.users"
    if not isinstance(value, Mapping):
        return validation.whole(value, where, 1, K), None
    validation.check_keys(value, KEYS, where)
    if value.get("count") is None:
        raise InputError(f"{where}.count is missing: the number of users, from 1 to {K}")
    count = validation.whole(value.get("count"), f"{where}.count", 1, K)
    if validation.choice(value.get("coordination", "station"), f"{where}.coordination", COORDINATION) == "station":
        for key in value:
            if key not in ("count", "coordination"):
                raise InputError(f'{where}.{key}: not used with a base station; set coordination = "none"')
        return count, None
    quality = value.get("quality")
    found = UncoordinatedUsers(
        collision=validation.choice(value.get("collision", "lost"), f"{where}.collision", COLLISION),
        observes=validation.choice(value.get("observes", "sensing"), f"{where}.observes", OBSERVES),
        control_bits=validation.whole(value.get("control_bits", 0), f"{where}.control_bits", 0, MAX_CONTROL_BITS),
        quality=None if quality is None else _quality(quality, count, K, names),
        arrive=_slots(value, "arrive", count, 1),
        leave=_slots(value, "leave", count, 0),
        spread=validation.whole(value.get("spread", 0), f"{where}.spread", 0, MAX_SLOT),
        mean_stay=_mean(value, "mean_stay"),
        mean_absence=_mean(value, "mean_absence"),
    )
    given = [key for key in ("arrive", "leave", "spread", "mean_stay", "mean_absence") if getattr(found, key)]
    if ("mean_stay" in given) != ("mean_absence" in given):
        raise InputError(f"{where}: give both mean_stay and mean_absence, or none of them")
    times = {"arrive": "arrive", "leave": "arrive", "spread": "spread"}
    kinds = list(dict.fromkeys(times.get(key, "mean_stay") for key in given))
    if len(kinds) > 1:
        raise InputError(f"{where}.{kinds[1]}: give times (arrive, leave), spread, or mean_stay and mean_absence")
    for j, (first, last) in enumerate(zip(found.arrive or [1] * count, found.leave, strict=False)):
        if 0 < last <= first:
            raise InputError(f"{where}.leave, user {j}: {last} is not after slot {first}, in which the user arrives")
    return count, found


def _quality(value: Any, count: int, K: int, names: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    where = "scenario.users.quality"
    rows = [validation.sequence(row, where, "one row per user") for row in validation.sequence(value, where, "of rows")]
    if len(rows) != count:
        raise InputError(f"{where}: has {counted(len(rows), 'row')} for {counted(count, 'user')}")
    for j, row in enumerate(rows):
        if len(row) != K:
            raise InputError(f"{where}, user {j}: has {counted(len(row), 'entry')} for {counted(K, 'channel')}")
    return tuple(
        tuple(validation.number(q, f"{where}, user {j}, {channel_text(k, names)}", 0, 1) for k, q in enumerate(row))
        for j, row in enumerate(rows)
    )


def _slots(table: Mapping[str, Any], key: str, count: int, low: int) -> tuple[int, ...]:
    """Return one slot per user; empty if none are given."""
    if key not in table:
        return ()
    where = f"scenario.users.{key}"
    values = validation.sequence(table[key], where, "one slot per user")
    if len(values) != count:
        raise InputError(f"{where}: has {counted(len(values), 'entry')} for {counted(count, 'user')}")
    return tuple(validation.whole(value, f"{where}, user {j}", low, MAX_SLOT) for j, value in enumerate(values))


def _mean(table: Mapping[str, Any], key: str) -> float:
    """Return a mean number of slots, at least 1; 0 if it is not given."""
    return validation.number(table[key], f"scenario.users.{key}", 1, 1e12) if key in table else 0.0


def best_assignment(values: Floats) -> Floats:
    """Return which user has which channel, shape (users, K), in the assignment with the largest sum of values."""
    from scipy.optimize import linear_sum_assignment

    assigned = np.zeros_like(values)
    assigned[linear_sum_assignment(values, maximize=True)] = 1.0
    return assigned


def merge_users(old: Any, new: Any) -> Any:
    """Return the users of a scenario with changes: a number changes the count, a table other settings."""
    if isinstance(new, Mapping):
        settings = old if isinstance(old, Mapping) else {} if old is None else {"count": old}
        if new.get("coordination") == "station":
            settings = {key: value for key, value in settings.items() if key == "count"}
        return {**settings, **new}
    return {**old, "count": new} if isinstance(old, Mapping) else new
