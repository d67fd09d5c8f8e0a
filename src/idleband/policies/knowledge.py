"""What a policy may know of a scenario: its setup and, for oracles, the true parameters."""

from typing import Any

import numpy as np

from idleband.arrays import Floats
from idleband.policies.protocol import Setup, Truth
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import NOISE_STEPS, levels, padded, padded_transition


def setup_of(scenario: Scenario, params: Any) -> Setup:
    """Return the setup of a policy with these parameters on a scenario."""
    low, high = scenario.reward_range()
    errors = scenario.sensing_errors
    return Setup(
        K=scenario.K,
        M=scenario.users,
        d=scenario.dimension,
        low=low,
        high=high,
        span=max(1.0, high - low),
        h_span=max(1.0, float(np.ptp(np.concatenate(scenario.rewards)))),
        h=padded(scenario.rewards, 0.0),
        states=np.array([len(P) for P in scenario.transition]),
        good=padded(scenario.good, False),
        threshold=scenario.reward == "threshold",
        measured=scenario.feedback == "perturbation",
        missed=np.zeros(scenario.K) if errors is None else np.array(errors.missed),
        false_alarm=np.zeros(scenario.K) if errors is None else np.array(errors.false_alarm),
        switching_cost=scenario.switching_cost,
        params=params,
    )


def truth_of(scenario: Scenario, theta: Floats, means: Floats) -> Truth:
    """Return the true parameters of a scenario in one replication."""
    ends, probability, pay = levels(scenario, theta, NOISE_STEPS // 2)  # an oracle knows where f lies in its level
    return Truth(
        P=padded_transition(scenario),
        stationary=padded(scenario.stationary_distributions, 0.0),
        mean=means,
        pay=pay,
        level_probability=probability,
        level_end=ends,
        noise=scenario.perturbation.noise,
    )
