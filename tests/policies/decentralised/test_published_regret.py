"""The regret of decentralised policies on independent channels beside published figures.

Besson and Kaufmann, ALT 2018: K = 9 channels with means 0.1 to 0.9, T = 10,000 slots, means and standard deviations of
1000 runs. studies/users_iid.py makes more runs and has more figures.
"""

import math

import numpy as np
import pytest

import idleband as ib
from tests.policies.decentralised.band import MEANS, independent

RUNS, SLOTS = 12, 10_000


@pytest.mark.parametrize(
    ("policy", "M", "mean", "deviation"),
    [
        ("selfish-klucb", 3, 243, 31),
        ("selfish-klucb", 6, 743, 113),
        ("rho-rand", 3, 394, 96),
        ("rho-rand", 6, 2385, 412),
        ("randtopm", 3, 258, 43),
        ("randtopm", 6, 902, 234),
        ("mctopm:collision_first=true", 3, 248, 40),
        ("mctopm:collision_first=true", 6, 410, 54),
    ],
)
def test_regret_is_the_published_one(policy: str, M: int, mean: float, deviation: float) -> None:
    result = ib.simulate(independent(MEANS, M), policy, horizon=SLOTS, replications=RUNS, seed=11)
    error = deviation * math.sqrt(1 / RUNS + 1 / 1000)
    assert abs(np.mean(result.regret("table")[:, -1]) - mean) < 4 * error


def test_the_printed_mctopm_collides_less() -> None:
    """Its regret is below the published one, which is that of the authors' code."""
    printed, code = (
        ib.simulate(independent(MEANS, 6), policy, horizon=SLOTS, replications=RUNS, seed=11).regret("table")[:, -1]
        for policy in ("mctopm", "mctopm:collision_first=true")
    )
    error = math.sqrt((printed.var(ddof=1) + code.var(ddof=1)) / RUNS)
    assert printed.mean() < code.mean() - 2 * error
