"""Optimal long-run average reward of small scenarios, with bounds.

Where played channels only are observed, the optimum is that of a Markov decision process whose state is, for every
channel, the last observed state and its age (`kernels.value_iteration`). Ages are truncated and the additive reward is
discretised so that one problem has a smaller and another one a larger value than the true one; both are refined until
the bounds are close enough. Where every channel is sensed, slots are separate, and the optimum is the expected sum of
the M largest rewards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Floats
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.value_iteration import Problem, Relative, decide, iterate
from idleband.scenario.belief_problem import Memory, belief_problem, carried_over, memories, problem_size
from idleband.scenario.build import ScenarioLike
from idleband.scenario.build import scenario as build_scenario
from idleband.scenario.level_brackets import INTEGRATION_ERROR, Bracket, bracket, mean_of_largest
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import padded

MAX_STATES = 2 * 10**6
# What a sweep adds up: values of following states and combinations of levels, for every state and set. 10^8 take about
# a quarter of a second.
MAX_TERMS = 10**6 if compile.INTERPRETED else 10**8
MAX_WORK = 1000 * MAX_TERMS  # of all sweeps
FIRST_FORGOTTEN, FIRST_BINS, MAX_BINS = 0.1, 4, 512
MAX_REFINEMENT = 14.0
MIN_TOLERANCE = 1e-7


class Solution(NamedTuple):
    """What the policy of an optimum needs."""

    memory: list[Memory]
    problem: Problem
    h: Floats


@dataclass(frozen=True, repr=False, eq=False)
class Optimum:
    """Optimal long-run average reward of a scenario. `idleband.optimum` computes it.

    Attributes
    ----------
    scenario : Scenario
        The scenario.
    theta : array
        Parameters of the perturbation model, one row per channel.
    lower, upper : float
        Bounds on the optimal reward per slot. They include what the iteration, the truncation of ages and, under the
        additive reward, the discretisation of the perturbation leave open.
    states : int
        Number of states of the problem that was solved; 0 where every channel is sensed.
    sweeps : int
        Number of sweeps of value iteration that it took.
    span : float
        No policy earns more than `horizon * upper + span` in the mean over a finite horizon.
    sampling_error : float
        Largest change of the optimum if every probability of the perturbation that was estimated from a sample changed
        by its standard error; 0 if all are known in closed form. The bounds do not include it.
    """

    scenario: Scenario
    theta: Floats
    lower: float
    upper: float
    states: int
    sweeps: int
    span: float
    sampling_error: float
    _solution: Solution | None = field(default=None)

    @property
    def value(self) -> float:
        """The middle between the bounds, in reward per slot."""
        return 0.5 * (self.lower + self.upper)

    @property
    def error(self) -> float:
        """Half the difference of the bounds."""
        return 0.5 * (self.upper - self.lower)

    def channels(
        self,
        states: Sequence[int | None],
        ages: Sequence[int],
        perturbations: Sequence[float] | Floats | None = None,
    ) -> list[int]:
        """Return the channels that an optimal policy plays in a slot.

        The policy that plays them in every slot earns at least `lower` per slot in the long run.

        Parameters
        ----------
        states : sequence of K int or None
            The last observed state of each channel; None if it was never observed.
        ages : sequence of K int
            How many slots ago that was; 1 for a channel that was played in the last slot. Ignored for a channel that
            was never observed.
        perturbations : sequence of K float, optional
            Perturbation of each channel in this slot. May be left out if the scenario has none.

        Returns
        -------
        list of int
            M channels, in ascending order.

        Examples
        --------
        >>> import idleband as ib
        >>> found = ib.optimum(ib.scenario(p01=[0.1, 0.1], p10=[0.1, 0.1], users=1, perturbation="none"))
        >>> found.channels(states=[1, 0], ages=[1, 2]), found.channels(states=[0, 1], ages=[1, 2])
        ([0], [1])
        """
        given, solved = self.scenario, self._solution
        if solved is None:
            raise InputError("scenario.sensing = 'all': play the channels with the largest rewards of the slot")
        where = zip(_entries(states, "states", given.K), _entries(ages, "ages", given.K), solved.memory, strict=True)
        at = []
        for k, (state, age, memory) in enumerate(where):
            if state is not None:
                state = validation.whole(state, f"states, channel {k}", 0, len(memory.kept) - 1)
                age = validation.whole(age, f"ages, channel {k}", 1, 2**53)
            at.append(memory.place(state, age))
        if perturbations is None and given.perturbation.kind != "none":
            raise InputError("perturbations: must be given; the scenario has a perturbation")
        n = _entries([0.0] * given.K if perturbations is None else perturbations, "perturbations", given.K)
        n = [validation.number(value, f"perturbations, channel {k}", -math.inf, math.inf) for k, value in enumerate(n)]
        pay = [float(one.beliefs[at[k]] @ _pay(given, k, n[k])) for k, one in enumerate(solved.memory)]
        c = decide(solved.problem, solved.h, np.array(at), given.reward_factor * np.array(pay))
        return [int(k) for k in solved.problem.sets[c]]

    def __repr__(self) -> str:
        return f"Optimum({self.scenario.name}: {self})"

    def __str__(self) -> str:
        digits = 1 - math.floor(math.log10(max(self.error, 1e-8)))
        return f"{self.value:.{digits}f} +- {self.error:.1g} per slot"


def _entries(values: Any, field: str, K: int) -> list[Any]:
    found = validation.sequence(values, field, "one per channel")
    if len(found) != K:
        raise InputError(f"{field}: has {len(found)} entries; the scenario has {K} channels")
    return found


def _pay(scenario: Scenario, k: int, n: float) -> Floats:
    """Return the reward of channel k in each state under perturbation n."""
    if scenario.reward == "additive":
        return scenario.rewards[k] - n
    return np.where(scenario.good[k].astype(float) - n > 0.0, HIGH, LOW)


def optimum(scenario: ScenarioLike, /, *, seed: int = 0, tolerance: float = 1e-4) -> Optimum:
    """Return the optimal long-run average reward of a small scenario.

    It is that of the best of all policies that know the scenario and theta, see the contexts of a slot before they
    choose, and observe the states of the channels that they play; the best of all that observe every state beforehand
    if sensing is "all". Channels must be independent Markov chains. It takes seconds for up to about four two-state
    channels; the upper bound of `idleband show` is for any number of them.

    Parameters
    ----------
    scenario : str, Path, dict or Scenario
        The scenario, as in `idleband.scenario`.
    seed : int
        Where theta is drawn, it is that of replication 0 under this seed. Under the threshold reward a given `clear`
        determines the optimum whatever theta is, unless theta has negative entries.
    tolerance : float
        Largest half-width of the bounds.

    Returns
    -------
    Optimum

    Raises
    ------
    InputError
        If an argument is invalid, if the scenario has a setting for which the optimum is not computed, or if it is too
        large.

    Examples
    --------
    >>> import idleband as ib
    >>> found = ib.optimum(ib.scenario(p01=[0.1, 0.2], p10=[0.1, 0.3], users=1, perturbation="none"))
    >>> f"{found.value:.3f}", found.lower <= found.value <= found.upper, found.error <= 1e-4
    ('0.663', True, True)
    """
    given = build_scenario(scenario)
    seed = validation.whole(seed, "seed", 0, 2**63 - 1)
    require_solvable(given)
    least = MIN_TOLERANCE if given.reward == "threshold" else 10.0 * given.users * INTEGRATION_ERROR
    tolerance = validation.number(tolerance, "tolerance", least, math.inf)
    theta = given.theta(seed, 0)
    if given.sensing == "all":
        return _all_sensed(given, theta, tolerance)
    return _solve(given, theta, tolerance)


def require_solvable(scenario: Scenario) -> None:
    """Refuse settings for which the optimum is not computed."""
    channels = "the optimum is computed for independent Markov channels"
    reasons = {
        "scenario.trace": (scenario.recording, channels),
        "scenario.dwell": (scenario.dwell, channels),
        "scenario.regimes": (scenario.regimes, channels),
        "scenario.shocks": (scenario.shocks, channels),
        "scenario.correlation": (scenario.correlation, channels),
        "scenario.sensing_errors": (scenario.sensing_errors, "the optimum is computed for states that are observed"),
        "scenario.users": (
            scenario.uncoordinated is not None and not scenario.uncoordinated.alike,
            "the optimum is computed for users alike who are always present",
        ),
        "scenario.switching_cost": (scenario.switching_cost, "the optimum is computed without a switching cost"),
        "scenario.availability": (
            not scenario.available.all(), "the optimum is computed for channels that are always available",
        ),
        f"scenario.context.kind = {scenario.context}": (
            not scenario.contexts.independent, "the optimum is computed for contexts of kind uniform",
        ),
        "scenario.perturbation.drift": (scenario.perturbation.drift, "the optimum is computed for a constant theta"),
        "scenario.perturbation.noise": (scenario.perturbation.noise, "the optimum is computed without noise"),
        f"scenario.perturbation.kind = {scenario.perturbation.kind}": (
            scenario.reward == "additive" and scenario.perturbation.model.source is not None,
            "under the additive reward the optimum is computed for the models of the package",
        ),
    }  # fmt: skip
    for where, (found, reason) in reasons.items():
        if found:
            raise InputError(f"{where}: {reason}")


# --- every channel is sensed -----------------------------------------------------------------------------------------


def _all_sensed(scenario: Scenario, theta: Floats, tolerance: float) -> Optimum:
    """Return the expected sum of the M largest rewards of a slot."""
    distributions, bins = padded(scenario.stationary_distributions, 0.0), FIRST_BINS
    while True:
        levels = bracket(scenario, theta, bins)
        lower, upper = (mean_of_largest(one, distributions, scenario.users) for one in (levels.lower, levels.upper))
        slack = _slack(levels, scenario.users)
        found = Optimum(scenario, theta, lower - slack, upper + slack, 0, 0, 0.0, levels.sampling_error)
        if found.error <= tolerance:
            return found
        if bins >= MAX_BINS:
            raise _unreachable(tolerance, found.error)
        bins *= 2


def _slack(levels: Bracket, M: int) -> float:
    return 0.0 if levels.exact else M * INTEGRATION_ERROR


def _unreachable(tolerance: float, reached: float) -> InputError:
    return InputError(f"tolerance = {tolerance:g}: cannot be reached; must be at least {1.1 * reached:.2g} here")


# --- channels that are not played are not observed -------------------------------------------------------------------


def _solve(scenario: Scenario, theta: Floats, tolerance: float) -> Optimum:
    """Refine truncation and discretisation until the bounds are close enough."""
    pair: Pair | None = None
    refinement, gaps = 0.0, list[tuple[float, float]]()
    sweeps, work = 0, 0
    while refinement <= MAX_REFINEMENT:
        memory = memories(scenario, FIRST_FORGOTTEN / 4.0**refinement)
        levels = bracket(scenario, theta, min(round(FIRST_BINS * 2.0**refinement), MAX_BINS))
        _check_size(scenario, memory, levels, tolerance, pair)
        before, pair = pair, Pair(scenario.users, memory, levels, pair)
        pair.close_in(tolerance, 0.01 if before is None else 0.1 * before.width, (MAX_WORK - work) // pair.terms)
        sweeps, work = sweeps + pair.sweeps, work + pair.sweeps * pair.terms
        if pair.width <= 2.0 * tolerance:
            first = scenario.users * float(levels.upper.pay.max()) - pair.lower  # the first slot follows no state
            return Optimum(
                scenario, theta, pair.lower, pair.upper, len(pair.below.h), sweeps,
                float(np.ptp(pair.above.h)) + max(0.0, first), levels.sampling_error,
                Solution(memory, pair.low, pair.below.h),
            )  # fmt: skip
        gaps.append((refinement, pair.gap))
        refinement += next_step(gaps, 2.0 * tolerance)
    assert pair is not None
    raise _unreachable(tolerance, 0.5 * pair.width)


def next_step(gaps: list[tuple[float, float]], wanted: float) -> float:
    """Return by how much to refine next, from refinements and gaps: their logarithm falls nearly along a line.

    >>> next_step([(0.0, 1.0)], 1e-4), next_step([(0.0, 0.1), (1.0, 0.01)], 0.001)
    (1.0, 1.25)
    """
    if len(gaps) < 2:
        return 1.0
    (before, wide), (last, gap) = gaps[-2:]
    slope = max(math.log(wide / gap) / (last - before), math.log(2.0))
    return min(max(math.log(gap / wanted) / slope + 0.25, 0.5), 4.0)


def _check_size(
    scenario: Scenario, memory: list[Memory], levels: Bracket, tolerance: float, solved: "Pair | None"
) -> None:
    """Refuse a problem that is too large; `solved` is a smaller one, if there is any."""
    states, terms = problem_size(memory, levels, scenario.users)
    if states <= MAX_STATES and terms <= MAX_TERMS:
        return
    takes = f"{_count(states)} states; the limit is {MAX_STATES:,}"
    if states <= MAX_STATES:
        takes = f"{_count(states)} states and {_count(terms)} terms per sweep; the limit is {MAX_TERMS:,} terms"
    wider = "" if solved is None else f", or a tolerance above {0.5 * solved.width:.2g}"
    raise InputError(
        f"{scenario.name}: the optimum of {scenario.users} of {scenario.K} channels to within {tolerance:g} takes"
        f" {takes}: use fewer channels{wider}"
    )


def _count(n: int) -> str:
    return f"{n:,}" if n < 10**12 else f"{n:.1e}"


class Pair:
    """Two problems, with a value below and above the optimum, and their relative values."""

    def __init__(self, M: int, memory: list[Memory], levels: Bracket, coarse: "Pair | None") -> None:
        self.memory = memory
        self.low = belief_problem(memory, levels.lower, M, -1.0)
        exact = levels.exact and not any(one.doubt for one in memory)
        self.high = self.low if exact else belief_problem(memory, levels.upper, M, 1.0)
        self.terms = problem_size(memory, levels, M)[1]
        self.sweeps = 0
        self._slack = _slack(levels, M)
        h = np.zeros(int(self.low.first[-1]))
        if coarse is not None:
            h = carried_over(self.low, coarse.memory, coarse.below.h, memory)
        self.below: Relative = Relative(h)
        self.above: Relative = self.below

    @property
    def lower(self) -> float:
        """Lower bound on the optimum."""
        return self.below.low - self._slack

    @property
    def upper(self) -> float:
        """Upper bound on the optimum."""
        return self.above.high + self._slack

    @property
    def width(self) -> float:
        """Difference of the bounds."""
        return self.upper - self.lower

    @property
    def gap(self) -> float:
        """Estimate of the difference that would be left after many iterations."""
        return 0.5 * (self.above.low + self.above.high - self.below.low - self.below.high) + 2.0 * self._slack

    def close_in(self, tolerance: float, within: float, max_sweeps: int) -> None:
        """Iterate until the bounds are close enough, or until it is known that they will not be."""
        while True:
            within = max(within, 0.5 * tolerance)
            self.below = self._iterate(self.low, self.below.h, within, max_sweeps)
            if self.high is self.low:
                self.above = self.below
            else:
                start = self.above.h if self.above.sweeps else self.below.h
                self.above = self._iterate(self.high, start, within, max_sweeps)
            apart = self.above.low - self.below.high
            if self.width <= 2.0 * tolerance or within <= 0.5 * tolerance:
                return
            if apart > 2.0 * tolerance and apart > 0.5 * self.width:
                return
            within *= 0.25

    def _iterate(self, problem: Problem, h: Floats, within: float, max_sweeps: int) -> Relative:
        found = iterate(problem, h, within, self.terms, max(1, max_sweeps - self.sweeps))
        self.sweeps += found.sweeps
        if found.high - found.low > within:
            raise InputError(
                f"tolerance: the iteration is too slow; after {self.sweeps:,} sweeps over {len(h):,} states bounds of"
                f" the average reward are still {found.high - found.low:.1g} apart"
            )
        return found
