"""Compare decentralised policies on restless channels with policies of a base station.

    python studies/users_restless.py            # about 5 minutes on two cores
    python studies/users_restless.py --quick    # a short run that checks that the study works; writes nothing

S1 and S4 without perturbation, M = 5 users, K = 10 channels, T = 10^5 slots, 20 replications, with a seed that was not
used while the policies were developed. All policies have the same sample paths. `gap closed` is the share of the gap
from mctopm to mp-belief, which a base station runs, that a policy closes: (own - mctopm) / (mp-belief - mctopm), of
means over the replications. Intervals are 95%, Student t over replications; that of the gap closed is of the difference
to mctopm alone. Colliding users, switches and messages are per slot. Users may send in one control minislot per slot;
belief-beacons is the only policy that does.

Also the rewards with the linear perturbation of the presets, of a few policies.

Writes users_restless.md and users_restless.csv beside this file.
"""

import csv
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

import idleband as ib
from idleband.arrays import Floats
from idleband.policies.registry import DECENTRALISED
from idleband.scenario.upper_bound import bound
from idleband.simulation.scheduler import cores
from idleband.simulation.statistics import interval, paired_difference
from idleband.simulation.users_loop import MESSAGES, REWARD, SWITCHES, USER_COLLISIONS
from idleband.simulation.users_run import UsersRun, start_run

HERE = Path(__file__).parent
HORIZON, REPLICATIONS, SEED = 100_000, 20, 2027
SCENARIOS = ("S1", "S4")
CENTRALISED = ("mp-ucb", "mp-belief")
GROUPS_ALONE = "belief-groups:guests=false"
WITH_PERTURBATION = ("mp-ucb", "mp-belief", "mctopm", "belief-beacons", "belief-groups")
BASE, BEST = "mctopm", "mp-belief"
HEAD = (
    "scenario", "perturbation", "policy", "reward", "reward_pm", "gap_closed", "gap_closed_pm", "colliding_users",
    "switches", "messages",
)  # fmt: skip


class Row(NamedTuple):
    """A policy on a scenario: means per slot, and half widths of their intervals; nan where nothing is counted."""

    scenario: str
    perturbation: str
    policy: str
    reward: float
    reward_pm: float
    gap_closed: float
    gap_closed_pm: float
    colliding_users: float
    switches: float
    messages: float


def scenario_of(name: str, perturbation: str) -> ib.Scenario:
    return ib.scenario(name, users={"coordination": "none", "control_bits": 1}, perturbation=perturbation)


def measure(scenario: ib.Scenario, policy: str, horizon: int, replications: int) -> Floats:
    """Return reward, colliding users, switches and messages per slot of each replication."""
    configured = ib.policy(policy)
    start_run(scenario, configured, horizon, SEED, 0)  # compiled on this thread

    def one(replication: int) -> list[float]:
        run = start_run(scenario, configured, horizon, SEED, replication)
        run.to(horizon)
        now = run.tally.now / horizon
        if not isinstance(run, UsersRun):
            return [now[0], 0.0, np.nan, 0.0]
        return [float(now[row]) for row in (REWARD, USER_COLLISIONS, SWITCHES, MESSAGES)]

    with ThreadPoolExecutor(cores()) as pool:
        return np.array(list(pool.map(one, range(replications))))


def rows_of(name: str, perturbation: str, policies: list[str], horizon: int, replications: int) -> list[Row]:
    scenario = scenario_of(name, perturbation)
    found = {}
    for policy in policies:
        found[policy] = measure(scenario, policy, horizon, replications)
        print(f"{name}, {perturbation}: {policy} {found[policy][:, 0].mean():.3f}", flush=True)
    base, best = found[BASE][:, 0], found[BEST][:, 0]
    gap = float((best - base).mean())
    rows = []
    if perturbation == "none":  # otherwise it depends on the draw of theta
        rows.append(Row(name, perturbation, "upper bound", bound(scenario) or np.nan, *[np.nan] * 6))
    for policy, values in found.items():
        reward, share = interval(values[:, 0]), paired_difference(values[:, 0], base)
        more = values[:, 1:].mean(axis=0)
        rows.append(
            Row(
                name, perturbation, policy, reward.mean, reward.high - reward.mean, share.mean / gap,
                (share.high - share.mean) / gap, *(float(value) for value in more),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row.reward)


def page(rows: list[Row]) -> str:
    """Return the table, the best policy of each scenario first."""
    lines = [
        "| scenario | perturbation | policy | reward per slot | gap closed | colliding users | switches | messages |",
        "|" + "---|" * 8,
    ]
    for row in rows:
        lines.append(
            f"| {row.scenario} | {row.perturbation} | {row.policy} |"
            f" {with_interval(row.reward, row.reward_pm, '.3f')} |"
            f" {with_interval(100 * row.gap_closed, 100 * row.gap_closed_pm, '.1f', '%')} |"
            f" {number(row.colliding_users, '.4f')} | {number(row.switches, '.2f')} | {number(row.messages, '.3f')} |"
        )
    return "\n".join(lines) + "\n"


def number(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def with_interval(value: float, half: float, form: str, unit: str = "") -> str:
    if np.isnan(value):
        return "-"
    return f"{value:{form}}{unit}" + ("" if np.isnan(half) else f" ±{half:{form}}")


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    horizon, replications = (500, 2) if quick else (HORIZON, REPLICATIONS)
    policies = [*CENTRALISED, *DECENTRALISED, GROUPS_ALONE]
    work = [(name, "none", policies) for name in SCENARIOS]
    work += [(name, "linear", list(WITH_PERTURBATION)) for name in SCENARIOS]
    if quick:
        work = [("S1", "none", [*CENTRALISED, BASE, "belief-beacons", "belief-groups"])]
    rows = []
    for name, perturbation, chosen in work:
        rows += rows_of(name, perturbation, chosen, horizon, replications)
    text = page(rows)
    print(text)
    if quick:
        return
    place = HERE / "users_restless.md"
    notes = place.read_text().partition("\n\n")[2] if place.exists() else ""
    place.write_text(text + (f"\n{notes}" if notes else ""))
    with (HERE / "users_restless.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        writer.writerows([*row[:3], *("" if np.isnan(value) else f"{value:.6g}" for value in row[3:])] for row in rows)


if __name__ == "__main__":
    main()
