"""The exact optimum, compared with cases solved by hand, with a linear program and with simulated policies."""

import dataclasses
import itertools
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

import idleband as ib
from idleband.kernels import whittle_lagrangian
from idleband.scenario.scenario import Perturbation
from idleband.scenario.upper_bound import bound
from tests.own_model import LOUD

FINE = 1e-6


def channels(p01: list[float], p10: list[float], users: int = 1, **settings: Any) -> ib.Scenario:
    """Return two-state channels, without perturbation unless one is given."""
    return ib.scenario(p01=p01, p10=p10, users=users, **{"perturbation": "none", **settings})


def contains(found: ib.Optimum, exact: float, error: float = 1e-12) -> bool:
    """Return whether an exact value, known up to an error, is within the bounds."""
    return found.lower - error <= exact <= found.upper + error


# --- solved by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("perturbation", "clear"), [("none", 1.0), ({"kind": "linear", "clear": 0.7}, 0.7)])
def test_a_single_channel_earns_its_mean(perturbation: Any, clear: float) -> None:
    """It is idle in a share p01 / (p01 + p10) = 1/4 of the slots."""
    found = ib.optimum(channels([0.1], [0.3], perturbation=perturbation), tolerance=FINE)
    assert contains(found, 0.1 + 0.9 * 0.25 * clear)
    assert found.error <= FINE


def test_all_channels_played_earn_their_means() -> None:
    """With M = K there is no choice."""
    given = channels([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], users=3)
    assert contains(ib.optimum(given, tolerance=FINE), given.table_means.sum(), 1e-9)


def test_memoryless_channels_with_contexts() -> None:
    """Channels are idle with probability 0.6 and 0.5 in every slot, and each is undisturbed with probability 0.7.

    The better one is played if it is undisturbed (0.7), else the other one if it is (0.3 * 0.7), else nothing can be
    earned above 0.1.
    """
    given = channels([0.6, 0.5], [0.4, 0.5], perturbation={"kind": "linear", "clear": 0.7})
    found = ib.optimum(given, tolerance=FINE)
    assert contains(found, 0.1 + 0.9 * (0.7 * 0.6 + 0.3 * 0.7 * 0.5), 1e-9)
    assert contains(ib.optimum(channels([0.6, 0.5], [0.4, 0.5])), 0.1 + 0.9 * 0.6)


@pytest.mark.parametrize(("p01", "p10"), [(0.1, 0.1), (0.05, 0.3), (0.3, 0.05)])
def test_two_equal_channels_that_stay_in_their_state(p01: float, p10: float) -> None:
    """The best policy stays on an idle channel and leaves a busy one (Zhao, Krishnamachari and Liu 2008).

    A visit of L slots ends with a busy one. The channel that is visited next was busy L + 1 slots ago, so that it is
    idle with probability w = pi (1 - rho^(L+1)). A visit that begins with probability w has L = 1 with probability
    1 - w and L = n >= 2 with probability w p11^(n-2) p10, hence E[L | w] = 1 + w / p10, all slots but one are idle, and

        E[rho^(L+1) | w] = (1 - w) rho^2 + w p10 rho^3 / (1 - p11 rho).

    This is linear in w, so that its mean W over visits solves W = pi (1 - (1 - W) rho^2 - W c), where c is the last
    quotient. The share of idle slots is (W / p10) / (1 + W / p10).
    """
    pi, rho = p01 / (p01 + p10), 1 - p01 - p10
    c = p10 * rho**3 / (1 - (1 - p10) * rho)
    W = pi * (1 - rho**2) / (1 - pi * rho**2 + pi * c)
    found = ib.optimum(channels([p01] * 2, [p10] * 2), tolerance=FINE)
    assert contains(found, 0.1 + 0.9 * (W / p10) / (1 + W / p10), 1e-9)


@pytest.mark.parametrize(("p01", "p10"), [(0.9, 0.8), (0.7, 0.5), (0.6, 0.95)])
def test_two_equal_channels_that_alternate(p01: float, p10: float) -> None:
    """Now rho < 0: the best policy stays on a busy channel and leaves an idle one, so that a visit has one idle slot.

    The next channel was idle L + 1 slots ago: w = pi + (1 - pi) rho^(L+1). L = 1 with probability w, and n >= 2 with
    probability (1 - w) p00^(n-2) p01. So E[L | w] = 1 + (1 - w) / p01, and the mean W of w solves
    W = pi + (1 - pi) (W rho^2 + (1 - W) c) with c = p01 rho^3 / (1 - p00 rho). The share of idle slots is 1 / E[L].
    """
    pi, rho = p01 / (p01 + p10), 1 - p01 - p10
    c = p01 * rho**3 / (1 - (1 - p01) * rho)
    W = (pi + (1 - pi) * c) / (1 - (1 - pi) * (rho**2 - c))
    found = ib.optimum(channels([p01] * 2, [p10] * 2), tolerance=FINE)
    assert contains(found, 0.1 + 0.9 / (1 + (1 - W) / p01), 1e-9)


@pytest.mark.parametrize(("p01", "p10"), [(0.1, 0.1), (0.05, 0.1), (0.9, 0.7)])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.6])
def test_a_memoryless_channel_beside_another_is_a_charge(share: float, p01: float, p10: float) -> None:
    """Playing the other channel costs the mean m of the memoryless one, so the optimum is m plus the gain at charge m.

    The gain is computed by policy iteration in `whittle_lagrangian`, with ages up to 300.
    """
    mean = 0.1 + 0.9 * share
    found = ib.optimum(channels([p01, share], [p10, 1 - share]), tolerance=FINE)
    P = np.array([[[1 - p01, p01], [p10, 1 - p10]]])
    alone = whittle_lagrangian.channels(P, np.array([[[0.1, 1.0]]]), np.ones((1, 1)), 300)
    gain = np.zeros((1, 1))
    whittle_lagrangian._sweep(alone, np.array([mean]), gain, np.zeros((0, 0, 0, 0)))
    assert contains(found, mean + gain[0, 0], 1e-9)


# --- a linear program ------------------------------------------------------------------------------------------------

Known = tuple[tuple[int, int], ...]  # last state and age of every channel


def program(P: list[np.ndarray], good: list[list[bool]], levels: list[tuple[float, float]], M: int, ages: int) -> float:
    """Return the optimal average reward from a linear program over frequencies of (state, levels, set).

    `levels` has, per channel, P(n < 0) and P(n < 1). Written from the model, without the package: states are found by
    following all plays, and a belief no longer changes after the last age.
    """
    K = len(P)
    sets = list(itertools.combinations(range(K), M))
    combined = list(itertools.product(range(3), repeat=K))
    weight = [
        math.prod(
            (below0, below1 - below0, 1 - below1)[level] for level, (below0, below1) in zip(row, levels, strict=True)
        )
        for row in combined
    ]
    combined = [row for row, q in zip(combined, weight, strict=True) if q > 0]
    weight = [q for q in weight if q > 0]
    beliefs = [[np.linalg.matrix_power(p, a) for a in range(ages + 1)] for p in P]

    def following(x: Known, chosen: tuple[int, ...]) -> list[tuple[Known, float]]:
        outcomes = []
        for shown in itertools.product(*(range(len(P[k])) for k in chosen)):
            probability = math.prod(beliefs[k][x[k][1]][x[k][0], s] for k, s in zip(chosen, shown, strict=True))
            seen = dict(zip(chosen, shown, strict=True))
            after = tuple((seen[k], 1) if k in seen else (s, min(a + 1, ages)) for k, (s, a) in enumerate(x))
            outcomes.append((after, probability))
        return outcomes

    def paid(x: Known, k: int, level: int) -> float:
        s, a = x[k]
        idle = sum(beliefs[k][a][s, j] for j in range(len(P[k])) if good[k][j])
        return 0.1 + 0.9 * (1.0, idle, 0.0)[level]

    number = {tuple((0, 1) for _ in range(K)): 0}
    queue = list(number)
    for x in queue:
        for chosen in sets:
            for after, _ in following(x, chosen):
                if after not in number:
                    number[after] = len(number)
                    queue.append(after)
    X, Q, C = len(queue), len(combined), len(sets)
    entries: list[tuple[int, int, float]] = []  # row, column, value; columns: states, then (state, levels, set)
    reward = np.zeros(X + X * Q * C)
    for i, x in enumerate(queue):
        entries.append((i, i, -1.0))  # a state is met as often as it is reached
        for c, chosen in enumerate(sets):
            arrivals = following(x, chosen)
            for q, row in enumerate(combined):
                column = X + (i * Q + q) * C + c
                reward[column] = sum(paid(x, k, row[k]) for k in chosen)
                entries += [(number[after], column, p) for after, p in arrivals]
                entries.append((X + i * Q + q, column, 1.0))  # levels have their probabilities in every state
        entries += [(X + i * Q + q, i, -weight[q]) for q in range(Q)]
        entries.append((X + X * Q, i, 1.0))
    rows, columns, values = zip(*entries, strict=True)
    size = X + X * Q + 1
    A = coo_matrix((values, (rows, columns)), (size, len(reward)))
    solved = linprog(-reward, A_eq=A, b_eq=[0.0] * (size - 1) + [1.0], method="highs")
    assert solved.success
    return -float(solved.fun)


THREE_STATES = [
    [[0.5, 0.4, 0.1], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]],
    [[0.6, 0.4], [0.3, 0.7]],
]
NEGATIVE = {"kind": "linear", "theta": [0.9, -0.4, 0.8, 0.3, -0.6, 0.2, 0.5, 0.1]}


@pytest.mark.parametrize(
    ("settings", "ages"),
    [
        ({"p01": [0.3, 0.35], "p10": [0.3, 0.3], "users": 1, "perturbation": "none"}, 16),
        ({"p01": [0.3, 0.35], "p10": [0.3, 0.3], "users": 1, "perturbation": {"clear": 0.6}}, 16),
        ({"p01": [0.8, 0.3], "p10": [0.7, 0.4], "users": 1, "perturbation": NEGATIVE}, 16),
        ({"transition": THREE_STATES, "good": [[1, 2], [1]], "users": 1, "perturbation": {"clear": 0.7}}, 14),
        ({"p01": [0.4, 0.35, 0.7], "p10": [0.4, 0.5, 0.5], "users": 1, "perturbation": "none"}, 9),
        ({"p01": [0.4, 0.35, 0.7], "p10": [0.4, 0.5, 0.5], "users": 2, "perturbation": {"clear": 0.7}}, 9),
    ],
    ids=["K2", "K2, contexts", "K2, negative entries", "three states", "K3", "K3 M2, contexts"],
)
def test_optimum_is_the_value_of_a_linear_program(settings: dict[str, Any], ages: int) -> None:
    """Beliefs of the program are off by |rho|^ages at most, less than 1e-6; rho is the second eigenvalue."""
    given = ib.scenario(**settings)
    theta = given.theta(0, 0)
    below = [given.probabilities_below(theta, level)[0].tolist() for level in (0.0, 1.0)]
    exact = program(
        [np.array(P) for P in given.transition],
        [list(g) for g in given.good],
        list(zip(*below, strict=True)),
        given.users,
        ages,
    )
    found = ib.optimum(given, tolerance=1e-5)
    assert contains(found, exact, 1e-5)
    assert found.error <= 1e-5


# --- bounds ----------------------------------------------------------------------------------------------------------

UNEQUAL = {"p01": [0.1, 0.2, 0.05], "p10": [0.1, 0.3, 0.05]}


@pytest.mark.parametrize("users", [1, 2])
def test_coarse_bounds_contain_fine_ones(users: int) -> None:
    """The error of truncated ages is included: each tolerance has its own truncation."""
    given = ib.scenario(**UNEQUAL, users=users)
    fine = ib.optimum(given, tolerance=1e-5)
    last = 0
    for tolerance in (0.1, 0.01, 1e-3, 1e-4):
        coarse = ib.optimum(given, tolerance=tolerance)
        assert coarse.lower <= fine.upper
        assert fine.lower <= coarse.upper
        assert coarse.error <= tolerance
        assert last <= coarse.states <= fine.states
        last = coarse.states


@st.composite
def small(draw: st.DrawFn) -> ib.Scenario:
    """Return two or three channels with or without contexts."""
    K = draw(st.integers(2, 3))
    probability = st.floats(0.05, 0.95)
    p01, p10 = (draw(st.lists(probability, min_size=K, max_size=K)) for _ in range(2))
    perturbation = draw(st.sampled_from(["none", {"kind": "linear", "clear": 0.7}]))
    return channels(p01, p10, draw(st.integers(1, K - 1)), perturbation=perturbation)


@settings(max_examples=20)
@given(scenario=small(), seed=st.integers(0, 1000))
def test_upper_bound_optimum_and_oracles_are_in_this_order(scenario: ib.Scenario, seed: int) -> None:
    """Oracles are simulated: 10 replications of 5,000 slots; the mean may be five standard errors too large.

    In T slots no policy earns more than T times the upper end plus the span. The better oracle loses less than 5%.
    """
    found = ib.optimum(scenario, seed=seed, tolerance=1e-3)
    limit = bound(scenario, found.theta)
    assert limit is not None
    assert limit >= found.lower - 1e-6  # the bound itself is truncated and rounded
    best = -math.inf
    for oracle in ("oracle-whittle", "oracle-belief"):
        result = ib.simulate(scenario, oracle, horizon=5000, replications=10, seed=seed)
        earned = result.reward[:, -1] / 5000
        error = earned.std(ddof=1) / math.sqrt(len(earned))
        assert earned.mean() <= found.upper + found.span / 5000 + 5 * error
        best = max(best, earned.mean() + 5 * error)
    assert best > 0.95 * found.lower


# --- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["threshold", "additive"])
def test_the_policy_earns_the_optimum(reward: str) -> None:
    """Simulated here, in 40 runs of 250 slots: the mean differs from the optimum by less than five standard errors.

    A run starts with channels that were never observed, which changes its mean by at most the span over its length.
    """
    given = ib.scenario(p01=[0.1, 0.3, 0.8], p10=[0.2, 0.1, 0.7], users=2, reward=reward, perturbation={"clear": 0.6})
    found = ib.optimum(given, tolerance=0.01)
    rng, slots, runs = np.random.default_rng(1), 250, []
    for _ in range(40):
        states: list[int | None] = [None] * 3
        ages, total = [1] * 3, 0.0
        true = rng.random(3) < given.good_shares
        for _ in range(slots):
            true = rng.random(3) < np.array([P[int(s), 1] for P, s in zip(given.transition, true, strict=True)])
            n = rng.random((3, 8)) @ found.theta[0]
            chosen = found.channels(states, ages, n)
            for k in range(3):
                ages[k] += 1
            for k in chosen:
                states[k], ages[k] = int(true[k]), 1
                if reward == "threshold":
                    total += 1.0 if true[k] - n[k] > 0 else 0.1
                else:
                    total += (1.0 if true[k] else 0.1) - n[k]
        runs.append(total / slots)
    error = np.std(runs, ddof=1) / math.sqrt(len(runs))
    assert abs(np.mean(runs) - found.value) < 5 * error + found.error + found.span / slots


def test_the_policy_by_hand() -> None:
    """With two equal channels that stay in their state: an idle channel is kept, a busy one left.

    The value of a channel that was never observed, or very long ago, lies between those of a busy and of an idle one.
    A disturbed channel is not played where the other one may be idle.
    """
    found = ib.optimum(channels([0.1] * 2, [0.1] * 2))
    assert found.channels([1, 1], [1, 2]) == [0]
    assert found.channels([0, 0], [1, 2]) == [1]
    assert found.channels([None, 0], [1, 1]) == [0]
    assert found.channels([None, 1], [1, 1]) == [1]
    assert found.channels([0, 0], [10**6, 1]) == [0]
    assert found.channels([None, None], [1, 1]) == [0]
    disturbed = ib.optimum(channels([0.1] * 2, [0.1] * 2, perturbation={"clear": 0.7}))
    assert disturbed.channels([1, 0], [1, 2], [0.5, 0.5]) == [0]
    assert disturbed.channels([1, 0], [1, 2], [1.5, 0.5]) == [1]
    assert disturbed.channels([1, 0], [1, 2], [1.5, -0.5]) == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], [1, 1]), "states: has 1 entries; the scenario has 2 channels"),
        (([1, 2], [1, 1], [0, 0]), "states, channel 1 = 2: must be a whole number from 0 to 1"),
        (([1, 1], [1, 0], [0, 0]), "ages, channel 1 = 0: must be a whole number from 1"),
        (([1, 1], [1, 1]), "perturbations: must be given"),
        (([1, 1], [1, 1], [0, float("nan")]), "perturbations, channel 1 = nan: must be a number"),
    ],
)
def test_bad_knowledge_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    found = ib.optimum(channels([0.1] * 2, [0.1] * 2, perturbation={"clear": 0.7}))
    with pytest.raises(ib.InputError, match=message):
        found.channels(*arguments)


# --- the additive reward ---------------------------------------------------------------------------------------------


def test_additive_reward_of_memoryless_channels() -> None:
    """n is uniform on [0, 1/2] for both channels, whose means are equal: the smaller one is avoided, E[min] = 1/6."""
    uniform = {"kind": "linear", "theta": [0.5]}
    given = channels(
        [0.5] * 2, [0.5] * 2, rewards=[0.0, 1.0], reward="additive", perturbation=uniform, context={"dimension": 1}
    )
    for tolerance in (0.01, 1e-3, 1e-4):
        found = ib.optimum(given, tolerance=tolerance)
        assert contains(found, 0.5 - 1 / 6)
        assert found.error <= tolerance


def test_additive_reward_without_perturbation_has_state_rewards() -> None:
    given = channels([0.1, 0.2], [0.1, 0.3])
    additive = ib.scenario(given, reward="additive")  # state rewards are 0.1 and 1, as the threshold reward pays them
    assert ib.optimum(additive, tolerance=1e-4).value == pytest.approx(ib.optimum(given).value, abs=2e-4)


# --- every channel is sensed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [1, 2, 3])
def test_all_sensed_by_enumeration(users: int) -> None:
    """All combinations of rewards of three channels, of which the M largest are paid; half of a slot is for sensing."""
    given = channels(
        [0.1, 0.2, 0.6], [0.3, 0.2, 0.2], users, sensing="all", perturbation={"clear": 0.7}, sensing_time=0.1
    )
    high = 0.7 * given.good_shares
    exact = sum(
        math.prod(p if pays else 1 - p for p, pays in zip(high, paid, strict=True))
        * (0.9 * min(sum(paid), users) + 0.1 * users)
        for paid in itertools.product((0, 1), repeat=3)
    )
    found = ib.optimum(given, tolerance=FINE)
    assert contains(found, given.reward_factor * exact)
    assert (found.states, found.sweeps, found.error < 1e-12) == (0, 0, True)
    with pytest.raises(ib.InputError, match="the largest rewards of the slot"):
        found.channels([0, 0, 0], [1, 1, 1])


def test_all_sensed_with_additive_reward() -> None:
    """State rewards are equal, so that the smallest of three uniform perturbations is paid: E = 1/4; of two plays 3/4.

    The expected order statistics of three uniform variables are 1/4, 1/2 and 3/4.
    """
    given = {"sensing": "all", "reward": "additive", "rewards": [1.0, 1.0], "context": {"dimension": 1}}
    for users, exact in ((1, 1 - 1 / 4), (2, 2 - 3 / 4), (3, 3 - 3 / 2)):
        found = ib.optimum(
            channels([0.1] * 3, [0.2] * 3, users, perturbation={"kind": "linear", "theta": [1.0]}, **given)
        )
        assert contains(found, exact)
        assert found.error <= 1e-4


# --- what is refused -------------------------------------------------------------------------------------------------

DWELL = {"good": {"kind": "weibull", "shape": 0.5}, "bad": {"kind": "geometric"}}
REGIMES = {"p01": [[0.1, 0.2], [0.2, 0.1]], "p10": [[0.1, 0.2], [0.2, 0.1]], "at": [100]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dwell": DWELL}, "scenario.dwell: the optimum is computed for independent Markov channels"),
        ({"shocks": {"start": 0.1, "end": 0.1, "share": 0.5}}, "scenario.shocks: "),
        ({"correlation": {"common": 0.5}}, "scenario.correlation: "),
        ({"sensing_errors": {"missed": 0.1}}, "scenario.sensing_errors: "),
        ({"switching_cost": 0.1}, "scenario.switching_cost: "),
        ({"availability": [[1, 0], [1, 1]]}, "scenario.availability: "),
        ({"context": {"kind": "ar1", "correlation": 0.5}}, "scenario.context.kind = ar1: "),
        ({"perturbation": {"kind": "linear", "clear": 0.7, "drift": 100}}, "scenario.perturbation.drift: "),
        ({"perturbation": {"kind": "linear", "clear": 0.7, "noise": 0.1}}, "scenario.perturbation.noise: "),
        ({"p01": [1.0, 0.2], "p10": [1.0, 0.3]}, "scenario, channel 0: an observation has influence for more than"),
    ],
)
def test_other_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    given = ib.scenario(**{"p01": [0.1, 0.2], "p10": [0.1, 0.3], "users": 1, **settings})
    with pytest.raises(ib.InputError, match=message) as refused:
        ib.optimum(given)
    assert "\n" not in str(refused.value)


def test_regimes_and_traces_are_refused() -> None:
    with pytest.raises(ib.InputError, match=r"scenario.regimes: "):
        ib.optimum({"regimes": REGIMES, "users": 1})
    trace = ib.Trace.from_arrays(busy=np.array([[True, False], [False, True]] * 50))
    with pytest.raises(ib.InputError, match=r"scenario.trace: "):
        ib.optimum({"trace": trace, "users": 1})


def test_every_setting_is_known_to_be_solved_or_refused() -> None:
    """A new setting may change the optimum: it must be solved or refused by `require_solvable`, and added here."""
    refused = {
        "recording", "dwell", "regimes", "shocks", "correlation", "sensing_errors", "switching_cost", "availability",
        "contexts", "uncoordinated",
    }  # fmt: skip
    solved = {"transition", "rewards", "good", "users", "sensing", "reward", "perturbation", "sensing_time"}
    without_effect = {"name", "channel_names", "feedback"}  # theta is known, and states of played channels are seen
    assert {field.name for field in dataclasses.fields(ib.Scenario)} == refused | solved | without_effect
    perturbation = {field.name for field in dataclasses.fields(Perturbation)}
    refused = {"drift", "noise"}
    assert perturbation == {"model", "clear", "theta_norm", "theta", "per_channel"} | refused


def test_users_model_is_accepted_under_the_threshold_reward_only(tmp_path: Any) -> None:
    """Its probabilities come from a sample, whose error is reported."""
    (tmp_path / "mine.py").write_text(LOUD)
    model = {"kind": f"{tmp_path / 'mine.py'}:loud", "clear": 0.7}
    given = channels([0.1] * 2, [0.1] * 2, perturbation=model)
    found = ib.optimum(given)
    assert 0 < found.sampling_error < 0.01
    with pytest.raises(ib.InputError, match="under the additive reward the optimum is computed for the models"):
        ib.optimum(ib.scenario(given, reward="additive"))


def test_large_instances_are_refused_with_their_size() -> None:
    with pytest.raises(
        ib.InputError, match=r"S1: the optimum of 5 of 10 channels .* takes [\d,]+ states; the limit is"
    ):
        ib.optimum("S1")
    with pytest.raises(ib.InputError, match=r"states and [\d,]+ terms per sweep; the limit is 100,000,000 terms"):
        ib.optimum(channels([0.5] * 12, [0.5] * 12, 6))
    with pytest.raises(ib.InputError, match=r"use fewer channels, or a tolerance above 0.00\d+"):
        ib.optimum(ib.scenario(**UNEQUAL, users=1, reward="additive"), tolerance=1e-4)


def test_slow_channels_that_do_not_converge_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["idleband.scenario.optimum"], "MAX_WORK", 10**6)
    with pytest.raises(ib.InputError, match=r"the iteration is too slow; after [\d,]+ sweeps over [\d,]+ states"):
        ib.optimum(channels([0.001, 0.002], [0.001, 0.003]))


@pytest.mark.parametrize("tolerance", [0.0, 1e-9, float("nan"), "x"])
def test_bad_tolerance_is_refused(tolerance: Any) -> None:
    with pytest.raises(ib.InputError, match="tolerance = "):
        ib.optimum(channels([0.1], [0.1]), tolerance=tolerance)


def test_optimum_prints_its_value_and_error() -> None:
    found = ib.optimum(channels([0.1], [0.3]), tolerance=FINE)
    assert str(found).startswith("0.325000")
    assert repr(found) == f"Optimum(scenario: {found})"


# --- compiled and interpreted ----------------------------------------------------------------------------------------

SMALL_EXAMPLE = """
import idleband as ib
given = ib.scenario(p01=[0.3, 0.35, 0.7], p10=[0.3, 0.3, 0.8], users=2, perturbation={"clear": 0.6})
found = ib.optimum(given, tolerance=0.01)
print(found.lower.hex(), found.upper.hex(), found.sweeps, found.channels([0, 1, None], [1, 1, 3], [0.5, 1.2, 0.9]))
"""


def test_compiled_and_interpreted_results_are_identical() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", SMALL_EXAMPLE],
            env={**os.environ, "NUMBA_DISABLE_JIT": disable},
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout
        for disable in ("0", "1")
    ]  # fmt: skip
    assert printed[0] == printed[1]
    assert len(printed[0].split()) == 5
