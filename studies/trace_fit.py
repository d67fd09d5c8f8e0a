"""Measure how often intervals and tests of `Trace.fit` are right on simulated traces.

    python studies/trace_fit.py            # about ten minutes on two cores
    python studies/trace_fit.py --quick    # a short run that checks that the study works; writes nothing

Traces are simulated from channels whose parameters are known:
    markov        two-state Markov channels
    semi-markov   idle periods from a mixture of two geometric distributions, CV² about 4
    regular       busy periods uniform on 5 to 15 slots, CV² 0.1
    bursts        Markov channels, and a common regime with more and longer busy periods in a twelfth of the slots
The coverage of an interval is the share of traces and channels in which it contains the true value. Errors are two
standard errors over traces, because channels of a trace may depend on each other. The second table has the share of
channels in which the tests of dwell times and clusters reject at 5%, the share of traces in which a change of a channel
or a common change is found (at 1%) and in which the interval of the drift excludes 0, and how often each model is
chosen. `step` is a markov trace whose channels double p10 in the second half.

Writes trace_fit.md beside this file.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from idleband.arrays import Floats
from idleband.trace.fit.change_points import find_changes
from idleband.trace.fit.counts import BUSY, IDLE, count
from idleband.trace.fit.dwell_times import geometric_tests
from idleband.trace.fit.hazards import hazard
from idleband.trace.fit.model_choice import choose
from idleband.trace.fit.models import MarkovModel, RegimeModel, simulate_hazards
from idleband.trace.fit.transitions import estimate_transitions

HERE = Path(__file__).parent
TRACES, RUNS, CHOSEN = 300, 100, 25
K = 10
P01, P10 = 0.25, 0.05
LENGTHS = (300, 1000, 5000)


def hazards_of_mixture(weights: Any, means: Any, ages: int = 2000) -> Floats:
    """Return the hazard by age of a mixture of geometric distributions."""
    q = 1 - 1 / np.asarray(means, float)
    survival = np.asarray(weights) * q[None] ** np.arange(ages)[:, None]
    return (survival * (1 - q)).sum(axis=1) / survival.sum(axis=1)


def per_channel(idle: Floats, busy: Floats) -> Floats:
    """Return hazards of shape (2, K, ages), the same for all channels."""
    ages = max(len(idle), len(busy))
    rows = [np.pad(row, (0, ages - len(row)), mode="edge") for row in (idle, busy)]
    return np.repeat(np.stack(rows)[:, None], K, axis=1)


MIXTURE = hazards_of_mixture([0.8, 0.2], [4.0, 60.0])
REGULAR = np.concatenate([np.zeros(4), 1 / np.arange(11, 0, -1)])
BURSTS = RegimeModel(
    np.array([[0.3] * K, [0.1] * K]), np.array([[0.02] * K, [0.3] * K]), np.array([[0.99, 0.01], [0.11, 0.89]])
)


def markov(T: int, rng: np.random.Generator) -> Any:
    """Two-state Markov channels."""
    return MarkovModel(np.full(K, P01), np.full(K, P10)).simulate(T, 1, rng)[:, 0]


def semi_markov(T: int, rng: np.random.Generator) -> Any:
    """Idle periods with a large variance."""
    return simulate_hazards(per_channel(MIXTURE, np.array([P01])), T + 1000, 1, rng)[1000:, 0]


def regular(T: int, rng: np.random.Generator) -> Any:
    """Busy periods with a small variance."""
    return simulate_hazards(per_channel(np.array([P10]), REGULAR), T + 1000, 1, rng)[1000:, 0]


def bursts(T: int, rng: np.random.Generator) -> Any:
    """Common bursts."""
    return BURSTS.simulate(T, 1, rng)[:, 0]


def step(T: int, rng: np.random.Generator) -> Any:
    """A change of all channels in the middle."""
    first = MarkovModel(np.full(K, P01), np.full(K, P10)).simulate(T // 2, 1, rng)[:, 0]
    second = MarkovModel(np.full(K, P01), np.full(K, 2 * P10)).simulate(T - T // 2, 1, rng)[:, 0]
    return np.concatenate([first, second])


def long_run(transition: Floats, model: RegimeModel) -> tuple[float, float]:
    """Return transitions per slot in a state, out of busy and out of idle, of a channel with regimes."""
    size = len(transition)
    full = np.zeros((2 * size, 2 * size))  # states: regime of the last transition, busy
    for i in range(size):
        for j in range(size):
            p10, p01 = model.p10[j, 0], model.p01[j, 0]
            full[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = transition[i, j] * np.array([[1 - p10, p10], [p01, 1 - p01]])
    share = np.linalg.matrix_power(full, 100_000)[0]
    idle, busy = share[0::2], share[1::2]
    return float((busy @ transition) @ model.p01[:, 0] / busy.sum()), float(
        (idle @ transition) @ model.p10[:, 0] / idle.sum()
    )


def mean_dwell(row: Floats) -> float:
    """Return the mean dwell time of a hazard by age."""
    survival = np.concatenate([[1.0], np.cumprod(1 - row)])[: len(row)]
    return float(survival.sum())


WORLDS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "markov": (markov, P01, P10),
    "semi-markov": (semi_markov, P01, 1 / mean_dwell(MIXTURE)),
    "regular": (regular, 1 / 10, P10),
    "bursts": (bursts, *long_run(BURSTS.transition, BURSTS)),
}


def share(values: list[float]) -> str:
    """Return a mean over traces as a percentage with two standard errors."""
    known = np.array([value for value in values if np.isfinite(value)])
    if not len(known):
        return "-"
    error = 2 * known.std() / np.sqrt(len(known))
    return f"{100 * known.mean():.1f} ±{100 * error:.1f}"


def true_by_bin(first: Any, row: Floats) -> Floats:
    """Return the mean hazard of each bin of age, weighted by the probability to reach an age."""
    survival = np.concatenate([[1.0], np.cumprod(1 - row)])[: len(row)]
    ends = [*list(first[1:] - 1), len(row)]
    return np.array([
        survival[a - 1 : b] @ row[a - 1 : b] / max(1e-300, survival[a - 1 : b].sum())
        for a, b in zip(first, ends, strict=True)
    ])  # fmt: skip


def coverage(traces: int) -> list[str]:
    """Return the rows of the table of intervals."""
    rows = []
    for world, (simulate, p01, p10) in WORLDS.items():
        for T in LENGTHS:
            rng = np.random.Generator(np.random.PCG64(1))
            found: dict[str, list[float]] = {
                key: [] for key in ("p01", "p10", "plain", "blocks", "one", "all", "few")
            }  # fmt: skip
            for _ in range(traces):
                busy = simulate(T, rng)
                counts = count(busy)
                tests = geometric_tests(counts)
                idle, occupied = estimate_transitions(busy, counts, np.stack([test.p_values for test in tests]))
                for name, estimates, true in (("p10", idle, p10), ("p01", occupied, p01)):
                    known = [one for one in estimates if one.slots]
                    found[name].append(np.mean([one.low <= true <= one.high for one in known]))
                found["plain"].append(np.mean([one.binomial[0] <= p10 <= one.binomial[1] for one in idle]))
                found["blocks"].append(np.mean([one.method == "blocks" for one in idle]))
                if world in ("markov", "semi-markov"):
                    row = np.array([P10] * 2000) if world == "markov" else MIXTURE
                    for name, channel in (("one", 0), ("all", None)):
                        part = hazard(counts, IDLE, channel)
                        exact = part.first_age <= 4  # bins of one slot, whose hazard is exactly known
                        true_values = true_by_bin(part.first_age, row)
                        inside = (part.low <= true_values) & (true_values <= part.high)
                        used = exact & (part.slots > 0)
                        found[name].append(float(np.mean(inside[used])) if used.any() else float("nan"))
            columns = ("p01", "p10", "plain", "blocks", "one", "all")
            rows.append(f"| {world} | {T:,} | " + " | ".join(share(found[key]) for key in columns) + " |")
            print(rows[-1], flush=True)
    return rows


def tests_and_choice(traces: int) -> list[str]:
    """Return the rows of the table of tests and models."""
    rows = []
    worlds = [*((name, one[0]) for name, one in WORLDS.items()), ("step", step)]
    for world, simulate in worlds:
        T = 5000
        rng = np.random.Generator(np.random.PCG64(2))
        found: dict[str, list[float]] = {
            key: [] for key in ("dwell", "busy", "cluster", "change", "common", "drift")
        }  # fmt: skip
        chosen = {"markov": 0, "semi-markov": 0, "regimes": 0}
        for i in range(traces):
            busy = simulate(T, rng)
            counts = count(busy)
            tests = geometric_tests(counts)
            idle, _ = estimate_transitions(busy, counts, np.stack([test.p_values for test in tests]))
            changes = find_changes(busy, counts, rng)
            found["dwell"].append(float(np.nanmean(tests[IDLE].p_values < 0.05)))
            found["busy"].append(float(np.nanmean(tests[BUSY].p_values < 0.05)))
            found["cluster"].append(float(np.mean([one.cluster_p_value < 0.05 for one in idle])))
            found["change"].append(float(changes.changed > 0))
            found["common"].append(float(bool(changes.common)))
            low, high = changes.common_drift[1:]
            found["drift"].append(float(low > 0 or high < 0))
            if i < CHOSEN:
                chosen[choose(busy, counts).model.name] += 1
        total = sum(chosen.values())
        cells = [share(values) for values in found.values()]
        models = ", ".join(f"{name} {n}" for name, n in chosen.items() if n)
        rows.append(f"| {world} | " + " | ".join(cells) + f" | {models} of {total} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Run the study."""
    quick = "--quick" in sys.argv
    traces = 3 if quick else TRACES
    first = [
        f"Coverage of 95% intervals in per cent, {traces} traces of {K} channels each.",
        "",
        "| channels | slots | p01 | p10 | p10, binomial always | interval from blocks used | hazard, one channel |"
        " hazard, pooled |",
        "|---|---|---|---|---|---|---|---|",
        *coverage(traces),
    ]
    runs = 2 if quick else RUNS
    second = [
        "",
        f"Rejections in per cent, and chosen models; {runs} traces of 5,000 slots and {K} channels.",
        "",
        "| channels | idle dwell times | busy dwell times | clusters | change of a channel | common change | drift |"
        " chosen model |",
        "|---|---|---|---|---|---|---|---|",
        *tests_and_choice(runs),
    ]
    if not quick:
        (HERE / "trace_fit.md").write_text("\n".join([*first, *second]) + "\n")


if __name__ == "__main__":
    main()
