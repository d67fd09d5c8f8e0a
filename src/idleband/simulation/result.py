"""The result of one configured policy: cumulative values at checkpoints, over all replications."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.errors import InputError, counted, unknown
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import bound
from idleband.simulation.blocks import block_reference, block_samples
from idleband.simulation.loop import CURVES, REFERENCES
from idleband.simulation.path import checkpoints, draw_ahead, path_parameters, prepare_drawing
from idleband.simulation.scheduler import Task, TaskResult
from idleband.simulation.statistics import Samples
from idleband.simulation.users_loop import USER_CURVES
from idleband.simulation.users_result import UsersResult

if TYPE_CHECKING:
    import pandas


# The measured columns of the tidy table and their types.
COLUMNS: dict[str, type] = {
    "reward": np.float64,
    "regret_static": np.float64,
    "regret_contextual": np.float64,
    "regret_genie": np.float64,
    "regret_table": np.float64,
    "regret_bound": np.float64,  # nan where there is no upper bound
    "suboptimal_static": np.int64,
    "suboptimal_contextual": np.int64,
    "collisions": np.int64,
}

# Further columns without a base station; nan for policies that select for all users, where there is no such value.
USER_COLUMNS = ("user_collisions", "switches", "messages", "last_collision")


def columns_for(scenario: Scenario) -> dict[str, type]:
    """Return the measured columns of the tidy table of a scenario and their types."""
    if scenario.uncoordinated is None:
        return COLUMNS
    names = (*USER_COLUMNS, *(f"reward_user_{j}" for j in range(scenario.users)))
    return {**COLUMNS, **dict.fromkeys(names, np.float64)}


@dataclass(frozen=True, repr=False)
class Result:
    """Result of one policy on one scenario, over all replications.

    `idleband.simulate` returns one, and a `Study` contains one per policy. R is the number of replications, C that
    of checkpoints and K that of channels.

    Attributes
    ----------
    scenario : Scenario
        The scenario that was simulated.
    policy : str
        Name of the policy.
    label : str
        Name of the policy with the parameters that differ from their defaults.
    parameters : dict
        Values of all parameters of the policy.
    seed : int
        Seed of the random streams.
    t : array of int, shape (C,)
        Slots at which the curves are recorded (checkpoints).
    curves : dict of str to array, each of shape (R, C)
        Cumulative values at the checkpoints: `reward`, `regret_static`, `regret_contextual`, `regret_genie`,
        `regret_table`, `regret_bound`, `suboptimal_static`, `suboptimal_contextual` and `collisions`; without a base
        station also `user_collisions`, `switches`, `messages`, `last_collision` and `reward_user_0` and so on.
    plays : array of int, shape (R, K)
        Number of plays of each channel.
    channel_collisions : array of int, shape (R, K), or None
        Plays of each channel that collided with those of other users; None with a base station.
    state : tuple or None
        Final state of the policy in each replication, one per user without a base station. Stored studies do not
        contain it.
    slots : pandas.DataFrame or None
        One row per replication, slot and channel; only with `record="slots"`.
    note : str
        Why the policy ran interpreted; empty if it ran compiled.
    seconds : array, shape (R,), or None
        Processor time of each replication.

    Examples
    --------
    >>> import idleband as ib
    >>> result = ib.simulate("S1", "mp-ucb", horizon=100, replications=2)
    >>> result
    Result(mp-ucb on S1: 2 replications x 100 slots)
    >>> result.label, result.horizon, result.plays.shape
    ('mp-ucb', 100, (2, 10))
    """

    scenario: Scenario
    policy: str
    label: str
    parameters: dict[str, Any]
    seed: int
    t: Ints
    curves: dict[str, Floats]
    plays: Ints
    channel_collisions: Ints | None = None
    state: tuple[Any, ...] | None = None
    slots: "pandas.DataFrame | None" = None
    note: str = ""
    seconds: Floats | None = None

    def __repr__(self) -> str:
        size = f"{counted(self.replications, 'replication')} x {counted(self.horizon, 'slot')}"
        return f"Result({self.label} on {self.scenario.name}: {size})"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks: mean per slot of every quantity and the half width of its interval."""
        import html

        rows = []
        for name in columns_for(self.scenario):
            found = self.samples(name, per_slot=True).interval()
            half = f"{found.half_width:.4f}" if math.isfinite(found.half_width) else ""
            rows.append(f"<tr><th>{name}</th><td>{found.mean:.4f}</td><td>{half}</td></tr>")
        head = f"<tr><th>per slot</th><th>mean</th><th>± 95%, {self.samples().interval().basis}</th></tr>"
        return f"<p>{html.escape(repr(self))}</p><table>{head}{''.join(rows)}</table>"

    @property
    def reward(self) -> Floats:
        """Cumulative reward at the checkpoints, shape (R, C)."""
        return self.curves["reward"]

    @property
    def replications(self) -> int:
        """Number of replications."""
        return len(self.plays)

    @property
    def horizon(self) -> int:
        """Number of slots."""
        return int(self.t[-1])

    def regret(self, reference: str = "static") -> Floats:
        """Return the cumulative regret at the checkpoints.

        Parameters
        ----------
        reference : {"static", "contextual", "genie", "table", "bound"}
            What the reward is compared with: the best fixed set of channels, the best set given the contexts of each
            slot, the best set in hindsight, the best fixed set by mean reward without perturbation, or the upper bound
            on the long-run average reward.

        Returns
        -------
        array, shape (R, C)
        """
        return self.curves["regret_" + validation.choice(reference, "reference", (*REFERENCES, "table", "bound"))]

    def samples(self, column: str = "reward", *, per_slot: bool = False, at: int = -1) -> Samples:
        """Return the values from which the mean of a quantity and its interval are estimated.

        Parameters
        ----------
        column : str
            The quantity, a key of `curves`.
        per_slot : bool
            Whether the quantity is divided by the number of slots.
        at : int
            Index of a checkpoint; the last one, the horizon, by default.

        Returns
        -------
        Samples
            `values`: one per replication. Where a trace is replayed, one per block of it, because replications of one
            recording are not independent; `weights` are the shares of the blocks in the slots. The method `interval`
            returns the mean with its 95% interval.

        Examples
        --------
        >>> import idleband as ib
        >>> result = ib.simulate("S1", "mp-ucb", horizon=100, replications=2)
        >>> result.samples("collisions").values.shape
        (2,)
        """
        columns = columns_for(self.scenario)
        if column not in columns:
            raise unknown("column", column, columns)
        curve, recording = self.curves[column], self.scenario.recording
        t = int(self.t[at])
        if recording is None:
            return Samples(curve[:, at] / t if per_slot else curve[:, at], self.replications)
        end = at % len(self.t) + 1
        found = block_samples(recording, self.t[:end], curve[:, :end])
        return found if per_slot else found * t

    @property
    def users(self) -> UsersResult:
        """What each user has earned; only of decentralised policies."""
        if self.channel_collisions is None:
            raise InputError(f"policy {self.policy}: selects channels for all users; there are no results by user")
        last = {name: self.curves[name][:, -1].astype(np.int64) for name in USER_COLUMNS}
        return UsersResult(
            self.scenario,
            self.horizon,
            self.plays,
            np.stack([self.curves[f"reward_user_{j}"][:, -1] for j in range(self.scenario.users)], axis=1),
            self.channel_collisions,
            last["switches"],
            last["messages"],
            last["last_collision"],
        )

    def block_reference(self) -> float:
        """Return the mean reward per slot of the best fixed set of channels of each block of the replayed trace."""
        if self.scenario.recording is None:
            raise InputError(f"scenario {self.scenario.name}: replays no trace; there are no blocks")
        return block_reference(self.scenario, self.seed, self.t, self.replications)

    def columns(self) -> dict[str, Any]:
        """Return the tidy table as a dict of columns, one row per replication and checkpoint."""
        R, C = self.reward.shape
        columns: dict[str, Any] = {
            "scenario": [self.scenario.name] * (R * C),
            "policy": [self.policy] * (R * C),
            "label": [self.label] * (R * C),
            "replication": np.repeat(np.arange(R), C),
            "t": np.tile(self.t, R),
        }
        columns |= {name: self.curves[name].ravel().astype(kind) for name, kind in columns_for(self.scenario).items()}
        columns |= {name: [value] * (R * C) for name, value in self.parameters.items()}
        return columns

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the tidy table as a DataFrame, one row per replication and checkpoint."""
        import pandas

        return pandas.DataFrame(self.columns())


def result_of(
    scenario: Scenario,
    configured: ConfiguredPolicy,
    seed: int,
    horizon: int,
    finished: Mapping[Task, TaskResult],
    replications: int,
) -> Result:
    """Return the result of a configured policy from its task results and those of the references."""
    own = [finished[Task(configured, i)] for i in range(replications)]
    references = [finished[Task(None, i)] for i in range(replications)]
    curves = {name: np.array([one.curves[i] for one in own]) for i, name in enumerate(CURVES)}
    for i, name in enumerate(REFERENCES):
        curves[f"regret_{name}"] = np.array([one.curves[i] for one in references]) - curves["reward"]
    collisions = _add_user_curves(scenario, configured, curves, own)
    bounds = _upper_bounds(scenario, seed, replications)
    t = checkpoints(horizon, scenario.recording)
    curves["regret_bound"] = bounds[:, None] * t - curves["reward"]
    return Result(
        scenario,
        configured.policy.name,
        configured.label,
        configured.values,
        seed,
        t,
        curves,
        np.array([one.plays for one in own]),
        channel_collisions=collisions,
        state=None if any(one.state is None for one in own) else tuple(one.state for one in own),
        note=own[0].note,
        seconds=np.array([one.seconds for one in own]),
    )


def _add_user_curves(
    scenario: Scenario, configured: ConfiguredPolicy, curves: dict[str, Floats], own: list[TaskResult]
) -> Ints | None:
    """Add the curves that only exist without a base station; return the collisions of users on each channel."""
    if scenario.uncoordinated is None:
        return None
    if not configured.policy.decentralised:
        curves |= {
            name: np.full_like(curves["reward"], np.nan) for name in columns_for(scenario) if name not in COLUMNS
        }
        return None
    for i, name in enumerate(USER_CURVES[len(CURVES) :], len(CURVES)):
        curves[name] = np.array([one.curves[i] for one in own])
    first = len(USER_CURVES)
    for j in range(scenario.users):
        curves[f"reward_user_{j}"] = np.array([one.curves[first + j] for one in own])
    return np.array([one.curves[first + scenario.users :, -1] for one in own]).astype(np.int64)


@lru_cache(maxsize=16)
def _upper_bounds(scenario: Scenario, seed: int, replications: int) -> Floats:
    """Return the upper bound of each replication, shape (R,); nan where there is none."""
    given = scenario.uncoordinated
    if given is not None and not given.alike:
        return np.full(replications, np.nan)  # the bound is for M users alike who are always present
    prepare_drawing(scenario, replications)  # if tasks ran in other processes, thetas are not kept here
    for i in range(replications):
        draw_ahead(scenario, seed, i, replications)
    found = [bound(scenario, path_parameters(scenario, seed, i)[0]) for i in range(replications)]
    return np.array([np.nan if one is None else one for one in found])
