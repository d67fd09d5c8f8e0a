"""Stored results, read with pandas only, for comparison with the paper package.

Nothing here uses the code of the package that reads results, so a wrong folder, column, policy or sign is noticed.
"""

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

from idleband.paper.plan import Size

# Small where there are many studies. In test_plan.py all numbers differ, so that a mistaken one is noticed.
SIZE = Size(horizon=110, replications=6, fewer=3, fewest=2, neural=4, neural_fewer=2, tuning=1)

SCENARIOS = ("S1", "S2", "S3", "S4")
BASELINES = ("mp-random", "mp-ucb", "mp-klucb", "rca-m")
TEXTBOOK = {"mp-ucb": 1.5, "rca-m": 1.0}
GRID = (0.1, 0.5, 1.0, 10.0, 100.0, 1000.0)
GAMMA_GRID = (0.1, 0.5, 1.0, 10.0)
POLICIES = {  # of each reading: MP-LUCB, MP-NUCB
    "slot-played": ("mp-lucb", "mp-nucb"),
    "rca-sensed": ("mp-lucb-rca", "mp-nucb-rca"),
    "rca-played": ("mp-lucb-rca", "mp-nucb-rca"),
    "printed-reward": ("mp-lucb-printed", "mp-nucb-printed"),
    "printed-indicator": ("mp-lucb-printed", "mp-nucb-printed"),
    "additive": ("mp-lucb", "mp-nucb"),
    "per-channel": ("mp-lucb", "mp-nucb"),
    "noise-0.1": ("mp-lucb", "mp-nucb"),
    "noise-0.2": ("mp-lucb", "mp-nucb"),
    "quadratic": ("mp-lucb", "mp-nucb"),
    "cosine": ("mp-lucb", "mp-nucb"),
    "none": ("mp-lucb", "mp-nucb"),
}
MAP = {  # by P(n < 1) and noise
    **{
        (clear, 0.0): "slot-played" if clear == 0.7 else f"slot-played-{clear:g}"
        for clear in (0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
    },
    **{
        (clear, noise): f"noise-{noise:g}" if clear == 0.7 else f"slot-played-{clear:g}-noise-{noise:g}"
        for noise in (0.1, 0.2)
        for clear in (0.5, 0.7, 0.9)
    },
}
ONLY_IN_MAP = tuple(key for key in MAP.values() if key not in POLICIES)
FIGURE_3 = (("slot-played", "MP-LUCB"), ("slot-played", "MP-NUCB"), ("rca-sensed", "MP-LUCB"))
USERS = (1, 3, 5, 7, 9)  # of figure 3
LINEAR_MODEL = (  # figure 4
    *("slot-played", "rca-sensed", "rca-played", "printed-reward", "printed-indicator"),
    *("additive", "per-channel", "noise-0.1", "noise-0.2"),
)
SAME_PATHS = ("rca-sensed", "rca-played", "printed-reward", "printed-indicator")  # and baselines as the main reading
WITH_BASELINES = tuple(key for key in (*POLICIES, *ONLY_IN_MAP) if key not in SAME_PATHS)
TUNED_IN = {  # where L is tuned, if elsewhere: in the world with the same P(n < 1)
    **dict.fromkeys(("per-channel", "noise-0.1", "noise-0.2", "quadratic", "cosine"), "slot-played"),
    **{MAP[clear, noise]: MAP[clear, 0.0] for clear, noise in MAP if noise and clear != 0.7},
}


@cache
def study(folder: Path, name: str) -> pandas.DataFrame:
    return pandas.read_parquet(folder / "studies" / name / "results.parquet")


@cache
def end(folder: Path, name: str) -> pandas.DataFrame:
    """Return the rows at the horizon, in the order of replications."""
    rows = study(folder, name)
    return rows[rows.t == rows.t.max()].sort_values("replication")


def of_policy(rows: pandas.DataFrame, policy: str, parameters: dict[str, float]) -> pandas.DataFrame:
    wanted = (rows.policy == policy).to_numpy()
    for key, value in parameters.items():
        wanted = wanted & (rows[key] == value).to_numpy()
    rows = rows[wanted]
    assert len(set(rows.label)) == 1
    return rows


def curve(folder: Path, name: str, column: str, policy: str, **parameters: float) -> pandas.DataFrame:
    """Return a column of one policy: one row per replication, one column per checkpoint."""
    rows = of_policy(study(folder, name), policy, parameters)
    return rows.pivot(index="replication", columns="t", values=column)


@cache
def policy_end(folder: Path, name: str, policy: str, **parameters: float) -> pandas.DataFrame:
    return of_policy(end(folder, name), policy, parameters)


def at_end(folder: Path, name: str, column: str, policy: str, **parameters: float) -> np.ndarray:
    """Return (R,) a column of one policy at the horizon."""
    return policy_end(folder, name, policy, **parameters)[column].to_numpy(float)


def best(folder: Path, reading: str, preset: str, policy: str, parameter: str, grid: Sequence[float] = GRID) -> float:
    """Return the value with the highest mean reward in the tuning study; the smallest in case of a tie."""
    means = [at_end(folder, f"{preset}-{reading}-tuning", "reward", policy, **{parameter: v}).mean() for v in grid]
    return max(zip(means, grid, strict=True), key=lambda pair: (pair[0], -pair[1]))[1]


def linear_policy(reading: str) -> str:
    return POLICIES.get(reading, POLICIES["slot-played"])[0]


@cache
def beta(folder: Path, reading: str, preset: str) -> float:
    return best(folder, reading, preset, linear_policy(reading), "beta")


@cache
def tuned_L(folder: Path, reading: str, preset: str) -> dict[str, float]:
    """Return the L of mp-ucb and rca-m tuned in a reading; empty where they are tuned in another one."""
    if reading in SAME_PATHS or reading in TUNED_IN:
        return {}
    return {name: best(folder, reading, preset, name, "L") for name in TEXTBOOK}


@cache
def gamma(folder: Path, reading: str, preset: str) -> float:
    """Return the gamma with the highest reward in the tuning study; the smallest in case of a tie."""
    name = f"{preset}-{reading}-gamma"
    rewards = [at_end(folder, name, "reward", POLICIES[reading][1], gamma=value)[0] for value in GAMMA_GRID]
    return GAMMA_GRID[rewards.index(max(rewards))]


ConfiguredPolicy = tuple[str, str, dict[str, float]]  # study, policy, parameters


def proposed_policy(folder: Path, reading: str, preset: str, role: str) -> ConfiguredPolicy:
    if role == "MP-NUCB":
        return f"{preset}-{reading}-neural", POLICIES[reading][1], {"gamma": gamma(folder, reading, preset)}
    return f"{preset}-{reading}", linear_policy(reading), {"beta": beta(folder, reading, preset)}


def baseline_policy(folder: Path, reading: str, preset: str, name: str, tuned: bool = True) -> ConfiguredPolicy:
    owner = reading if reading in WITH_BASELINES else "slot-played"
    L = {**TEXTBOOK, **(tuned_L(folder, TUNED_IN.get(owner, owner), preset) if tuned else {})}
    return f"{preset}-{owner}", name, {"L": L[name]} if name in L else {}


def proposed(folder: Path, reading: str, preset: str, role: str, column: str) -> np.ndarray:
    """Return (R,) a column of MP-LUCB or MP-NUCB at the horizon."""
    study, policy, parameters = proposed_policy(folder, reading, preset, role)
    return at_end(folder, study, column, policy, **parameters)


def baseline(folder: Path, reading: str, preset: str, name: str, column: str, *, tuned: bool = True) -> np.ndarray:
    """Return (R,) a column of a baseline on the same sample paths at the horizon."""
    study, policy, parameters = baseline_policy(folder, reading, preset, name, tuned)
    return at_end(folder, study, column, policy, **parameters)


def users_study(reading: str, role: str, M: int) -> str:
    return f"S1-{reading}-users-{M}{'-neural' if role == 'MP-NUCB' else ''}"


def with_users(folder: Path, reading: str, role: str, M: int, column: str) -> np.ndarray:
    """Return (R,) a column of a policy of figure 3 at the horizon."""
    linear, neural = POLICIES[reading]
    if role == "MP-NUCB":
        return at_end(folder, users_study(reading, role, M), column, neural, gamma=gamma(folder, reading, "S1"))
    return at_end(folder, users_study(reading, role, M), column, linear, beta=beta(folder, reading, "S1"))


def mean_and_interval(values: np.ndarray) -> list[np.ndarray]:
    """Return the mean over the first axis and the ends of its 95% Student t interval."""
    mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(len(values))
    half = stats.t.ppf(0.975, len(values) - 1) * error
    return [mean, mean - half, mean + half]


# --- folders with other numbers --------------------------------------------------------------------------------------


FIGURE_3_STUDIES = re.compile(r"S1-(slot-played|rca-sensed)-(users-.*|tuning)|S1-slot-played-gamma")
FIGURE_4_STUDIES = re.compile(rf"S1-({'|'.join(LINEAR_MODEL)})-(beta|tuning)")


def some_studies(whole: Path, place: Path, wanted: Callable[[str], object], *, tasks: bool = False) -> Path:
    """Make a reproduction with copies of some studies, with their tasks if it is to be continued."""
    place.mkdir()
    shutil.copy(whole / "reproduction.toml", place)
    for source in sorted((whole / "studies").iterdir()):
        if wanted(source.name):
            left_out = shutil.ignore_patterns() if tasks else shutil.ignore_patterns("tasks.log")
            shutil.copytree(source, place / "studies" / source.name, ignore=left_out)
    return place


def rewrite(folder: Path, name: str, change: Callable[[pandas.DataFrame], pandas.DataFrame]) -> None:
    """Change the results of a stored study."""
    place = folder / "studies" / name
    rows = change(pandas.read_parquet(place / "results.parquet"))
    plays = pandas.read_parquet(place / "plays.parquet")
    task = ["label", "replication"]
    kept = plays.set_index(task).index.isin(rows.set_index(task).index)  # only plays of the remaining results
    manifest = json.loads((place / "manifest.json").read_text())
    for table, content in (("results.parquet", rows), ("plays.parquet", plays[kept])):
        content.to_parquet(place / table, index=False)
        manifest["sha256"][table] = hashlib.sha256((place / table).read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))
