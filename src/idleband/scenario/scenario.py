"""Scenario: channels, contexts, perturbation and reward, and the quantities that follow from them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar, TypeVarTuple

import numpy as np

from idleband.arrays import Flags, Floats
from idleband.channels import channel_index, channel_indices, channel_label
from idleband.errors import InputError, counted
from idleband.kernels.rng import PERTURBATION, stream
from idleband.scenario import noise
from idleband.scenario.contexts import UNIFORM_CONTEXTS, Contexts
from idleband.scenario.correlation import Correlation
from idleband.scenario.dwell_times import DwellTimes
from idleband.scenario.markov import autocorrelation, stationary
from idleband.scenario.perturbation import PERTURBATION_MODELS, PerturbationModel
from idleband.scenario.recording import Recording
from idleband.scenario.regimes import Regimes
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.sensing_errors import SensingErrors
from idleband.scenario.shocks import Shocks
from idleband.scenario.uncoordinated import UncoordinatedUsers


@dataclass(frozen=True)
class Perturbation:
    """A perturbation model, its parameters and its noise: n = f(x) + noise e, with e standard normal.

    At most one of clear, theta_norm and theta is given; with the first two theta is drawn in each replication.
    """

    model: PerturbationModel = PERTURBATION_MODELS["linear"]
    clear: float | None = 0.7  # P(n < 1), noise included
    theta_norm: float | None = None
    theta: tuple[tuple[float, ...], ...] | None = None  # one row for all channels, or one per channel
    per_channel: bool = False  # whether a theta is drawn for each channel
    drift: int = 0  # slots in which theta moves in a straight line from one draw to another; 0: it does not move
    noise: float = 0.0  # standard deviation of the noise

    @property
    def kind(self) -> str:
        """Name of the perturbation model."""
        return self.model.name

    @property
    def drawn(self) -> bool:
        """Whether theta is drawn in each replication."""
        return self.kind != "none" and self.theta is None


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """Channels, contexts, perturbation and rewards. Build one with `idleband.scenario`.

    K is the number of channels, M the number of users and d the dimension of the contexts.

    Attributes
    ----------
    name : str
        Name of the scenario.
    transition : tuple of K arrays, each of shape (S_k, S_k)
        Transition matrices of the channels' own chains. With dwell times or regimes, and for a trace, they are the
        long-run shares of transitions.
    rewards : tuple of K arrays, each of shape (S_k,)
        State rewards h(s).
    good : tuple of K arrays of bool, each of shape (S_k,)
        Good states, those without a primary user.
    users : int
        Number of channels that are selected in a slot, M.
    sensing : {"played", "all"}
        Whether policies observe the states of played channels afterwards, or of all channels beforehand.
    feedback : {"perturbation", "reward"}
        Whether the perturbation of a played channel is measured, or only its reward.
    reward : {"threshold", "additive"}
        Kind of reward; see `idleband.scenario`.
    contexts : Contexts
        Distribution of the contexts.
    perturbation : Perturbation
        Perturbation model and its parameters.
    availability : tuple of rows of K flags
        Rows of availability, used in turn, slot by slot; empty: all channels are always available.
    channel_names : tuple of str
        Names of the channels; empty if they have none.
    dwell : DwellTimes or None
        Distributions of dwell times; None if they are geometric.
    regimes : Regimes or None
        Transition probabilities that all channels change together.
    shocks : Shocks or None
        Common shocks.
    correlation : Correlation or None
        Correlation of the draws of channels.
    recording : Recording or None
        A trace that is replayed.
    sensing_errors : SensingErrors or None
        Probabilities of missed detections and false alarms.
    sensing_time : float
        Share of a slot that sensing one channel takes.
    switching_cost : float
        Reward lost for each channel that was not played in the slot before.
    uncoordinated : UncoordinatedUsers or None
        Settings of users who choose channels themselves; None if a base station does.

    Examples
    --------
    >>> import idleband as ib
    >>> S4 = ib.scenario("S4")
    >>> S4.K, S4.users, S4.best(S4.table_means)
    (10, 5, [1, 3, 4, 6, 7])
    >>> [S4.channel_label(k) for k in S4.best(S4.table_means)]
    ['ch2', 'ch4', 'ch5', 'ch7', 'ch8']
    """

    name: str
    transition: tuple[Floats, ...]
    rewards: tuple[Floats, ...]
    good: tuple[Flags, ...]
    users: int
    sensing: str = "played"
    feedback: str = "perturbation"
    reward: str = "threshold"
    contexts: Contexts = UNIFORM_CONTEXTS
    perturbation: Perturbation = Perturbation()
    availability: tuple[tuple[bool, ...], ...] = ()
    channel_names: tuple[str, ...] = ()
    dwell: DwellTimes | None = None
    regimes: Regimes | None = None
    shocks: Shocks | None = None
    correlation: Correlation | None = None
    recording: Recording | None = None
    sensing_errors: SensingErrors | None = None
    sensing_time: float = 0.0
    switching_cost: float = 0.0
    uncoordinated: UncoordinatedUsers | None = None

    # --- channels --------------------------------------------------------------------------------------------------

    @property
    def K(self) -> int:
        """Number of channels."""
        return len(self.transition)

    def channel(self, channel: int | str) -> int:
        """Return the index of a channel that is given by index or by name.

        Parameters
        ----------
        channel : int or str
            Index from 0, or a name from `channel_names`.

        Returns
        -------
        int

        Examples
        --------
        >>> import idleband as ib
        >>> ib.scenario("S4").channel("ch1")
        0
        """
        return channel_index(channel, self.K, self.channel_names, "channel")

    def channel_label(self, channel: int | str) -> str:
        """Return the name of a channel, or its index as text where channels have no names."""
        return channel_label(self.channel(channel), self.channel_names)

    # --- derived ---------------------------------------------------------------------------------------------------

    @property
    def context(self) -> str:
        """Kind of the contexts."""
        return self.contexts.kind

    @property
    def dimension(self) -> int:
        """Dimension of the contexts, d."""
        return self.contexts.dimension

    @property
    def markov(self) -> bool:
        """Whether channels are independent Markov chains."""
        return not (self.dwell or self.regimes or self.shocks or self.correlation or self.recording)

    @property
    def reward_factor(self) -> float:
        """Share of a slot that is left after sensing: of the played channel, or of all channels by M users."""
        sensed = math.ceil(self.K / self.users) if self.sensing == "all" else 1
        return 1.0 - self.sensing_time * sensed

    @property
    def two_state(self) -> bool:
        """Whether all channels are Gilbert-Elliott channels whose good state is state 1."""
        return all(len(P) == 2 and list(g) == [False, True] for P, g in zip(self.transition, self.good, strict=True))

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """What functions with the decorator `once` have found for this scenario."""
        return {}

    @cached_property
    def marginal_transition(self) -> tuple[Floats, ...]:
        """Long-run transition matrices of the channels, common shocks included."""
        return self.transition if self.shocks is None else self.shocks.marginal_transition(self.transition)

    @cached_property
    def stationary_distributions(self) -> tuple[Floats, ...]:
        """Stationary distributions of the channels."""
        return tuple(stationary(P) for P in self.marginal_transition)

    @cached_property
    def good_shares(self) -> Floats:
        """Long-run share of slots in which each channel is good, shape (K,)."""
        return np.array(
            [
                float(distribution[g].sum())
                for distribution, g in zip(self.stationary_distributions, self.good, strict=True)
            ]
        )

    @cached_property
    def mean_h(self) -> Floats:
        """Stationary means of the state reward h, shape (K,)."""
        if self.recorded_rewards:
            assert self.recording is not None
            return self.recording.mean_rewards
        return np.array(
            [
                float(distribution @ h)
                for distribution, h in zip(self.stationary_distributions, self.rewards, strict=True)
            ]
        )

    @property
    def recorded_rewards(self) -> bool:
        """Whether state rewards are those of the recording."""
        recording = self.recording
        return self.reward == "additive" and recording is not None and recording.trace.reward is not None

    @cached_property
    def table_means(self) -> Floats:
        """Mean rewards without perturbation, shape (K,): table II of the paper."""
        means = self.mean_h if self.reward == "additive" else LOW + (HIGH - LOW) * self.good_shares
        return means if self.reward_factor == 1.0 else self.reward_factor * means

    @cached_property
    def autocorrelations(self) -> Floats:
        """Correlation of the state reward of each channel from one slot to the next, shape (K,)."""
        return np.array([autocorrelation(P, h) for P, h in zip(self.marginal_transition, self.rewards, strict=True)])

    @property
    def available(self) -> Flags:
        """Rows of availability, used in turn, slot by slot, shape (P, K)."""
        return np.array(self.availability or [[True] * self.K], np.bool_)

    def theta(self, seed: int, replication: int) -> Floats:
        """Return the parameters of the perturbation model in a replication, one row per channel."""
        return self._drawn_thetas(seed, replication)[0]

    def last_theta(self, seed: int, replication: int) -> Floats:
        """Return the parameters at the end of a drift; those of `theta` if there is none."""
        return self._drawn_thetas(seed, replication)[-1]

    def _drawn_thetas(self, seed: int, replication: int) -> list[Floats]:
        """Return theta at the start and, if it drifts, at the end of the drift."""
        given, d = self.perturbation, self.dimension
        if given.theta is not None:
            draws = [np.array(given.theta)]
        else:
            rng = stream(seed, replication, PERTURBATION)
            count = self.K if given.per_channel else 1
            draws = [
                np.array(
                    [noise.draw(given.model, rng, d, given.clear, given.theta_norm, given.noise) for _ in range(count)]
                )
                for _ in range(2 if given.drift else 1)
            ]
        return [self.theta_of(rows) for rows in draws]

    def theta_of(self, rows: Floats) -> Floats:
        """Return theta with one row per channel from one row, or one per channel."""
        # A writeable copy, the type that kernels are compiled for.
        theta = np.empty((self.K, rows.shape[1]))
        theta[:] = rows
        return theta

    def probabilities_below(self, theta: Floats, level: float) -> tuple[Floats, float]:
        """Return P(n < level) of each channel, shape (K,), and the largest standard error (0 if exact)."""
        model, d, sigma = self.perturbation.model, self.dimension, self.perturbation.noise
        if not self.contexts.uniform:
            return self._estimated(theta, lambda f: noise.all_below(level, f, sigma))
        return self._per_row(theta, lambda row: noise.probability_below(model, row, d, level, sigma))[0]

    def mean_rewards(self, theta: Floats) -> tuple[Floats, float]:
        """Return the mean rewards with perturbation, shape (K,), and the largest standard error (0 if exact)."""
        model, d, factor = self.perturbation.model, self.dimension, self.reward_factor
        sigma = self.perturbation.noise
        if self.reward == "additive":
            if self.contexts.uniform:
                ((perturbation, error),) = self._per_row(theta, lambda row: model.mean(row, d))
            else:
                perturbation, error = self._estimated(theta, lambda f: f)
            return factor * (self.mean_h - perturbation), error
        if self.contexts.uniform:
            (clear, error), (negative, error0) = self._per_row(
                theta,
                lambda row: noise.probability_below(model, row, d, 1.0, sigma),
                lambda row: noise.probability_below(model, row, d, 0.0, sigma),
            )
        else:
            (clear, error), (negative, error0) = (self.probabilities_below(theta, level) for level in (1.0, 0.0))
        probability = self.good_shares * clear + (1 - self.good_shares) * negative
        return factor * (LOW + (HIGH - LOW) * probability), (HIGH - LOW) * max(error, error0)

    def _estimated(self, theta: Floats, function: Callable[[Floats], Any]) -> tuple[Floats, float]:
        """Return the mean of a function of f(x), shape (K,), over contexts that are not uniform.

        Normal contexts are sampled. Recorded ones are all used, so that their mean has no error.
        """
        means, errors = np.zeros(self.K), np.zeros(self.K)
        for k, row in enumerate(theta):
            if k > 0 and self.contexts.recorded is None and (row == theta[k - 1]).all():
                means[k], errors[k] = means[k - 1], errors[k - 1]
                continue
            values = function(self.perturbation.model.values(row, self.contexts.sample(k)))
            means[k] = values.mean()
            errors[k] = 0.0 if self.contexts.kind == "recorded" else values.std() / math.sqrt(len(values))
        return means, float(errors.max())

    def _per_row(
        self, theta: Floats, *functions: Callable[[Floats], tuple[float, float]]
    ) -> list[tuple[Floats, float]]:
        """Evaluate functions for each row of theta; return values, shape (K,), and the largest standard error of each.

        Equal rows are evaluated once, and all functions of a row together, because a model may need a sample per row.
        """
        if (theta == theta[0]).all():
            values = [function(theta[0]) for function in functions]
            return [(np.full(len(theta), value), error) for value, error in values]
        memo = {row: [function(np.array(row)) for function in functions] for row in set(map(tuple, theta.tolist()))}
        found = [memo[tuple(row)] for row in theta.tolist()]
        return [
            (np.array([values[i][0] for values in found]), max(values[i][1] for values in found))
            for i in range(len(functions))
        ]

    def reward_range(self) -> tuple[float, float]:
        """Return the smallest and largest possible reward, for any theta that may be drawn; policies know it.

        Noise is not bounded. Under the additive reward the range includes noise of up to 4 standard deviations.
        """
        if self.reward == "threshold":
            return LOW, HIGH
        given = self.perturbation
        if given.theta is not None:
            ends = [given.model.bounds(np.array(row)) for row in given.theta]
            low, high = min(low for low, _ in ends), max(high for _, high in ends)
        else:
            low, high = noise.drawn_bounds(given.model, self.dimension, given.clear, given.theta_norm, given.noise)
        low, high = low - noise.RANGE * given.noise, high + noise.RANGE * given.noise
        h = np.array([0.0, 1.0]) if self.recorded_rewards else np.concatenate(self.rewards)
        return float(h.min()) - high, float(h.max()) - low

    def best(self, means: Floats) -> list[int]:
        """Return the indices of the M channels with the largest means, in ascending order.

        Parameters
        ----------
        means : array, shape (K,)
            A mean reward for each channel, for example `table_means`. Of equal means the lower index is taken.

        Returns
        -------
        list of int
        """
        return sorted(sorted(range(self.K), key=lambda k: (-means[k], k))[: self.users])

    def cost(self, channels: Sequence[int | str]) -> float:
        """Return the regret of one slot in which these M channels are selected, by mean reward without perturbation.

        Parameters
        ----------
        channels : sequence of int or str
            M different channels, each given by index (from 0) or by name.

        Returns
        -------
        float
            Sum of the M largest mean rewards minus the sum of the mean rewards of these channels.

        Examples
        --------
        >>> import idleband as ib
        >>> round(ib.scenario("S4").cost(["ch1", "ch2", "ch3", "ch4", "ch5"]), 3)
        0.155
        >>> round(ib.scenario("S4").cost([0, 1, 2, 3, 4]), 3)
        0.155
        """
        selected = list(channel_indices(channels, self.K, self.channel_names, "channels"))
        if len(selected) != self.users:
            given = counted(len(selected), "channel")
            raise InputError(f"channels = {list(channels)}: has {given}; {self.name} selects {self.users} in a slot")
        means = self.table_means
        return float(means[self.best(means)].sum() - means[selected].sum())

    # --- as data ---------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the complete scenario as a dict; `idleband.scenario(s.to_dict()) == s`."""
        data: dict[str, Any] = {"name": self.name}
        if self.channel_names != (self.recording.trace.channel_names if self.recording is not None else ()):
            data["channel_names"] = list(self.channel_names)
        if self.recording is not None:
            data["trace"] = self.recording.to_dict()
        elif self.dwell is not None:
            data["dwell"] = self.dwell.to_dict()
        elif self.regimes is not None:
            data["regimes"] = self.regimes.to_dict()
        elif self.two_state:
            data["p01"] = [float(P[0, 1]) for P in self.transition]
            data["p10"] = [float(P[1, 0]) for P in self.transition]
        else:
            data["transition"] = [P.tolist() for P in self.transition]
            data["good"] = _once([np.flatnonzero(g).tolist() for g in self.good])
        if not self.recorded_rewards:
            data["rewards"] = _once([h.tolist() for h in self.rewards])
        for key in ("shocks", "correlation", "sensing_errors"):
            if getattr(self, key) is not None:
                data[key] = getattr(self, key).to_dict()
        for key in ("sensing_time", "switching_cost"):
            if getattr(self, key):
                data[key] = getattr(self, key)
        data["users"] = self.users if self.uncoordinated is None else self.uncoordinated.to_dict(self.users)
        data |= {k: getattr(self, k) for k in ("sensing", "feedback", "reward")}
        if self.availability:
            data["availability"] = [list(map(int, row)) for row in self.availability]
        data["context"] = self.contexts.to_dict()
        model: dict[str, Any] = {"kind": self.perturbation.model.reference}
        if self.perturbation.kind != "none":
            for key in ("clear", "theta_norm", "theta"):
                value = getattr(self.perturbation, key)
                if value is not None:
                    model[key] = [list(row) for row in value] if key == "theta" else value
            if self.perturbation.drawn:
                model["per_channel"] = self.perturbation.per_channel
                if self.perturbation.drift:
                    model["drift"] = self.perturbation.drift
            if self.perturbation.noise:
                model["noise"] = self.perturbation.noise
        data["perturbation"] = model
        return data

    def identity(self) -> dict[str, Any]:
        """Return everything that determines results: no channel names, and files by their content."""
        data, model = self.to_dict(), self.perturbation.model
        data.pop("channel_names", None)
        if self.recording is not None:
            data["trace"]["file"] = self.recording.digest
        if self.contexts.digest:
            data["context"]["file"] = self.contexts.digest
        data["perturbation"]["kind"] = model.name if model.source is None else [model.name, model.source]
        return data

    def __repr__(self) -> str:
        return f"Scenario({self.name}: {counted(self.K, 'channel')}, {counted(self.users, 'user')})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scenario):
            return False
        return self.channel_names == other.channel_names and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((self.name, self.K, self.users, self.dimension))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "kept"}  # is found again

    def __deepcopy__(self, memo: object) -> "Scenario":
        return self  # it is immutable


Arguments = TypeVarTuple("Arguments")
Found = TypeVar("Found")


def once(function: Callable[[Scenario, *Arguments], Found]) -> Callable[[Scenario, *Arguments], Found]:
    """Keep what a function returns for a scenario and other arguments, as long as the scenario exists.

    The value is shared and must not be changed.
    """

    @wraps(function)
    def kept(scenario: Scenario, *arguments: *Arguments) -> Found:
        key = (function, arguments)
        found: Found | None = scenario.kept.get(key)
        return scenario.kept.setdefault(key, function(scenario, *arguments)) if found is None else found

    return kept


def _once(rows: list[list[Any]]) -> list[Any]:
    """Return a single list if all channels have the same one."""
    return rows[0] if all(row == rows[0] for row in rows) else rows
