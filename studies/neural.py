"""Compare MP-NUCB with MP-LUCB under three perturbation models: rewards by covariance, and prediction errors.

    python studies/neural.py [FOLDER]

Writes neural-rewards.md and neural-errors.md beside this file. Results and figures are stored in FOLDER (default
results/neural), from which an interrupted study continues. 12 scenarios x 4 policies x 20 replications x 10^5 slots
take about half an hour on two cores. The seeds were not used while the policy was developed.
"""

import sys
from pathlib import Path

import idleband as ib
from idleband.experiments.study import Study
from idleband.reporting.plots import learned_figure, save_figure
from idleband.simulation.prediction_error import Learned, learned, root_mean_square

HERE = Path(__file__).parent
SCENARIOS, PERTURBATION_MODELS = ("S1", "S2", "S3", "S4"), ("linear", "quadratic", "cosine")
POLICIES = [
    ib.policy("mp-lucb"),
    ib.policy("mp-nucb"),
    ib.policy("mp-nucb", covariance="block"),
    ib.policy("mp-nucb", covariance="diagonal"),
]
HORIZON, REPLICATIONS, SEED = 100_000, 20, 3
LEARNED = [ib.policy("mp-lucb"), ib.policy("mp-nucb"), ib.policy("mp-nucb-printed")]
LEARNED_HORIZON, LEARNED_REPLICATIONS = 50_000, 5


def compared(folder: Path) -> list[str]:
    """Return the table of mean rewards per slot, with the gains over mp-lucb."""
    lucb, *others = [configured.label for configured in POLICIES]
    lines = [
        "| model | scenario | mp-lucb | " + " | ".join(f"{label}, gain [95%]" for label in others) + " |",
        "|---" * (3 + len(others)) + "|",
    ]
    for model in PERTURBATION_MODELS:
        for name in SCENARIOS:
            scenario = ib.scenario(name, perturbation=model, name=f"{name}-{model}")
            study = ib.compare(
                scenario, POLICIES, horizon=HORIZON, replications=REPLICATIONS, seed=SEED, out=folder / scenario.name
            )
            base = study.table().loc[lucb, "reward"]
            cells = [gain(study, label, lucb, base) for label in others]
            lines.append(f"| {model} | {name} | {base:.4f} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return lines


def gain(study: Study, label: str, lucb: str, base: float) -> str:
    """Return the reward of a policy and its gain over mp-lucb in per cent, with the interval."""
    difference = study.difference(label, lucb)
    mean, low, high = (100 * value / HORIZON / base for value in difference[:3])
    return f"{study.table().loc[label, 'reward']:.4f}, {mean:+.2f}% [{low:+.2f}, {high:+.2f}]"


def errors(folder: Path) -> list[str]:
    """Return the table of prediction errors, and draw a figure for each model."""
    lines = [
        "| model | policy | played, last tenth (worst of replications) | fresh contexts (worst) |",
        "|---|---|---|---|",
    ]
    for model in PERTURBATION_MODELS:
        scenario = ib.scenario("S1", perturbation=model, name=f"S1-{model}")
        found = [
            learned(scenario, configured, horizon=LEARNED_HORIZON, replications=LEARNED_REPLICATIONS, seed=SEED)
            for configured in LEARNED
        ]
        for one in found:
            lines.append(row(model, one))
            print(lines[-1], flush=True)
        save_figure(learned_figure(found), folder / f"learned-{model}")
    return lines


def row(model: str, one: Learned) -> str:
    """Return a row of the table of errors."""
    played, fresh = one.played_last, one.fresh_last
    return (
        f"| {model} | {one.label} | {root_mean_square(played):.1%} ({played.max():.1%})"
        f" | {root_mean_square(fresh):.1%} ({fresh.max():.1%}) |"
    )


if __name__ == "__main__":
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else "results/neural")
    runs.mkdir(parents=True, exist_ok=True)
    tables = {"errors": errors(runs), "rewards": compared(runs)}
    for name, lines in tables.items():
        (HERE / f"neural-{name}.md").write_text("\n".join(lines) + "\n")
