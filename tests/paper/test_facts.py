"""Numbers of the paper's tables and text, and results of a separate prototype."""

import json
import math
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

import idleband as ib
from idleband.scenario.halfspace_volume import below
from idleband.scenario.presets import PRESETS

NAMES = sorted(PRESETS)

# --- tables I and II -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_table_2_follows_from_table_1(name: str) -> None:
    preset, scenario = PRESETS[name], ib.scenario(name)
    exact = [0.1 + 0.9 * p01 / (p01 + p10) for p01, p10 in zip(preset.p01, preset.p10, strict=True)]
    assert len(exact) == 10
    np.testing.assert_allclose(preset.printed_means, exact, rtol=0, atol=0.005)
    np.testing.assert_allclose(scenario.table_means, exact, rtol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_table_2_does_not_include_the_perturbation(name: str) -> None:
    scenario = ib.scenario(name)
    mu, error = scenario.mean_rewards(scenario.theta(seed=0, replication=0))
    assert error == 0
    # P(n < 1) = 0.7 removes 0.3 of the reward above 0.1, at least five times the rounding error
    np.testing.assert_allclose(mu, 0.1 + 0.7 * (scenario.table_means - 0.1), rtol=0, atol=1e-9)
    assert np.all(PRESETS[name].printed_means - mu > 0.02)


@pytest.mark.parametrize(("name", "tied"), [("S1", set()), ("S2", {(1, 2)}), ("S3", {(1, 2)}), ("S4", {(3, 10)})])
def test_tied_channels(name: str, tied: set[tuple[int, int]]) -> None:
    means = ib.scenario(name).table_means
    close = {(i + 1, j + 1) for j in range(10) for i in range(j) if abs(means[i] - means[j]) < 1e-12}
    assert close == tied


def test_correlation_of_successive_slots() -> None:
    """It is 0 in S2 and for ch2, ch4, ... of S3, negative for ch7 to ch10 of S4, and positive for all others."""
    correlation = {name: ib.scenario(name).autocorrelations for name in NAMES}
    for name in NAMES:
        p01, p10 = np.array(PRESETS[name].p01), np.array(PRESETS[name].p10)
        np.testing.assert_allclose(correlation[name], 1 - p01 - p10, rtol=0, atol=1e-12)
    assert np.all(correlation["S1"] > 0.85)
    np.testing.assert_allclose(correlation["S2"], 0, atol=1e-12)
    np.testing.assert_allclose(correlation["S3"][1::2], 0, atol=1e-12)
    assert np.all(correlation["S3"][0::2] > 0.85)
    assert np.all(correlation["S4"][:6] > 0.05)
    assert np.all(correlation["S4"][6:] < -0.25)


# --- the worked example of section V-C -------------------------------------------------------------------------------

WORKED_EXAMPLE = [
    (("ch1", "ch2", "ch3", "ch4", "ch5"), 0.155),
    (("ch6", "ch7", "ch8", "ch9", "ch10"), 0.169),
    (("ch1", "ch2", "ch3", "ch6", "ch9"), 0.260),
    (("ch2", "ch4", "ch5", "ch8", "ch10"), 0.035),
]


@pytest.mark.parametrize(("channels", "printed"), WORKED_EXAMPLE)
def test_worked_example_has_the_printed_costs(channels: tuple[str, ...], printed: float) -> None:
    scenario = ib.scenario("S4")
    assert [scenario.channel_label(k) for k in scenario.best(scenario.table_means)] == [
        "ch2",
        "ch4",
        "ch5",
        "ch7",
        "ch8",
    ]
    assert scenario.cost(channels) == pytest.approx(printed, abs=0.001)
    assert scenario.cost(channels[::-1]) == pytest.approx(scenario.cost(channels), abs=1e-12)


def test_worked_example_with_exact_means() -> None:
    assert round(ib.scenario("S4").cost([5, 6, 7, 8, 9]), 4) == 0.1696


def test_two_policies_of_the_worked_example() -> None:
    """Both play five sub-optimal channels in two slots, but the first loses more: 0.324 and 0.295."""
    scenario = ib.scenario("S4")
    best = {scenario.channel_label(k) for k in scenario.best(scenario.table_means)}
    first, second = WORKED_EXAMPLE[:2], WORKED_EXAMPLE[2:]
    for slots in (first, second):
        assert sum(len(set(channels) - best) for channels, _ in slots) == 5
    lost = [sum(scenario.cost(channels) for channels, _ in slots) for slots in (first, second)]
    assert lost == pytest.approx([0.324, 0.295], abs=0.002)  # 0.001 for each of two slots
    assert lost[0] > lost[1]


@pytest.mark.parametrize(("channels", "printed"), WORKED_EXAMPLE)
def test_worked_example_on_the_command_line(
    channels: tuple[str, ...], printed: float, idleband: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = idleband("cost", "S4", ",".join(map(str, channels)))
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) == pytest.approx(printed, abs=0.001 + 1e-12)  # 0.1696 is printed as 0.170


def test_cost_as_json(idleband: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = idleband("cost", "S4", "5,6,7,8,9", "--json")
    assert round(json.loads(done.stdout)["cost"], 4) == 0.1696


# --- the prototype ---------------------------------------------------------------------------------------------------

THETA = [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197]

# Mean reward per slot of an independent prototype, to 0.01.
PROTOTYPE = {
    "S1": {"rca-m": 2.56, "mp-lucb": 2.65, "mp-lucb-rca": 2.45, "mp-lucb-rca, all sensed": 3.11, "genie": 3.11},
    "S2": {"rca-m": 2.67, "mp-lucb": 2.83, "mp-lucb-rca": 2.66, "mp-lucb-rca, all sensed": 3.31, "genie": 3.32},
    "S3": {"rca-m": 2.67, "mp-lucb": 2.83, "mp-lucb-rca": 2.56, "mp-lucb-rca, all sensed": 3.31, "genie": 3.32},
    "S4": {"rca-m": 2.20, "mp-lucb": 2.79, "mp-lucb-rca": 2.28, "mp-lucb-rca, all sensed": 3.57, "genie": 3.57},
}


def prototype_scenario(name: str, **changes: object) -> ib.Scenario:
    return ib.scenario(name, perturbation={"kind": "linear", "theta": THETA}, **changes)


def test_perturbation_of_the_prototype() -> None:
    clear, error = below(np.array(THETA), 1.0)
    assert error == 0
    assert clear == pytest.approx(0.70, abs=0.01)  # it is 0.6914
    assert math.hypot(*THETA) == pytest.approx(0.7, abs=0.001)


def genie_moments(scenario: ib.Scenario) -> tuple[float, float]:
    """Return the exact mean and variance of the reward of the genie per slot.

    It is 0.1 M + 0.9 min(N, M), where the number N of channels with reward 1 is a sum of independent Bernoulli
    variables.
    """
    probabilities = (scenario.mean_rewards(scenario.theta(0, 0))[0] - 0.1) / 0.9
    distribution = np.ones(1)  # of N
    for p in probabilities:
        distribution = np.convolve(distribution, [1 - p, p])
    reward = 0.1 * scenario.users + 0.9 * np.minimum(np.arange(len(distribution)), scenario.users)
    mean = distribution @ reward
    return float(mean), float(distribution @ reward**2 - mean**2)


@pytest.mark.parametrize("name", NAMES)
def test_reward_of_the_genie_is_exact_within_5_sigma(name: str) -> None:
    T, R = 50_000, 4
    scenario = prototype_scenario(name)
    exact, variance = genie_moments(scenario)
    assert exact == pytest.approx(PROTOTYPE[name]["genie"], abs=0.01)

    result = ib.simulate(scenario, "mp-random", horizon=T, replications=R)
    mean = (result.reward + result.regret("genie"))[:, -1].mean() / T
    # Independent two-state chains form a reversible chain with the largest of their eigenvalues (below 1). The mean of
    # a function of it has at most (1 + eigenvalue) / (1 - eigenvalue) times the variance of independent slots.
    eigenvalue = max(0.0, scenario.autocorrelations.max())
    sigma = math.sqrt(variance * (1 + eigenvalue) / (1 - eigenvalue) / (R * T))
    assert abs(mean - exact) < 5 * sigma


@pytest.mark.parametrize("name", NAMES)
def test_mean_rewards_agree_with_the_prototype(name: str) -> None:
    T, R = 20_000, 10
    played, sensed = prototype_scenario(name), prototype_scenario(name, sensing="all")
    results = {p: ib.simulate(played, p, horizon=T, replications=R) for p in ("rca-m", "mp-lucb", "mp-lucb-rca")}
    results["mp-lucb-rca, all sensed"] = ib.simulate(sensed, "mp-lucb-rca", horizon=T, replications=R)
    rewards = {label: result.reward[:, -1] / T for label, result in results.items()}
    for label, each in rewards.items():
        # Five standard errors of these replications, 0.02 for the longer horizon and two decimals of the prototype, and
        # up to 0.09 for its different treatment of partial sums of dropped blocks
        margin = 5 * each.std(ddof=1) / math.sqrt(R) + 0.02 + 0.09 * (label == "mp-lucb-rca")
        assert abs(each.mean() - PROTOTYPE[name][label]) < margin, label

    ahead = rewards["mp-lucb"] - rewards["rca-m"]  # on the same sample paths
    assert ahead.mean() > 3 * ahead.std(ddof=1) / math.sqrt(R)  # 99% by Student's t; the difference is 0.08 in S1
    lost = results["mp-lucb-rca, all sensed"].regret("genie")[:, -1] / T
    assert np.all((lost >= 0) & (lost < 0.005))  # almost no loss where all states are sensed
