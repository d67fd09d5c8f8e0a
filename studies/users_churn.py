"""Users without a base station who arrive and leave: how long a policy needs to recover.

    python studies/users_churn.py            # a few minutes on two cores
    python studies/users_churn.py --quick    # a short run that checks that the study works; writes nothing

S1 and S4 without perturbation, collisions cost all users involved their reward, one control bit per user and slot for
the policies that use one. Four users begin together; a fifth arrives after 20,000 slots and leaves after 40,000 more.

The reward per slot is averaged over windows of 250 slots and 20 replications. A policy has recovered from a change in
the first window from which on three windows in a row earn, in the mean, at least 97% of what the policy earns in the
last 5,000 slots before the next change. That is its own level: the table also gives the level as a share of what a
base station with mp-belief earns with the users who are present, because a policy that never recovers has a low level
that it reaches at once. Policies that know the number of users are given 5.

A last column has users who stay and are absent for random times of 5,000 and 1,250 slots in the mean.

Writes users_churn.md beside this file, and docs/figures/users-churn.png.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

import idleband as ib
from idleband.arrays import Floats
from idleband.policies.registry import DECENTRALISED
from idleband.scenario.scenario import Scenario
from idleband.simulation.statistics import interval
from idleband.simulation.users_run import start_run

HERE = Path(__file__).parent
SCENARIOS = ("S1", "S4")
USERS, SEED, REPLICATIONS = 5, 17, 20
PHASE, WINDOW, LEVEL = 20_000, 250, 5_000
SHARE, IN_A_ROW = 0.97, 3
STATION = "mp-belief"
SHOWN = ("belief-groups", "belief-beacons", "mctopm", "dynamic-musical-chairs", "lbt-sticky")


def world(name: str, **users: Any) -> Scenario:
    settings = {"count": USERS, "coordination": "none", "control_bits": 1, **users}
    return ib.scenario(name, perturbation="none", context={"dimension": 1}, users=settings)


def arriving(name: str) -> Scenario:
    """Return the scenario in which the last user arrives later and leaves."""
    others = [1] * (USERS - 1), [0] * (USERS - 1)
    return world(name, arrive=[*others[0], PHASE + 1], leave=[*others[1], 3 * PHASE + 1])


def windows(scenario: Scenario, policy: str, horizon: int) -> Floats:
    """Return the reward per slot of each replication in each window, shape (replications, windows)."""
    found = np.zeros((REPLICATIONS, horizon // WINDOW))
    for i in range(REPLICATIONS):
        run = start_run(scenario, ib.policy(policy), horizon, SEED, i)
        before = 0.0
        for j in range(found.shape[1]):
            run.to((j + 1) * WINDOW)
            earned = float(run.tally.now[0])
            found[i, j], before = (earned - before) / WINDOW, earned
    return found


def recovery(rewards: Floats, change: int, end: int) -> tuple[float, int]:
    """Return the level before the next change, and the slots until a policy has recovered.

    Both ends are slots. It has not recovered if the answer is `end - change`.
    """
    mean = rewards.mean(axis=0)
    level = mean[(end - LEVEL) // WINDOW : end // WINDOW].mean()
    first, last = change // WINDOW, end // WINDOW
    reached = mean[first:last] >= SHARE * level
    for j in range(len(reached) - IN_A_ROW + 1):
        if reached[j : j + IN_A_ROW].all():
            return float(level), j * WINDOW
    return float(level), end - change


def share_text(own: Floats, station: Floats) -> str:
    """Return a share in per cent with half its 95% interval over replications."""
    found = interval(100 * own / station)
    return f"{found.mean:.1f}% ±{found.high - found.mean:.1f}"


def policies() -> list[str]:
    return [name for name, policy in DECENTRALISED.items() if policy.source is None]


def study(compared: list[str]) -> tuple[str, dict[tuple[str, str], Floats]]:
    """Return the table, and the rewards by window of each scenario and policy."""
    horizon, changes = 4 * PHASE, (0, PHASE, 3 * PHASE, 4 * PHASE)
    rewards: dict[tuple[str, str], Floats] = {}
    lines = [
        "| policy | scenario | 4 users from the start: share of a base station | 5th arrives: share | recovered after,"
        " slots | 5th leaves: share | recovered after, slots | random stays: share |",
        "|---" * 8 + "|",
    ]
    for name in SCENARIOS:
        scenario = arriving(name)
        random_stays = world(name, mean_stay=5_000.0, mean_absence=1_250.0)
        stations = windows(scenario, STATION, horizon), windows(random_stays, STATION, horizon).mean(axis=1)
        rewards[name, STATION] = stations[0]
        for policy in compared:
            own = windows(scenario, policy, horizon)
            rewards[name, policy] = own
            cells = []
            for change, end in itertools.pairwise(changes):
                part = slice((end - LEVEL) // WINDOW, end // WINDOW)
                cells.append(share_text(own[:, part].mean(axis=1), stations[0][:, part].mean(axis=1)))
                if change:
                    _, after = recovery(own, change, end)
                    cells.append(f"{after:,}" if after < end - change else "not")
            stays = windows(random_stays, policy, horizon).mean(axis=1)
            cells.append(share_text(stays, stations[1]))
            lines.append(f"| {policy} | {name} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines) + "\n", rewards


def draw(rewards: dict[tuple[str, str], Floats], path: Path) -> None:
    """Draw the reward per slot over time, averaged over eight windows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.2), dpi=150, layout="constrained")
    for i, name in enumerate(SCENARIOS):
        axes = figure.add_subplot(len(SCENARIOS), 1, i + 1)
        for policy, style in zip((STATION, *SHOWN), ("-", "-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))), strict=True):
            if (name, policy) in rewards:
                mean = rewards[name, policy].mean(axis=0)
                smooth = mean[: len(mean) // 4 * 4].reshape(-1, 4).mean(axis=1)
                slots = (np.arange(len(smooth)) + 0.5) * 4 * WINDOW / 1000
                label = f"{policy}, base station" if policy == STATION else policy
                axes.plot(slots, smooth, linestyle=style, linewidth=1.3, label=label)
        for at, text in ((PHASE, "fifth user arrives"), (3 * PHASE, "it leaves")):
            axes.axvline(at / 1000, color="0.6", linewidth=0.8)
            axes.annotate(
                text, (at / 1000, 1.0), xycoords=("data", "axes fraction"), fontsize=8, ha="center", va="bottom"
            )
        axes.set_ylabel("reward per slot, all users")
        axes.set_title(name, fontsize=10, loc="left")
        axes.grid(True, color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("slot, thousands")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize=8, ncols=len(labels), frameon=False)
    figure.savefig(path)


def main() -> None:
    global PHASE, LEVEL, REPLICATIONS, SCENARIOS
    quick = sys.argv[1:] == ["--quick"]
    compared = policies()
    if quick:
        PHASE, LEVEL, REPLICATIONS, SCENARIOS = 1_000, 500, 2, ("S4",)
        compared = ["lbt-sticky", "mctopm"]
    text, rewards = study(compared)
    if quick:
        print(text)
    else:
        (HERE / "users_churn.md").write_text(text)
        draw(rewards, HERE.parent / "docs/figures/users-churn.png")


if __name__ == "__main__":
    main()
