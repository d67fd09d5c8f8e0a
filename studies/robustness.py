"""Measure the loss of policies in environments that violate their assumptions, and the effect of forgetting.

    python studies/robustness.py            # about ten minutes on two cores
    python studies/robustness.py --quick    # a short run that checks that the study works; writes nothing

Four disturbances of S1 and S4, T = 10^5 slots, 20 replications, with seeds that were not used while the policies were
developed:
    reversed    at T/2 channel k gets the chain of channel K - 1 - k, so that the best channels become the worst
    regular     dwell times with the mean m of the chain, uniform on 1 to 2m - 1 instead of geometric
    bursty      the same means, nine of ten dwells a third as long on average (at least one slot)
    drifting    theta of the linear model moves in a straight line from one draw to another during the run
The first three are without perturbation. The share of a policy is its reward divided by that of an oracle on the same
sample path: oracle-whittle, which knows of the reversal when it happens and otherwise assumes Markov chains; with drift
oracle-belief, which observes every perturbation. The loss is the share without disturbance minus the share with it.
After the reversal only the second half counts.

Writes robustness.md beside this file and a figure into docs/figures.
"""

import itertools
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import idleband as ib
from idleband.arrays import Floats
from idleband.kernels import compile
from idleband.kernels.compile import jit
from idleband.kernels.rng import fill_uniform
from idleband.policies.knowledge import truth_of
from idleband.policies.protocol import PARAMETERS
from idleband.policies.registry import ConfiguredPolicy
from idleband.reporting.plots import COLOURS
from idleband.scenario.perturbation import perturb
from idleband.scenario.scenario import Scenario
from idleband.simulation import loop
from idleband.simulation.loop import SamplePath
from idleband.simulation.path import path_parameters
from idleband.simulation.run import PolicyRun
from idleband.simulation.scheduler import cores
from idleband.simulation.statistics import interval

HERE = Path(__file__).parent
HORIZON, REPLICATIONS, SEED = 100_000, 20, 11
STEP = 1000  # slots between two moves of theta, and between two points of the figure
SCENARIOS = ("S1", "S4")
POLICIES = [
    ib.policy(name, **parameters)
    for name, parameters in (
        ("mp-belief", {}),
        ("mp-belief", {"forget": 5000.0}),
        ("mp-belief-lucb", {}),
        ("mp-belief-lucb", {"forget": 5000.0}),
        ("mp-ts-episodes", {}),
        ("mp-whittle", {}),
        ("mp-lucb", {}),
        ("mp-ucb", {}),
        ("mp-klucb", {}),
        ("mp-ts", {}),
        ("mp-swucb", {}),
        ("mp-ducb", {}),
        ("rca-m", {}),
    )
]  # fmt: skip
DISTURBANCES = ("undisturbed", "reversed", "regular", "bursty", "undisturbed, linear model", "drifting")


# --- dwell times that are not geometric ------------------------------------------------------------------------------


@jit
def dwell(u: float, mean: float, bursty: bool) -> float:
    """Return a dwell time in slots with the given mean, from a uniform draw."""
    if not bursty:  # uniform on 1 to 2m - 1; on one of the two neighbouring ranges if that is not whole
        longest = math.floor(2.0 * mean - 1.0)
        more = 2.0 * mean - 1.0 - longest
        if u < more:
            return 1.0 + math.floor(u / more * (longest + 1.0))
        return 1.0 + math.floor((u - more) / (1.0 - more) * longest)
    short = max(1.0, mean / 3.0)
    brief = u < 0.9
    u = u / 0.9 if brief else (u - 0.9) / 0.1
    mean = short if brief else 10.0 * mean - 9.0 * short
    return 1.0 + math.floor(math.log(1.0 - u) / math.log(1.0 - 1.0 / mean)) if mean > 1.0 else 1.0


BURSTY = False  # placeholder: `compile.bind` binds the value


@jit
def advance(path: SamplePath) -> None:
    """Advance by one slot as in the simulation loop, but leave a state when its dwell time is over."""
    fill_uniform(path.state_rng, path.u)
    left = path.rewards  # an array that only the references use
    for k in range(path.s.size):
        left[k] -= 1.0
        if left[k] <= 0.0:
            path.s[k] = 1 - path.s[k]
            stay = path.limits[k, 0, 0] if path.s[k] == 0 else 1.0 - path.limits[k, 1, 0]
            left[k] = dwell(path.u[k], 1.0 / (1.0 - stay), BURSTY)
    fill_uniform(path.context_rng, path.contexts)
    perturb(path.model, path.theta, path.x, path.n, path.fault)


@cache
def disturbed_loop(configured: ConfiguredPolicy, kind: str) -> Any:
    """Return the loop of a policy under a disturbance."""
    bindings = {"select": configured.policy.select, "update": configured.policy.update}
    if kind in ("regular", "bursty"):
        bindings["advance"] = compile.bind(advance, {"BURSTY": kind == "bursty"})
    return compile.specialise(
        loop.run, f"run_{configured.policy.select.__module__.rpartition('.')[2]}_{kind}", bindings
    )


# --- runs -------------------------------------------------------------------------------------------------------------


def rewards(name: str, configured: ConfiguredPolicy, kind: str, replication: int) -> Floats:
    """Return the reward of a policy in every STEP slots."""
    linear = "linear" in kind or kind == "drifting"
    scenario = ib.scenario(name, perturbation="linear" if linear else "none")
    run = PolicyRun.start(scenario, configured, HORIZON, SEED, replication)
    run.path = run.path._replace(theta=run.path.theta.copy())  # the original is shared by all runs
    kernel = disturbed_loop(configured, kind if kind in ("regular", "bursty") else "plain")
    first, last = run.path.theta.copy(), path_parameters(scenario, SEED + 1, replication)[0]
    totals = [0.0]
    for t in range(0, HORIZON, STEP):
        if kind == "drifting":
            run.path.theta[:] = first + (last - first) * t / HORIZON
        if kind == "reversed" and t == HORIZON // 2:
            reverse(run, scenario)
        kernel(run.setup, run.path, run.state, run.rng, run.tally, t, t + STEP)
        totals.append(float(run.tally.now[0]))
    return np.diff(totals)


def reverse(run: PolicyRun, scenario: Scenario) -> None:
    """Reverse the order of the chains; an oracle gets the new parameters."""
    run.path.limits[:] = run.path.limits[::-1].copy()
    if PARAMETERS in run.configured.policy.knows:
        reversed_ = ib.scenario(scenario, p01=[P[0, 1] for P in scenario.transition[::-1]],
                           p10=[P[1, 0] for P in scenario.transition[::-1]])  # fmt: skip
        truth = truth_of(reversed_, *path_parameters(reversed_, SEED, 0))
        fresh = run.configured.policy.init(run.setup, truth)
        run.state = fresh._replace(last_observation=run.state.last_observation)


def table(paths: Callable[[str, ConfiguredPolicy, str], Floats]) -> list[str]:
    """Return a table of shares of the oracle reward without disturbance, and of the losses in percentage points."""
    lines = [
        "| policy | scenario | share | reversed | regular | bursty | share, linear model | drifting |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for configured, name in itertools.product(POLICIES, SCENARIOS):
        cells = [configured.label, name]
        for kind in DISTURBANCES:
            half = HORIZON // STEP // 2 if kind == "reversed" else 0
            base = "undisturbed, linear model" if kind == "drifting" else "undisturbed"
            share = ratio(paths(name, configured, kind)[:, half:], paths(name, oracle(kind), kind)[:, half:])
            if kind.startswith("undisturbed"):
                found = interval(100 * share)
                cells.append(f"{found.mean:.2f}%")
            else:
                before = ratio(paths(name, configured, base)[:, half:], paths(name, oracle(base), base)[:, half:])
                found = interval(100 * (before - share))
                cells.append(f"{found.mean:.2f} +-{found.high - found.mean:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def ratio(reward: Floats, best: Floats) -> Floats:
    """Return the reward as a share of that of the oracle, per replication."""
    return np.asarray(reward.sum(axis=1) / best.sum(axis=1))


def oracle(kind: str) -> ConfiguredPolicy:
    """Return the oracle with which policies are compared under a disturbance."""
    return ib.policy("oracle-belief" if "linear" in kind or kind == "drifting" else "oracle-whittle")


def figure(paths: Callable[[str, ConfiguredPolicy, str], Floats]) -> Any:
    """Return the figure of shares over time."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(10.4, 6.4), dpi=150, layout="constrained")
    shown = {
        "reversed": [("mp-belief", {}), ("mp-belief", {"forget": 5000.0}), ("mp-ts-episodes", {}), ("mp-ducb", {})],
        "drifting": [("mp-belief-lucb", {}), ("mp-belief-lucb", {"forget": 5000.0}), ("mp-lucb", {})],
    }
    for i, (kind, name) in enumerate(itertools.product(shown, SCENARIOS)):
        axes = made.add_subplot(2, 2, i + 1)
        best = paths(name, oracle(kind), kind)
        t = np.arange(1, HORIZON // STEP + 1) * STEP
        for j, (policy, parameters) in enumerate(shown[kind]):
            configured = ib.policy(policy, **parameters)
            share = 100 * paths(name, configured, kind).mean(axis=0) / best.mean(axis=0)
            smooth = np.convolve(share, np.ones(3) / 3, "same")
            axes.plot(t[1:-1], smooth[1:-1], color=COLOURS[j], linewidth=1.6, label=configured.label)
        axes.axhline(100, color="0.6", linewidth=0.8, zorder=0)
        axes.set_title(f"{name}, {kind}", fontsize=10)
        axes.set(xlabel="slot", ylabel="% of the oracle's reward")
        axes.grid(True, color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="center left")
    return made


@cache
def rewards_once(configured: ConfiguredPolicy, kind: str) -> None:
    """Compile the loop."""
    run = PolicyRun.start(ib.scenario("S1"), configured, HORIZON, SEED, 0)
    kernel = disturbed_loop(configured, kind if kind in ("regular", "bursty") else "plain")
    kernel(run.setup, run.path, run.state, run.rng, run.tally, 0, 0)


def main() -> None:
    global HORIZON, REPLICATIONS, POLICIES
    quick = sys.argv[1:] == ["--quick"]
    if quick:
        HORIZON, REPLICATIONS, POLICIES = 4 * STEP, 2, POLICIES[:1]
    found: dict[tuple[str, str, str], Floats] = {}
    work = [
        (name, configured, kind)
        for kind in DISTURBANCES
        for name in SCENARIOS
        for configured in (*POLICIES, oracle(kind))
    ]  # fmt: skip
    for _, configured, kind in work:  # compiled on this thread
        rewards_once(configured, kind)
    with ThreadPoolExecutor(cores()) as pool:
        for name, configured, kind in work:
            runs = pool.map(lambda i, one=(name, configured, kind): rewards(*one, i), range(REPLICATIONS))
            found[name, configured.label, kind] = np.array(list(runs))
            print(f"{kind}: {configured.label} on {name}", flush=True)

    def paths(name: str, configured: ConfiguredPolicy, kind: str) -> Floats:
        return found[name, configured.label, kind]

    text = "\n".join(table(paths)) + "\n"
    print(text)
    if quick:
        return
    (HERE / "robustness.md").write_text(text)
    figure(paths).savefig(HERE.parent / "docs/figures/robustness.png")


if __name__ == "__main__":
    main()
