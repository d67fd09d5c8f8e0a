"""Time a step of the environments and the same slot inside the compiled loop, and print the ratios.

    python benchmarks/environment.py

S1: K = 10, M = 5, d = 8. The loop is that of a fixed selection (`idleband bench`: bare loop), which does the same work
without Python and without observations. Rounds of all alternate, and the best of each counts. Times are processor times
of the process, which other programs hardly change. Without them they are also the times on the clock.
"""

from collections.abc import Callable
from time import process_time
from typing import Any

import gymnasium
import numpy as np

import idleband as ib
from idleband.policies.registry import ConfiguredPolicy
from idleband.simulation.bench import BARE
from idleband.simulation.run import PolicyRun

ROUNDS = 9
STEPS = 4000  # of one environment per round
MANY = 100  # of many copies per round
COPIES = (1, 64, 1024)
HORIZON = 10**9
GOAL_STEP, GOAL_COPIES = 15.0, 2e6  # microseconds of Environment.step; steps per second of 1,024 copies


def loop() -> Callable[[], float]:
    run = PolicyRun.start(ib.scenario("S1"), ConfiguredPolicy(BARE, {}), HORIZON, 0, 0)

    def measure() -> float:
        began = process_time()
        run.to(run.at + 100_000)
        return (process_time() - began) / 100_000

    return measure


def by_hand() -> Callable[[], float]:
    environment = ib.Environment("S1", horizon=HORIZON)
    environment.reset()
    channels = [0, 2, 4, 6, 8]

    def measure() -> float:
        began = process_time()
        for _ in range(STEPS):
            environment.step(channels)
        return (process_time() - began) / STEPS

    return measure


def in_gymnasium(environment: Any) -> Callable[[], float]:
    environment.reset(seed=0)
    action = np.array([1, 0] * 5, np.int8)

    def measure() -> float:
        began = process_time()
        for _ in range(STEPS):
            environment.step(action)
        return (process_time() - began) / STEPS

    return measure


def of_copies(count: int, horizon: int) -> Callable[[], float]:
    copies = gymnasium.make_vec(
        "idleband/Channels-v1", num_envs=count, scenario="S1", horizon=horizon, actions="scores"
    )
    copies.reset(seed=0)
    copies.action_space.seed(0)
    actions = [copies.action_space.sample() for _ in range(8)]
    steps = MANY if count > 1 else STEPS
    if horizon < HORIZON:
        steps = horizon + 1  # one episode, and the start of the next

    def measure() -> float:
        began = process_time()
        for i in range(steps):
            copies.step(actions[i % 8])
        return (process_time() - began) / (steps * count)

    return measure


def main() -> None:
    rows: dict[str, Callable[[], float]] = {
        "compiled loop, fixed selection": loop(),
        "ib.Environment.step": by_hand(),
        "Gymnasium, unwrapped": in_gymnasium(
            gymnasium.make("idleband/Channels-v1", scenario="S1", horizon=HORIZON).unwrapped
        ),
        "Gymnasium, as made": in_gymnasium(gymnasium.make("idleband/Channels-v1", scenario="S1", horizon=HORIZON)),
    }
    for count in COPIES:
        rows[f"vector of {count:,}, per copy"] = of_copies(count, HORIZON)
    rows["vector of 1,024, episodes of 1,000 slots"] = of_copies(1024, 1000)
    best = dict.fromkeys(rows, np.inf)
    for _ in range(ROUNDS):
        for name, measure in rows.items():
            best[name] = min(best[name], measure())
    base = best["compiled loop, fixed selection"]
    print(f"{'':42}{'µs per step':>12}{'steps per second':>18}{'ratio to the loop':>19}")
    for name, seconds in best.items():
        print(f"{name:42}{seconds * 1e6:12.3f}{1 / seconds:18,.0f}{seconds / base:19.1f}")
    print(f"goals: ib.Environment.step at most {GOAL_STEP:g} µs; 1,024 copies at least {GOAL_COPIES:,.0f} steps/s")


if __name__ == "__main__":
    main()
