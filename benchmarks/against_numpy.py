"""Compare the times of compiled policies and of the NumPy reference, alternating in one process.

python benchmarks/against_numpy.py
"""

from time import perf_counter

import numpy as np
from numpy_reference import POLICIES, simulate

import idleband as ib
from idleband.policies.registry import policy
from idleband.simulation.bench import microseconds

SLOTS, ROUNDS = 3000, 3
THETA = [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197]


def main() -> None:
    scenario = ib.scenario("S1", perturbation={"theta": THETA})
    p01, p10 = (np.array(scenario.to_dict()[key]) for key in ("p01", "p10"))
    for name, reference in POLICIES.items():
        theirs = float("inf")
        for i in range(ROUNDS):
            began = perf_counter()
            simulate(reference(scenario.K, scenario.users, scenario.dimension), p01, p10, np.array(THETA), SLOTS, i)
            theirs = min(theirs, (perf_counter() - began) / SLOTS * 1e6)
        ours = microseconds(scenario, {name: policy(name)}, rounds=ROUNDS)[name]
        print(f"{name}: {ours:.3f} us per slot, NumPy {theirs:.1f} us: {theirs / ours:.0f} times")


if __name__ == "__main__":
    main()
