"""What a policy may know of a scenario: its setup and, for oracles, the true parameters."""

from typing import Any

import numpy as np

from idleband.arrays import Floats
from idleband.policies.protocol import HORIZON_KNOWN, USERS_KNOWN, Setup, Truth
from idleband.scenario.scenario import Scenario, once
from idleband.scenario.uncoordinated import OBSERVES, SENSING
from idleband.scenario.upper_bound import NOISE_STEPS, levels, padded, padded_transition


def setup_of(scenario: Scenario, params: Any) -> Setup:
    """Return the setup of a policy with these parameters on a scenario. Its arrays must not be changed."""
    return _setup_without_parameters(scenario)._replace(params=params)


@once
def _setup_without_parameters(scenario: Scenario) -> Setup:
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
        users=scenario.users,
        horizon=0,
        control_bits=0,
        observes=SENSING,
        params=(),
    )


def setup_of_user(scenario: Scenario, params: Any, knows: frozenset[str], horizon: int) -> Setup:
    """Return the setup of the policy of a single user. Its arrays must not be changed."""
    given = scenario.uncoordinated
    assert given is not None
    setup = setup_of(scenario, params)
    observes = OBSERVES.index(given.observes)
    low = min(0.0, setup.low)  # of a collision
    return setup._replace(
        M=1,
        low=low,
        span=max(1.0, setup.high - low),
        measured=setup.measured and observes == SENSING,
        users=scenario.users if USERS_KNOWN in knows else 0,
        horizon=horizon if HORIZON_KNOWN in knows else 0,
        control_bits=given.control_bits,
        observes=observes,
    )


def truth_of(scenario: Scenario, theta: Floats, means: Floats) -> Truth:
    """Return the true parameters of a scenario in one replication. Its arrays must not be changed."""
    ends, probability, pay = levels(scenario, theta, NOISE_STEPS // 2)  # an oracle knows where f lies in its level
    transition, stationary = _chains(scenario)
    return Truth(
        P=transition,
        stationary=stationary,
        mean=means,
        pay=pay,
        level_probability=probability,
        level_end=ends,
        noise=scenario.perturbation.noise,
    )


@once
def _chains(scenario: Scenario) -> tuple[Floats, Floats]:
    """Return transition matrices and stationary distributions as arrays."""
    return padded_transition(scenario), padded(scenario.stationary_distributions, 0.0)
