"""What is lost where the world is not what the policies take it for, and whether forgetting helps.

    python studies/robustness.py

Four disturbances of S1 and S4, T = 10^5 slots, 20 replications, on seeds that were not looked at while the policies
were written:
    reversed    at T/2 channel k gets the chain of channel K + 1 - k, so that the best become the worst
    regular     dwell times with the means m of the chains, but uniform on 1 .. 2m - 1 instead of geometric
    bursty      the same means, nine in ten dwells a third as long on average (but no slot is shorter than one)
    drifting    theta of the linear model moves in a straight line from one draw to another in the course of the run
(the first three without perturbation). A policy's share is its reward over that of an oracle on the same path:
oracle-whittle, told of the reversal when it comes and otherwise of the chains as if they were Markov; under the drift
oracle-belief, which sees every perturbation. What is lost is the share in the undisturbed world minus that. Of the
reversal only the second half counts.

Writes robustness.md beside this file and a figure into docs/figures; some ten minutes on two cores.
"""

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import idleband as ib
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

Floats = npt.NDArray[np.float64]

HERE = Path(__file__).parent
HORIZON, REPLICATIONS, SEED = 100_000, 20, 11
STEP = 1000  # slots between two moves of theta, and between two points of the figure
SCENARIOS = ("S1", "S4")
CASES = [
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
WORLDS = ("undisturbed", "reversed", "regular", "bursty", "undisturbed, linear model", "drifting")


# --- dwell times that are not geometric ------------------------------------------------------------------------------


@jit
def dwell(u: float, mean: float, bursty: bool) -> float:
    """How many slots a channel stays, of which the mean is as given, from a uniform draw."""
    if not bursty:  # uniform on 1 .. 2m - 1, or, if that is no whole number, on one of the ranges beside it
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


BURSTY = False  # bound to what it is to be


@jit
def advance(world: SamplePath) -> None:
    """One slot passes, as in the loop, but channels leave a state when their time is over."""
    fill_uniform(world.state_rng, world.u)
    left = world.rewards  # which only the references use
    for k in range(world.s.size):
        left[k] -= 1.0
        if left[k] <= 0.0:
            world.s[k] = 1 - world.s[k]
            stay = world.limits[k, 0, 0] if world.s[k] == 0 else 1.0 - world.limits[k, 1, 0]
            left[k] = dwell(world.u[k], 1.0 / (1.0 - stay), BURSTY)
    fill_uniform(world.context_rng, world.contexts)
    perturb(world.model, world.theta, world.x, world.n, world.fault)


@cache
def engine(case: ConfiguredPolicy, kind: str) -> Any:
    """The loop of a policy in a world of another kind."""
    own = {"select": case.policy.select, "update": case.policy.update}
    if kind in ("regular", "bursty"):
        own["advance"] = compile.bind(advance, {"BURSTY": kind == "bursty"})
    return compile.specialise(loop.run, f"run_{case.policy.select.__module__.rpartition('.')[2]}_{kind}", own)


# --- runs -------------------------------------------------------------------------------------------------------------


def rewards(name: str, case: ConfiguredPolicy, kind: str, replication: int) -> Floats:
    """The reward of every STEP slots of a policy in a world."""
    linear = "linear" in kind or kind == "drifting"
    scenario = ib.scenario(name, perturbation="linear" if linear else "none")
    run = PolicyRun.start(scenario, case, HORIZON, SEED, replication)
    run.path = run.path._replace(theta=run.path.theta.copy())  # the engine's own is every run's
    kernel = engine(case, kind if kind in ("regular", "bursty") else "plain")
    first, last = run.path.theta.copy(), path_parameters(scenario, SEED + 1, replication)[0]
    earned = [0.0]
    for t in range(0, HORIZON, STEP):
        if kind == "drifting":
            run.path.theta[:] = first + (last - first) * t / HORIZON
        if kind == "reversed" and t == HORIZON // 2:
            reverse(run, scenario)
        kernel(run.setup, run.path, run.state, run.rng, run.tally, t, t + STEP)
        earned.append(float(run.tally.now[0]))
    return np.diff(earned)


def reverse(run: PolicyRun, scenario: Scenario) -> None:
    """Channels swap their chains, and an oracle is told."""
    run.path.limits[:] = run.path.limits[::-1].copy()
    if PARAMETERS in run.case.policy.knows:
        told = ib.scenario(scenario, p01=[P[0, 1] for P in scenario.transition[::-1]],
                           p10=[P[1, 0] for P in scenario.transition[::-1]])  # fmt: skip
        truth = truth_of(told, *path_parameters(told, SEED, 0))
        fresh = run.configured.policy.init(run.setup, truth)
        run.state = fresh._replace(last_observation=run.state.last_observation)


def table(paths: Callable[[str, ConfiguredPolicy, str], Floats]) -> list[str]:
    """Shares of the oracle in the undisturbed worlds, and what is lost of them in the others, in points."""
    lines = [
        "| policy | scenario | share | reversed | regular | bursty | share, linear model | drifting |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, name in itertools.product(CASES, SCENARIOS):
        cells = [case.label, name]
        for kind in WORLDS:
            half = HORIZON // STEP // 2 if kind == "reversed" else 0
            base = "undisturbed, linear model" if kind == "drifting" else "undisturbed"
            share = ratio(paths(name, case, kind)[:, half:], paths(name, oracle(kind), kind)[:, half:])
            if kind.startswith("undisturbed"):
                found = interval(100 * share)
                cells.append(f"{found.mean:.2f}%")
            else:
                before = ratio(paths(name, case, base)[:, half:], paths(name, oracle(base), base)[:, half:])
                found = interval(100 * (before - share))
                cells.append(f"{found.mean:.2f} +-{found.high - found.mean:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def ratio(own: Floats, best: Floats) -> Floats:
    """(R,) the reward as a share of the oracle's."""
    return np.asarray(own.sum(axis=1) / best.sum(axis=1))


def oracle(kind: str) -> ConfiguredPolicy:
    return ib.policy("oracle-belief" if "linear" in kind or kind == "drifting" else "oracle-whittle")


def figure(paths: Callable[[str, ConfiguredPolicy, str], Floats]) -> Any:
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
            case = ib.policy(policy, **parameters)
            share = 100 * paths(name, case, kind).mean(axis=0) / best.mean(axis=0)
            smooth = np.convolve(share, np.ones(3) / 3, "same")
            axes.plot(t[1:-1], smooth[1:-1], color=COLOURS[j], linewidth=1.6, label=case.label)
        axes.axhline(100, color="0.6", linewidth=0.8, zorder=0)
        axes.set_title(f"{name}, {kind}", fontsize=10)
        axes.set(xlabel="slot", ylabel="% of the oracle's reward")
        axes.grid(True, color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="center left")
    return made


@cache
def rewards_once(case: ConfiguredPolicy, kind: str) -> None:
    """Compile the loop."""
    run = PolicyRun.start(ib.scenario("S1"), case, HORIZON, SEED, 0)
    kernel = engine(case, kind if kind in ("regular", "bursty") else "plain")
    kernel(run.setup, run.path, run.state, run.rng, run.tally, 0, 0)


def main() -> None:
    found: dict[tuple[str, str, str], Floats] = {}
    work = [
        (name, case, kind)
        for kind in WORLDS
        for name in SCENARIOS
        for case in (*CASES, oracle(kind))
    ]  # fmt: skip
    for _, case, kind in work:  # compiled on this thread, and the disk's copy of it used by none other
        rewards_once(case, kind)
    with ThreadPoolExecutor(cores()) as pool:
        for name, case, kind in work:
            runs = pool.map(lambda i, one=(name, case, kind): rewards(*one, i), range(REPLICATIONS))
            found[name, case.label, kind] = np.array(list(runs))
            print(f"{kind}: {case.label} on {name}", flush=True)

    def paths(name: str, case: ConfiguredPolicy, kind: str) -> Floats:
        return found[name, case.label, kind]

    text = "\n".join(table(paths)) + "\n"
    print(text)
    (HERE / "robustness.md").write_text(text)
    figure(paths).savefig(HERE.parent / "docs/figures/robustness.png")


if __name__ == "__main__":
    main()
