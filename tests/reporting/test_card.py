"""Description of a scenario, checked against closed forms and plain enumeration."""

import json
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.reporting.card import card, card_text
from idleband.scenario.presets import PRESETS

MATRIX = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]
THREE = {
    "name": "three",
    "transition": [MATRIX, MATRIX[::-1]],
    "good": [[2], [1, 2]],
    "users": 1,
    "context": {"dimension": 2},
    "perturbation": {"theta": [[1.0, 1.0], [-0.5, -0.5]]},
}


def long_run_share(matrix: list[list[float]]) -> np.ndarray:
    """Return the stationary distribution as a row of a high power of the matrix."""
    return np.linalg.matrix_power(np.array(matrix), 10_000)[0]


def test_card_of_s4_has_the_exact_properties() -> None:
    preset, data = PRESETS["S4"], card(ib.scenario("S4"))
    p01, p10 = np.array(preset.p01), np.array(preset.p10)
    share = p01 / (p01 + p10)
    assert (data["name"], data["channels"], data["users"]) == ("S4", 10, 5)
    assert (data["p01"], data["p10"]) == (list(preset.p01), list(preset.p10))
    assert data["good_share"] == pytest.approx(share)
    assert np.array(data["stationary"]) == pytest.approx(np.stack([1 - share, share], axis=1))
    assert data["autocorrelation"] == pytest.approx(1 - p01 - p10)
    assert data["mean_without_perturbation"] == pytest.approx(0.1 + 0.9 * share)
    assert data["mean_without_perturbation"] == pytest.approx(preset.printed_means, abs=0.006)
    assert data["clear"] == pytest.approx([0.7] * 10, abs=1e-9)  # by default theta is scaled to it
    assert data["mean_with_perturbation"] == pytest.approx(0.1 + 0.9 * 0.7 * share, abs=1e-9)
    assert data["mean_standard_error"] == 0
    assert data["best_without_perturbation"] == data["best_with_perturbation"] == [1, 3, 4, 6, 7]
    assert data["theta_drawn"]
    assert len(data["theta"]) == 8


def test_theta_is_that_of_replication_0_of_the_seed() -> None:
    scenario = ib.scenario("S4")
    assert card(scenario, seed=5)["theta"] == scenario.theta(5, 0)[0].tolist()
    assert card(scenario, seed=5)["theta"] != card(scenario, seed=6)["theta"]


def test_card_of_three_states_has_the_exact_properties() -> None:
    data = card(ib.scenario(THREE))
    stationary = [long_run_share(matrix) for matrix in THREE["transition"]]
    h = np.array([0.0, 0.4, 1.0])
    assert np.array(data["stationary"]) == pytest.approx(np.array(stationary))
    assert data["good_share"] == pytest.approx([stationary[0][2], stationary[1][1] + stationary[1][2]])
    assert data["mean_without_perturbation"] == pytest.approx(0.1 + 0.9 * np.array(data["good_share"]))
    additive = card(ib.scenario(THREE, reward="additive", rewards=h))
    assert additive["mean_without_perturbation"] == pytest.approx([distribution @ h for distribution in stationary])
    for distribution, matrix, found in zip(stationary, THREE["transition"], additive["autocorrelation"], strict=True):
        pairs = distribution[:, None] * np.array(matrix)  # P(state now, state next)
        mean, square = distribution @ h, distribution @ h**2
        assert found == pytest.approx((h @ pairs @ h - mean**2) / (square - mean**2))
    # n = x1 + x2 < 1 half of the time; n = -(x1 + x2) / 2 is always below 0, so every reward is 1.
    assert data["clear"] == pytest.approx([0.5, 1.0])
    assert data["mean_with_perturbation"] == pytest.approx([0.1 + 0.9 * 0.5 * stationary[0][2], 1.0])
    assert data["best_with_perturbation"] == [1]
    assert not data["theta_drawn"]
    assert data["theta"] == THREE["perturbation"]["theta"]


@pytest.mark.parametrize("scenario", [ib.scenario("S4"), ib.scenario(THREE)], ids=["S4", "three"])
def test_card_contains_the_scenario_as_plain_data(scenario: ib.Scenario) -> None:
    data = json.loads(json.dumps(card(scenario), allow_nan=False))
    assert {key: data[key] for key in scenario.to_dict()} == json.loads(json.dumps(scenario.to_dict()))


def test_text_of_s4_lists_channels_and_best_sets() -> None:
    lines = card_text(card(ib.scenario("S4"))).split("\n")
    assert lines[0] == "S4: 10 channels, 5 assigned per slot"
    assert "clear = 0.7" in lines[3]
    assert lines[4].startswith("theta         [0.")
    head = next(i for i, line in enumerate(lines) if line.startswith("channel"))
    rows = [line.split() for line in lines[head + 1 : head + 11]]
    assert [row[:2] for row in rows] == [[str(k), f"ch{k + 1}"] for k in range(10)]
    assert rows[3] == ["3", "ch4", "0.5", "0.4", "0.5556", "+0.100", "0.6000*", "0.4500*", "0.7000"]
    assert [row[0] for row in rows if row[6].endswith("*")] == ["1", "3", "4", "6", "7"]
    assert "* best 5 without perturbation: ch2, ch4, ch5, ch7, ch8" in lines
    assert "* best 5 with perturbation: ch2, ch4, ch5, ch7, ch8" in lines
    assert lines[-1] == "channels only: 4.046 without perturbation, 3.519 with it"


@pytest.mark.parametrize("data", [card(ib.scenario(name)) for name in PRESETS], ids=list(PRESETS))
def test_text_fits_80_columns(data: dict[str, Any]) -> None:
    assert max(map(len, card_text(data).split("\n"))) <= 80


def test_no_upper_bound_where_all_channels_are_sensed() -> None:
    data = card(ib.scenario("S4", sensing="all"))
    assert data["bound_with_perturbation"] is data["bound_without_perturbation"] is None
    assert "upper bound" not in card_text(data)


def test_text_omits_what_a_scenario_does_not_have() -> None:
    three = card_text(card(ib.scenario(THREE)))
    assert "states" in three
    assert "p01" not in three
    assert "\ntheta " not in three  # one per channel: too long for a line
    none = card_text(card(ib.scenario("S4", perturbation="none")))
    assert "perturbation  none: n = 0\n" in none
    assert "theta" not in none


def test_text_explains_its_columns() -> None:
    words = " ".join(card_text(card(ib.scenario("S4"))).split())
    for column in ("autocorr.:", "mean, perturbed:", "P(n<1):"):
        assert column in words


def test_autocorrelation_of_independent_slots_has_no_sign() -> None:
    """1 - 0.4 - 0.6 is slightly below 0 in floating point."""
    data = card(ib.scenario(p01=[0.4], p10=[0.6], users=1))
    assert data["autocorrelation"][0] < 0
    assert " +0.000 " in card_text(data)


def test_text_contains_the_formula_of_the_perturbation_model() -> None:
    words = " ".join(card_text(card(ib.scenario("S4", perturbation="quadratic"))).split())
    assert "perturbation quadratic: n = 0.5 + c z^2, z = a . (x - 1/2), theta = (c, a); clear = 0.7 theta [" in words
    assert len(words.partition(" theta [")[2].partition("]")[0].split(", ")) == 9


def test_values_estimated_from_a_sample_are_marked() -> None:
    many = ib.scenario("S4", context={"dimension": 20}, perturbation="cosine")
    text = card_text(card(many))
    assert (
        "\nperturbed: estimated from a sample, standard error 0.0004"
        "\nP(n<1): estimated from a sample, standard error 0.0005" in text
    )
    additive = card_text(card(ib.scenario(many, reward="additive")))  # whose means are exact
    assert additive.endswith("\nP(n<1): estimated from a sample, standard error 0.0005")
    assert "perturbed: estimated" not in additive
    assert "from a sample" not in card_text(card(ib.scenario("S4")))
