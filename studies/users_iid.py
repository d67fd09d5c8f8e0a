"""Compare the regret of decentralised policies with published figures, on independent channels.

    python studies/users_iid.py            # about 5 minutes on one core
    python studies/users_iid.py --quick    # a short run that checks that the study works; writes nothing

K = 9 channels that pay 1 with probability 0.1, 0.2, ..., 0.9, independently in every slot, and 0 otherwise; M = 3 and 6
users who observe the state of their channel and collisions; T = 10^4 slots, 100 replications, in each of which the
channels are in another order, because the order matters to policies that agree on channels by their number. The regret
is that of the table of means (`regret("table")`): T times the sum of the M largest means minus the means of the
channels that users played without a collision.

Published figures are means with standard deviations over a number of runs. A row agrees if the difference is at most
four standard errors of it.

Writes users_iid.md and users_iid.csv beside this file.
"""

import csv
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

import idleband as ib

HERE = Path(__file__).parent
MEANS = [(k + 1) / 10 for k in range(9)]
HORIZON, REPLICATIONS, SEED, USERS = 10_000, 100, 29, (3, 6)

ALT = "Besson and Kaufmann, ALT 2018"
THESIS = "Besson's thesis, 2019"
SIC = "authors' code (eboursier/sic-mmab), 60 runs"
DPE = "authors' code (rssalessio/DPE), 60 runs"


class Published(NamedTuple):
    """A figure of others: mean regret, and its standard error from a standard deviation and a number of runs."""

    mean: float
    error: float
    source: str


def runs(mean: float, deviation: float, count: int, source: str) -> Published:
    return Published(mean, deviation / math.sqrt(count), source)


# Policy, number of users, and what others have found: 1000 runs for ALT 2018, 100 for the thesis.
PUBLISHED: dict[tuple[str, int], tuple[Published, ...]] = {
    ("mp-klucb:clock=plays", 3): (runs(94, 17, 1000, ALT), runs(92, 20, 100, THESIS)),
    ("mp-klucb:clock=plays", 6): (runs(68, 18, 1000, ALT), runs(70, 16, 100, THESIS)),
    ("selfish-klucb", 3): (runs(243, 31, 1000, ALT), runs(250, 34, 100, THESIS)),
    ("selfish-klucb", 6): (runs(743, 113, 1000, ALT), runs(735, 85, 100, THESIS)),
    ("rho-rand", 3): (runs(394, 96, 1000, ALT), runs(417, 103, 100, THESIS)),
    ("rho-rand", 6): (runs(2385, 412, 1000, ALT), runs(2481, 449, 100, THESIS)),
    ("randtopm", 3): (runs(258, 43, 1000, ALT), runs(268, 45, 100, THESIS)),
    ("randtopm", 6): (runs(902, 234, 1000, ALT), runs(941, 217, 100, THESIS)),
    ("mctopm", 3): (runs(248, 40, 1000, ALT), runs(244, 39, 100, THESIS)),
    ("mctopm", 6): (runs(410, 54, 1000, ALT), runs(401, 55, 100, THESIS)),
    ("mctopm:collision_first=true", 3): (runs(248, 40, 1000, ALT), runs(244, 39, 100, THESIS)),
    ("mctopm:collision_first=true", 6): (runs(410, 54, 1000, ALT), runs(401, 55, 100, THESIS)),
    ("musical-chairs:learning=1000", 3): (runs(1410, 641, 100, THESIS),),
    ("musical-chairs:learning=1000", 6): (runs(3130, 1583, 100, THESIS),),
    ("sic-mmab", 3): (Published(5072, 60, SIC),),
    ("sic-mmab", 6): (Published(7365, 178, SIC),),
    ("dpe1", 3): (Published(372, 27, DPE.replace("60", "20")),),
    ("dpe1", 6): (Published(573, 24, DPE),),
}
POLICIES = (
    "user-random", "lbt-random", "lbt-sticky", "selfish-klucb", "rho-rand", "randtopm", "mctopm",
    "mctopm:collision_first=true", "musical-chairs:learning=1000", "sic-mmab", "dpe1", "game-of-thrones", "dsee-users",
)  # fmt: skip
CENTRALISED = ("mp-klucb", "mp-klucb:clock=plays")
NOTES = """\
Regret is the mean of 100 replications +- its standard error; published figures likewise. The figures of Besson's thesis
for musical chairs stand in comments of its source. The difference is in standard errors of the difference.

What does not agree, and why:

- `mctopm` with M = 6. As printed (algorithm 2 of Besson and Kaufmann), a user without a seat whose channel has left the
  M best moves to one of them with a smaller index before. In the authors' code (SMPyBandits) a collision has moved it
  to any of the M best by then. With `collision_first=true`, which does the same, the figures agree.
- `dpe1` with M = 6. The start phase here costs 45 less regret (52 instead of 97 until all users have a rank), and the
  mean of the worst of the best channels is computed every M slots, as in the paper, while the code computes it after a
  change only. A variant that computes it like the code has a regret of 470 +- 25 in 60 runs; with the longer start that
  is 1.7 standard errors of the difference below the code.

`sic-mmab`, `dpe1` and `dsee-users` agree on channels by their number: in increasing order of the means the regret of
`sic-mmab` with M = 6 is 10,050 +- 130, in decreasing order 4170 +- 40 (40 replications each). The authors' code
shuffles the channels, as this study does.

`game-of-thrones` is for unequal users. Here all users want the same channels, and with M = 6 it earns less than
random channels.
"""
HEAD = ("policy", "M", "regret", "colliding users", "published", "source", "difference", "agrees")


def band(users: int, replication: int) -> ib.Scenario:
    """Return the channels of a replication, in another order in each."""
    means = np.random.default_rng([SEED, replication]).permutation(MEANS)
    return ib.scenario(
        transition=[[[1 - mean, mean]] * 2 for mean in means],
        rewards=[0.0, 1.0],
        reward="additive",
        perturbation="none",
        context={"dimension": 1},
        users={"count": users, "coordination": "none"},
    )


def measure(policy: str, users: int, horizon: int, replications: int) -> tuple[float, float, float]:
    """Return the mean regret, its standard error, and the mean number of colliding users."""
    found, collisions = [], []
    for i in range(replications):
        result = ib.simulate(band(users, i), policy, horizon=horizon, replications=1, seed=SEED + i, threads=1)
        found.append(float(result.regret("table")[0, -1]))
        collisions.append(float(result.curves["user_collisions"][0, -1]) if policy not in CENTRALISED else 0.0)
    return float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(replications)), float(np.mean(collisions))


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    horizon, replications = (300, 2) if quick else (HORIZON, REPLICATIONS)
    rows = []
    for users in USERS:
        for policy in (*CENTRALISED, *POLICIES):
            mean, error, collisions = measure(policy, users, horizon, replications)
            own = (policy, str(users), f"{mean:.0f} +- {error:.0f}", f"{collisions:.0f}")
            for known in PUBLISHED.get((policy, users), ()):
                units = (mean - known.mean) / math.hypot(error, known.error)
                published = f"{known.mean:.0f} +- {known.error:.0f}"
                rows.append((*own, published, known.source, f"{units:+.1f} s.e.", "yes" if abs(units) <= 4 else "no"))
            if (policy, users) not in PUBLISHED:
                rows.append((*own, "-", "-", "-", "-"))
    text = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD), *(f"| {' | '.join(row)} |" for row in rows)]
    print("\n".join(text))
    if not quick:
        (HERE / "users_iid.md").write_text("\n".join(text) + "\n\n" + NOTES)
        with (HERE / "users_iid.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([HEAD, *rows])


if __name__ == "__main__":
    main()
