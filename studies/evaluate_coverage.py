"""Check that the intervals of `idleband evaluate` contain the true value in 95% of logs.

    python studies/evaluate_coverage.py [--quick]    writes studies/evaluate_coverage.md, in about 5 minutes

A simulated allocator makes a log in which policy LOGGER decides. Other policies are evaluated on it. The true value is
exact: the mean reward per slot that the selections of the policy would have had on the same sample path, where the
simulator knows the rewards of all channels. The column `bias` is the mean error in units of its standard error, `error`
the root mean square of the errors, `width` the median half width of the intervals, and `coverage` the share of
intervals that contain the true value. Binomial: the 99.9% range of a share of 95%.
"""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from idleband.evaluation.evaluate import policy_value, selections, usable_plays  # noqa: E402
from idleband.scenario.build import scenario  # noqa: E402
from tests.evaluation.simulated import simulated  # noqa: E402

LOGGERS = ("mp-random", "exp3-m", "whittle-q")
SHOCKED = scenario("S1", shocks={"start": 0.01, "end": 0.1, "share": 0.8}, name="S1-shocks")
TARGETS = ("mp-ucb", "mp-belief")
FIXED = (0, 1, 2, 3, 4)
SLOTS, LOGS = 600, 200


class Case(NamedTuple):
    name: str
    scenario: Any
    logger: str
    reported: float = 1.0  # probability that a play has feedback


CASES = [
    *(Case(name, name, logger) for name in ("S1", "S4") for logger in LOGGERS),
    *(Case("S1 with common shocks", SHOCKED, logger) for logger in LOGGERS),
    Case("S1, 80% of plays with feedback", "S1", "mp-random", 0.8),
]
ESTIMATES = ("ips", "dr", "difference")
COLUMNS = ("scenario", "logger", "policy", "estimate", "true value", "bias", "error", "width", "coverage")


def coverage(case: Case, slots: int, logs: int) -> dict[tuple[str, str], np.ndarray]:
    """Return the true value, the estimate and the interval for each log, by policy and estimate."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for seed in range(logs):
        log, rewards = simulated(case.scenario, case.logger, slots, seed, reported=case.reported)
        _, plays, _ = usable_plays(log, "random")
        for label, c in selections(log, TARGETS, [FIXED]).items():
            value = policy_value(label, c, plays, log)
            for name in ESTIMATES:
                share = c - log.propensity if name == "difference" else c
                truth = float((share * rewards).sum(axis=1).mean())
                found.setdefault((label, name), []).append((truth, *getattr(value, name)))
    return {key: np.array(rows) for key, rows in found.items()}


def binomial_range(logs: int) -> tuple[float, float]:
    """Return the range that contains the share of covering intervals with probability 99.9%."""
    low, high = binom.ppf([0.0005, 0.9995], logs, 0.95) / logs
    return float(low), float(high)


def table_rows(case: Case, slots: int, logs: int) -> list[str]:
    """Return the rows of the table for one logging policy."""
    lines = []
    for (label, name), values in coverage(case, slots, logs).items():
        truth, estimate, low, high = values.T
        error = estimate - truth
        bias = error.mean() / (error.std(ddof=1) / np.sqrt(logs))
        covered = np.mean((low <= truth) & (truth <= high))
        cells = (
            case.name, case.logger, label, name, f"{truth.mean():.3f}", f"{bias:+.1f}",
            f"{np.sqrt((error**2).mean()):.4f}", f"{np.median(high - low) / 2:.4f}", f"{covered:.1%}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def main(quick: bool) -> None:
    began = time.monotonic()
    slots, logs = (200, 3) if quick else (SLOTS, LOGS)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    print(lines[0])
    for case in CASES:
        lines += table_rows(case, slots, logs)
    low, high = binomial_range(logs)
    lines += ["", f"{logs} logs of {slots:,} slots each; binomial {low:.1%} to {high:.1%}."]
    if not quick:
        (HERE / "evaluate_coverage.md").write_text("\n".join(lines) + "\n")
    print(f"{lines[-1]} {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main("--quick" in sys.argv)
