"""Compare simulations on a GPU with those on the CPU, policy by policy.

    python benchmarks/gpu.py                         every policy of the package, on S1
    python benchmarks/gpu.py --policy mp-ucb --replications 100 --slots 2000 --precision float32

Both run the same replications. Printed are the number of replications in which the plays of all channels are equal,
the largest difference between their cumulative rewards, and the mean difference of the reward per slot over all
replications with its standard error: where paths split, it must agree with 0. Kernels are compiled in several
processes.
"""

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

import numpy as np

import idleband as ib
from idleband.experiments.spec import every_policy
from idleband.simulation.devices import Precision


class Comparison(NamedTuple):
    policy: str
    equal: int  # replications with equal plays
    largest: float  # difference of cumulative rewards there
    difference: float  # reward per slot on the GPU minus that on the CPU
    error: float  # its standard error
    seconds: float  # on the GPU, compilation included
    reason: str = ""  # why it did not run


def compare(policy: str, scenario: str, slots: int, replications: int, precision: Precision) -> Comparison:
    """Run a policy on both."""
    began = time.perf_counter()
    try:
        there = ib.simulate(
            scenario, policy, horizon=slots, replications=replications, device="cuda", precision=precision
        )
    except ib.IdlebandError as error:
        return Comparison(policy, 0, np.nan, np.nan, np.nan, 0.0, str(error))
    seconds = time.perf_counter() - began
    here = ib.simulate(scenario, policy, horizon=slots, replications=replications, threads=1)
    equal = (there.plays == here.plays).all(axis=1)
    rewards = there.reward[:, -1] - here.reward[:, -1]
    return Comparison(
        policy,
        int(equal.sum()),
        float(np.abs(rewards[equal]).max(initial=0.0)),
        float(rewards.mean()) / slots,
        float(rewards.std(ddof=1)) / slots / replications**0.5,
        seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare simulations on a GPU with those on the CPU.")
    parser.add_argument("--policy", action="append", help="default: every policy of the package")
    parser.add_argument("--scenario", default="S1")
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--precision", choices=("float64", "float32"), default="float64")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    policies = options.policy or [configured.label for configured in every_policy()]
    print("| policy | equal | largest difference there | reward per slot, GPU minus CPU | seconds |")
    print("|---|---|---|---|---|", flush=True)
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        settings = options.scenario, options.slots, options.replications, options.precision
        for done in as_completed([pool.submit(compare, policy, *settings) for policy in policies]):
            found = done.result()
            if found.reason:
                print(f"| {found.policy} | did not run: {found.reason} | | | |", flush=True)
                continue
            print(
                f"| {found.policy} | {found.equal} of {options.replications} | {found.largest:.2g} |"
                f" {found.difference:+.2g} ± {found.error:.2g} | {found.seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
