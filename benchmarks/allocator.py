"""Time `decide` + `report` from Python and the same slot inside the compiled loop, and print the ratio.

    python benchmarks/allocator.py

Rounds of both alternate, and the best of each counts. Contexts, rewards and states are NumPy arrays; feedback is
complete. The lower limit: a call of a compiled function with a block and eight arrays takes about 0.6 µs, a slot has
five such calls (the occupancy and the policy choose; the occupancy, the policy and the fallback learn), and the
contexts are copied.
"""

from time import perf_counter

import numpy as np

import idleband as ib
from idleband.policies.registry import policy
from idleband.scenario.scenario import Scenario
from idleband.simulation.run import PolicyRun

CONFIGURATIONS = (  # policy, K, M, d, slots per round, largest ratio allowed
    ("mp-lucb", 10, 5, 8, 4000, 30.0),
    ("mp-lucb", 1000, 200, 8, 300, 3.0),
    ("mp-belief-lucb", 10, 5, 8, 4000, None),
    ("mp-belief-lucb", 1000, 200, 8, 300, None),
)
ROUNDS = 9


def make_scenario(K: int, M: int, d: int) -> Scenario:
    p01, p10 = np.random.default_rng(0).uniform(0.05, 0.5, (2, K)).tolist()
    return ib.scenario(p01=p01, p10=p10, users=M, context={"dimension": d}, feedback="reward")


def main() -> None:
    print(f"{'policy':16} {'K':>5} {'M':>4}   {'loop':>9}   {'live':>9}   ratio")
    for name, K, M, d, slots, limit in CONFIGURATIONS:
        scenario = make_scenario(K, M, d)
        run = PolicyRun.start(scenario, policy(name), 10**9, 0, 0)
        allocator = ib.Allocator(name, channels=K, users=M, dimension=d)
        random = np.random.default_rng(1)
        x = random.random((50, K, d))
        states = random.integers(0, 2, (50, M))
        rewards = np.where(states > 0, 1.0, 0.1)
        loop, live = np.inf, np.inf
        for _ in range(ROUNDS):
            began = perf_counter()
            run.to(run.at + slots)
            loop = min(loop, (perf_counter() - began) / slots)
            began = perf_counter()
            for i in range(slots):
                decision = allocator.decide(x[i % 50])
                allocator.report(decision.request_id, rewards=rewards[i % 50], states=states[i % 50])
            live = min(live, (perf_counter() - began) / slots)
        allowed = "" if limit is None else f" (at most {limit:g})"
        print(
            f"{name:16} {K:5} {M:4}   {loop * 1e6:6.2f} µs   {live * 1e6:6.1f} µs   {live / loop:.1f}{allowed}",
            flush=True,
        )


if __name__ == "__main__":
    main()
