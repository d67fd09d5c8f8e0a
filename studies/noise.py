"""What noise of the perturbation does: to the lead of contexts over none in S1, and to belief policies in S1 and S4.

    python studies/noise.py     # writes studies/noise.md, two minutes of CPU time

mp-ucb has its textbook width. Intervals are at the 95% level, for paired differences over replications.
"""

from pathlib import Path

import numpy as np

import idleband as ib
from idleband.simulation.statistics import paired_difference

HORIZON, REPLICATIONS, SEED = 100_000, 8, 0
NOISE = (0.0, 0.05, 0.1, 0.2)
BETAS = (0.1, 0.5, 1.0, 10.0)
BELIEF = ("mp-belief", "mp-belief-lucb", "mp-adaptive-lucb")
ORACLES = ("oracle-belief", "oracle-whittle")


def scenario(preset: str, sigma: float) -> ib.Scenario:
    return ib.scenario(preset, perturbation={"noise": sigma})


def run(preset: str, sigma: float, policy: str, **parameters: float) -> ib.Result:
    size = {"horizon": HORIZON, "replications": REPLICATIONS, "seed": SEED}
    return ib.simulate(scenario(preset, sigma), policy, **size, **parameters)


def reward(result: ib.Result) -> np.ndarray:
    return np.asarray(result.reward[:, -1] / HORIZON)


def leads() -> list[str]:
    """Return the lead of mp-lucb over mp-ucb in S1, by noise and beta, as a table."""
    rows = ["| noise | " + " | ".join(f"beta {beta:g}" for beta in BETAS) + " |", "|---" * (len(BETAS) + 1) + "|"]
    for sigma in NOISE:
        plain = reward(run("S1", sigma, "mp-ucb"))
        cells = []
        for beta in BETAS:
            gain = paired_difference(reward(run("S1", sigma, "mp-lucb", beta=beta)), plain)
            cells.append(f"{gain.mean:+.4f} ± {gain.mean - gain.low:.4f}")
        rows.append(f"| {sigma:g} | " + " | ".join(cells) + " |")
    return rows


def shares() -> list[str]:
    """Return the shares of oracles and of the upper bound that policies earn, as a table."""
    rows = [
        "| scenario | noise | policy | per slot | of oracle-belief | of oracle-whittle | of the bound |",
        "|---" * 7 + "|",
    ]
    for preset in ("S1", "S4"):
        for sigma in NOISE:
            results = {name: run(preset, sigma, name) for name in (*ORACLES, *BELIEF)}
            earned = {name: reward(result) for name, result in results.items()}
            whittle = results["oracle-whittle"]
            bound = (whittle.reward[:, -1] + whittle.regret("bound")[:, -1]) / HORIZON
            for name, values in earned.items():
                parts = [f"{(values / other).mean():.2%}" for other in (*(earned[one] for one in ORACLES), bound)]
                rows.append(f"| {preset} | {sigma:g} | {name} | {values.mean():.4f} | " + " | ".join(parts) + " |")
    return rows


if __name__ == "__main__":
    text = "\n".join([*leads(), "", *shares()]) + "\n"
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)
