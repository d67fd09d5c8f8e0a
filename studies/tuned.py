"""Tune the rivals of the ranking: the parameters with the highest mean reward, for each scenario and model.

    python studies/tuned.py    # write studies/tuned.csv, in about twenty minutes on two cores

Each value of a grid runs on three sample paths of 100,000 slots (networks: two of 30,000) with a seed that no other
study uses. The values are chosen anew for every scenario, whereas the policies of this package have one setting for
all, so this favours the rivals. Lines that are in the file already are kept; delete it to tune again.
"""

import csv
import sys
from pathlib import Path

import idleband as ib
from idleband.policies.registry import POLICIES, ConfiguredPolicy

TABLE = Path(__file__).with_suffix(".csv")
SCENARIOS, PERTURBATION_MODELS = ("S1", "S2", "S3", "S4"), ("none", "linear", "quadratic", "cosine")
SEED, HORIZON, REPLICATIONS = 3, 100_000, 3
NETWORK_HORIZON, NETWORK_REPLICATIONS = 30_000, 2

WIDTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 1.5, 3.0, 10.0, 30.0)
GRIDS: dict[str, dict[str, tuple[object, ...]]] = {
    "mp-ucb": {"L": WIDTHS},
    "rca-m": {"L": WIDTHS},
    "mp-swucb": {"window": (10, 30, 100, 300, 1000, 3000, 10_000, 100_000), "L": (0.03, 0.1, 0.6, 3.0)},
    "mp-ducb": {
        "discount": (0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 0.999, 0.9999, 0.99999),
        "L": (1e-4, 0.001, 0.01, 0.1, 0.6),
    },
    "mp-lbt": {"window": (1, 2, 4, 16), "max_window": (1, 4, 64, 1024, 16_384)},
    "mp-lucb": {"beta": (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0, 30.0)},
    "mp-klucb": {"clock": ("slots", "plays")},
    "glr-klucb": {"alpha": (0.0, 0.03, 0.1, 0.3), "delta": (1e-9, 1e-4, 0.003, 0.1, 0.5)},
    "exp3-m": {"gamma": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)},
    "dsee": {"D": (1.0, 10.0, 100.0, 1000.0), "L": (0.0, 0.1, 1.0)},
    "restless-ucb": {"scale": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)},
    "whittle-q": {"epsilon": (0.003, 0.01, 0.03, 0.1), "ages": (2, 3, 4, 8, 16)},
    "c2ucb": {"beta": (0.01, 0.1, 0.3, 1.0, 3.0)},
    "linucb": {"beta": (0.01, 0.1, 0.3, 1.0, 3.0)},
    "neural-ucb": {"gamma": (0.01, 0.03, 0.1, 0.3, 1.0)},
    "neural-ts": {"gamma": (0.01, 0.03, 0.1, 0.3, 1.0)},
}

Chosen = dict[tuple[str, str, str], ConfiguredPolicy]  # by model, scenario and policy


def is_network(name: str) -> bool:
    return "covariance" in POLICIES[name].parameters


def tune(model: str, preset: str, name: str) -> tuple[ConfiguredPolicy, float]:
    """Return the best point of a policy's grid and its mean reward per slot."""
    scenario = ib.scenario(preset, perturbation=model)
    horizon, replications = (NETWORK_HORIZON, NETWORK_REPLICATIONS) if is_network(name) else (HORIZON, REPLICATIONS)
    points = ib.grid(name, **GRIDS[name])
    study = ib.compare(scenario, points, horizon=horizon, replications=replications, seed=SEED)
    rewards = [study.interval(point.label, per_slot=True).mean for point in points]
    best = max(range(len(points)), key=rewards.__getitem__)
    return points[best], rewards[best]


def chosen() -> Chosen:
    """Return the policies of the table."""
    found: Chosen = {}
    if TABLE.exists():
        with TABLE.open() as file:
            for line in csv.DictReader(file):
                found[line["model"], line["scenario"], line["policy"]] = ib.policy(line["parameters"])
    return found


def main() -> None:
    done = chosen()
    new = not TABLE.exists()
    with TABLE.open("a") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(["model", "scenario", "policy", "parameters", "reward"])
        for name in sys.argv[1:] or GRIDS:
            for model in PERTURBATION_MODELS:
                if model == "none" and is_network(name):
                    continue
                for preset in SCENARIOS:
                    if (model, preset, name) not in done:
                        best, reward = tune(model, preset, name)
                        values = ",".join(f"{key}={best.values[key]}" for key in GRIDS[name])
                        writer.writerow([model, preset, name, f"{name}:{values}", f"{reward:.4f}"])
                        file.flush()
            print(f"{name}: tuned", flush=True)


if __name__ == "__main__":
    main()
