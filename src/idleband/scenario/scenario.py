"""Scenario: channels, contexts, perturbation and reward together, and what follows from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats
from idleband.errors import InputError
from idleband.kernels.rng import PERTURBATION, stream
from idleband.scenario.markov import autocorrelation, stationary
from idleband.scenario.perturbation import PERTURBATION_MODELS, PerturbationModel
from idleband.scenario.reward import HIGH, LOW


@dataclass(frozen=True)
class Perturbation:
    """How contexts disturb rewards. Of clear, theta_norm and theta at most one is given; the first two draw theta."""

    model: PerturbationModel = PERTURBATION_MODELS["linear"]
    clear: float | None = 0.7  # P(n < 1)
    theta_norm: float | None = None
    theta: tuple[tuple[float, ...], ...] | None = None  # one row for all channels, or one each
    per_channel: bool = False  # draw a theta for each channel

    @property
    def kind(self) -> str:
        return self.model.name

    @property
    def drawn(self) -> bool:
        return self.kind != "none" and self.theta is None


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """What the world is. Build one with `idleband.scenario`.

    >>> from idleband import scenario
    >>> S4 = scenario("S4")
    >>> S4.K, S4.users, [k + 1 for k in S4.best(S4.table_means)]
    (10, 5, [2, 4, 5, 7, 8])
    """

    name: str
    transition: tuple[Floats, ...]  # K matrices (S_k, S_k)
    rewards: tuple[Floats, ...]  # K arrays (S_k,): the state reward h
    good: tuple[Flags, ...]  # K arrays (S_k,): states without a primary user
    users: int  # M
    sensing: str = "played"
    feedback: str = "perturbation"
    reward: str = "threshold"
    context: str = "uniform"
    dimension: int = 8  # d
    perturbation: Perturbation = Perturbation()
    availability: tuple[tuple[bool, ...], ...] = ()  # rows of K, used in turn; none: all channels, always

    # --- derived ---------------------------------------------------------------------------------------------------

    @property
    def K(self) -> int:
        return len(self.transition)

    @property
    def two_state(self) -> bool:
        """Whether all channels are Gilbert-Elliott channels with state 1 the good one."""
        return all(len(P) == 2 and list(g) == [False, True] for P, g in zip(self.transition, self.good, strict=True))

    @cached_property
    def stationary_distributions(self) -> tuple[Floats, ...]:
        """Stationary distributions of the channels."""
        return tuple(stationary(P) for P in self.transition)

    @cached_property
    def good_shares(self) -> Floats:
        """(K,) share of slots in which a channel is good: no primary user on it."""
        return np.array(
            [
                float(distribution[g].sum())
                for distribution, g in zip(self.stationary_distributions, self.good, strict=True)
            ]
        )

    @cached_property
    def mean_h(self) -> Floats:
        """(K,) stationary means of the state reward h."""
        return np.array(
            [
                float(distribution @ h)
                for distribution, h in zip(self.stationary_distributions, self.rewards, strict=True)
            ]
        )

    @cached_property
    def table_means(self) -> Floats:
        """(K,) mean rewards without perturbation: table II of the paper."""
        return self.mean_h if self.reward == "additive" else LOW + (HIGH - LOW) * self.good_shares

    @cached_property
    def autocorrelations(self) -> Floats:
        """(K,) correlation of a channel's state reward from one slot to the next."""
        return np.array([autocorrelation(P, h) for P, h in zip(self.transition, self.rewards, strict=True)])

    @property
    def available(self) -> Flags:
        """(P, K) rows of availability, used in turn, slot by slot."""
        return np.array(self.availability or [[True] * self.K], np.bool_)

    def theta(self, seed: int, replication: int) -> Floats:
        """(K, size) the model's parameters in a replication, the same row for all channels unless they have their own."""
        given, d = self.perturbation, self.dimension
        if given.theta is not None:
            rows = np.array(given.theta)
        else:
            rng = stream(seed, replication, PERTURBATION)
            count = self.K if given.per_channel else 1
            rows = np.array([given.model.draw(rng, d, given.clear, given.theta_norm) for _ in range(count)])
        # A copy, writeable: what kernels are compiled for.
        return np.array(np.broadcast_to(rows, (self.K, rows.shape[1])), order="C")

    def probabilities_below(self, theta: Floats, level: float) -> tuple[Floats, float]:
        """(K,) P(n < level) for each channel, and the largest standard error among them (0: exact)."""
        return self._per_row(theta, lambda row: self.perturbation.model.probability_below(row, self.dimension, level))[
            0
        ]

    def mean_rewards(self, theta: Floats) -> tuple[Floats, float]:
        """(K,) mean rewards mu, perturbation included, and the largest standard error among them (0: exact)."""
        model, d = self.perturbation.model, self.dimension
        if self.reward == "additive":
            ((perturbation, error),) = self._per_row(theta, lambda row: model.mean(row, d))
            return self.mean_h - perturbation, error
        (clear, error), (negative, error0) = self._per_row(
            theta, lambda row: model.probability_below(row, d, 1.0), lambda row: model.probability_below(row, d, 0.0)
        )
        chance = self.good_shares * clear + (1 - self.good_shares) * negative
        return LOW + (HIGH - LOW) * chance, (HIGH - LOW) * max(error, error0)

    def _per_row(
        self, theta: Floats, *questions: Callable[[Floats], tuple[float, float]]
    ) -> list[tuple[Floats, float]]:
        """For each question (K,) the answers for the rows of theta, and the largest standard error among them. Equal
        rows are asked once, and one after the other, because a model may have to draw a sample for each."""
        memo = {row: [ask(np.array(row)) for ask in questions] for row in set(map(tuple, theta.tolist()))}
        found = [memo[tuple(row)] for row in theta.tolist()]
        return [
            (np.array([answers[i][0] for answers in found]), max(answers[i][1] for answers in found))
            for i in range(len(questions))
        ]

    def reward_range(self) -> tuple[float, float]:
        """[low, high] of the rewards, whatever theta is drawn: what a policy may know beforehand."""
        if self.reward == "threshold":
            return LOW, HIGH
        given = self.perturbation
        if given.theta is not None:
            ends = [given.model.bounds(np.array(row)) for row in given.theta]
            least, most = min(low for low, _ in ends), max(high for _, high in ends)
        else:
            least, most = given.model.drawn_bounds(self.dimension, given.clear, given.theta_norm)
        h = np.concatenate(self.rewards)
        return float(h.min()) - most, float(h.max()) - least

    def best(self, means: Floats) -> list[int]:
        """The M channels (from 0) with the largest means; ties go to the lowest number."""
        return sorted(sorted(range(self.K), key=lambda k: (-means[k], k))[: self.users])

    def cost(self, channels: Sequence[int]) -> float:
        """One slot's regret of picking these M channels (numbered from 1), in means without perturbation.

        >>> from idleband import scenario
        >>> round(scenario("S4").cost([1, 2, 3, 4, 5]), 3)
        0.155
        """
        picked = [validation.whole(c, "channel", 1, self.K) - 1 for c in channels]
        if len(set(picked)) != len(picked):
            raise InputError(f"channels = {list(channels)}: each channel once")
        if len(picked) != self.users:
            raise InputError(f"channels = {list(channels)}: {len(picked)} of them; {self.name} hands out {self.users}")
        means = self.table_means
        return float(means[self.best(means)].sum() - means[picked].sum())

    # --- as data ---------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The scenario complete, as it would stand in a file; `scenario(s.to_dict()) == s`."""
        data: dict[str, Any] = {"name": self.name}
        if self.two_state:
            data["p01"] = [float(P[0, 1]) for P in self.transition]
            data["p10"] = [float(P[1, 0]) for P in self.transition]
        else:
            data["transition"] = [P.tolist() for P in self.transition]
            data["good"] = _once([np.flatnonzero(g).tolist() for g in self.good])
        data["rewards"] = _once([h.tolist() for h in self.rewards])
        data |= {k: getattr(self, k) for k in ("users", "sensing", "feedback", "reward")}
        if self.availability:
            data["availability"] = [list(map(int, row)) for row in self.availability]
        data["context"] = {"kind": self.context, "dimension": self.dimension}
        model: dict[str, Any] = {"kind": self.perturbation.model.reference}
        if self.perturbation.kind != "none":
            for key in ("clear", "theta_norm", "theta"):
                value = getattr(self.perturbation, key)
                if value is not None:
                    model[key] = [list(row) for row in value] if key == "theta" else value
            if self.perturbation.drawn:
                model["per_channel"] = self.perturbation.per_channel
        data["perturbation"] = model
        return data

    def identity(self) -> dict[str, Any]:
        """The same, with a user's own model by what it is and not by where it was found."""
        data, model = self.to_dict(), self.perturbation.model
        data["perturbation"]["kind"] = model.name if model.source is None else [model.name, model.source]
        return data

    def __repr__(self) -> str:
        return f"Scenario({self.name}: {self.K} channels, {self.users} users)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((self.name, self.K, self.users, self.dimension))


def _once(rows: list[list[Any]]) -> list[Any]:
    """One list where all channels have the same."""
    return rows[0] if all(row == rows[0] for row in rows) else rows
