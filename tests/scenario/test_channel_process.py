"""The states of all channels: plain Markov chains slot by slot, and settings together."""

from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.rng import STATES, stream, uniform
from tests.scenario.paths import check_channels, check_round_trip, walk


def test_markov_chains_follow_the_draws_of_their_stream() -> None:
    """A draw moves a channel to the number of cumulative probabilities that it has reached."""
    P = [[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [[0.9, 0.1], [0.4, 0.6]]]
    scenario = ib.scenario(transition=P, good=[[2], [1]], users=1, perturbation="none")
    states = walk(scenario, slots=200, seed=5, replication=2).states
    rng = stream(5, 2, STATES)
    limits = [np.cumsum(distribution)[:-1] for distribution in scenario.stationary_distributions]
    s = [int((uniform(rng) >= limits[k]).sum()) for k in range(2)]
    for t in range(200):
        s = [int((uniform(rng) >= np.cumsum(P[k][s[k]])[:-1]).sum()) for k in range(2)]
        assert states[t].tolist() == s


def test_no_setting_changes_the_path_of_other_streams() -> None:
    plain = walk(ib.scenario("S1"), slots=300)
    other = walk(
        ib.scenario("S1", sensing_errors={"missed": 0.3}, sensing_time=0.1, switching_cost=0.2), slots=300
    )  # fmt: skip
    for name in ("states", "contexts", "perturbation", "theta"):
        assert np.array_equal(getattr(plain, name), getattr(other, name))
    assert not np.array_equal(plain.states, other.observed)


WEIBULL = {"kind": "weibull", "shape": 0.7}
TOGETHER: dict[str, dict[str, Any]] = {
    "dwell and correlation": {"dwell": {"good": WEIBULL, "bad": WEIBULL}, "correlation": {"common": 0.4}},
    "dwell, shocks and errors": {
        "dwell": {"good": WEIBULL, "bad": WEIBULL},
        "shocks": {"start": 0.02, "end": 0.2, "share": 0.5},
        "sensing_errors": {"missed": 0.1, "false_alarm": 0.2},
    },
    "regimes, shocks and correlation": {
        "regimes": {"p01": [[0.1] * 10, [0.4] * 10], "p10": [[0.3] * 10] * 2, "transition": [[0.9, 0.1], [0.2, 0.8]]},
        "shocks": {"start": 0.02, "end": 0.2, "channels": [0, 5]},
        "correlation": {"neighbours": 0.7},
    },
    "regimes and contexts": {
        "regimes": {"p01": [[0.1] * 10, [0.4] * 10], "p10": [[0.3] * 10] * 2, "transition": [[0.9, 0.1], [0.2, 0.8]]},
        "context": {"kind": "ar1", "correlation": 0.5},
        "perturbation": {"kind": "cosine", "drift": 500},
    },
}


@pytest.mark.parametrize("settings", TOGETHER.values(), ids=list(TOGETHER))
def test_long_run_shares_are_exact_where_settings_are_combined(settings: dict[str, Any]) -> None:
    """Long-run shares are exact also where several settings shape the states."""
    scenario = ib.scenario("S4", **{"perturbation": "none", "context": {"dimension": 1}, **settings})
    check_round_trip(scenario)
    check_channels(scenario, walk(scenario, slots=2**17).states, largest_error=0.012)
