"""Replay every policy that needs no contexts on recordings of spectrum, with M = 5, 10 and 20 users.

    python studies/recordings.py NAME=TRACE ...      # trace files of `idleband trace import`; a minute per recording

The recordings themselves are not part of the project; docs/explanation/recordings.md says where they come from and how
they were imported. Shares are of the plays of a genie, min(M, idle channels) per slot, as means over the starting
points. All policies have their default parameters: nothing was tuned here, for any policy. The distance to mp-adaptive
has an interval along the recording (see `Study.difference`).

Writes recordings.md beside this file.
"""

import sys
from pathlib import Path

import numpy as np
from idle_prediction import log_loss

import idleband as ib
from idleband.advice.advise import PREFERRED, candidates

OUT = Path(__file__).with_suffix(".md")
USERS = (5, 10, 20)
REPLICATIONS = 20  # starting points
PREDICTORS = ("mp-adaptive", "mp-belief")  # whose predictions are compared: the mixture, and the two-state belief
LOSS_USERS, STARTS = 10, 5
SEED = 5


def share_of_genie(result: ib.Result, trace: ib.Trace) -> float:
    """Return the plays of idle channels as a share of the genie's."""
    genie = np.minimum(trace.idle.sum(axis=1), result.scenario.users).sum()
    plays = result.scenario.users * result.horizon
    return float((plays - result.curves["collisions"][:, -1]).mean()) / float(genie)


def fixed_sets(trace: ib.Trace, users: int, block: int) -> tuple[float, float]:
    """Return the shares of the best fixed set in hindsight, over the whole recording and per block."""
    genie = np.minimum(trace.idle.sum(axis=1), users).sum()
    best = np.sort(trace.idle.sum(axis=0))[-users:].sum()
    starts = range(0, trace.T, block)
    blocks = sum(np.sort(trace.idle[i : i + block].sum(axis=0))[-users:].sum() for i in starts)
    return float(best / genie), float(blocks / genie)


def rows_of(name: str, trace: ib.Trace) -> list[str]:
    """Return the lines of the table of one recording."""
    studies = {}
    for M in USERS:
        if M < trace.K:
            scenario = ib.scenario(trace, users=M)
            policies = candidates()
            studies[M] = ib.compare(scenario, policies, horizon=trace.T, replications=REPLICATIONS, seed=SEED)
            print(f"{name}, M = {M}: {len(policies)} policies", flush=True)
    shares = {M: {one.label: share_of_genie(one, trace) for one in study.results} for M, study in studies.items()}
    labels = sorted(next(iter(shares.values())), key=lambda label: -sum(found[label] for found in shares.values()))
    busy = f"busy {trace.occupancy.min():.0%} to {trace.occupancy.max():.0%} of the time"
    lines = [
        f"**{name}**: {trace.K} channels, {trace.T:,} slots of {trace.slot_s:g} s, {busy}",
        "",
        "| policy | " + " | ".join(f"M = {M}" for M in studies) + " |",
        "|---" * (len(studies) + 1) + "|",
    ]
    for label in labels:
        cells = []
        for M, study in studies.items():
            cell = f"{shares[M][label]:.4f}"
            if label != PREFERRED:
                difference = study.difference(label, PREFERRED, per_slot=True)
                cell += " +" if difference.low > 0.0 else " -" if difference.high < 0.0 else ""
            cells.append(cell)
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    for i, what in enumerate(("best fixed set in hindsight", "best fixed set per block")):
        found = [f"{fixed_sets(trace, M, study.scenario.recording.block)[i]:.4f}" for M, study in studies.items()]  # type: ignore[union-attr]
        lines.append(f"| *{what}* | " + " | ".join(found) + " |")
    losses = ", ".join(f"{loss_of(label, trace):.4f} for {label}" for label in PREDICTORS)
    lines += ["", f"Log-loss of P(idle) on played channels, M = {LOSS_USERS}, nats per play: {losses}"]
    return lines


def loss_of(label: str, trace: ib.Trace) -> float:
    """Return the mean log-loss of P(idle) on played channels over several starting points."""
    states = np.ascontiguousarray(trace.idle.astype(np.int64))
    starts = [i * trace.T // STARTS for i in range(STARTS)]
    return float(np.mean([log_loss(label, states, LOSS_USERS, start, seed) for seed, start in enumerate(starts)]))


def main() -> None:
    lines: list[str] = []
    for argument in sys.argv[1:]:
        name, _, file = argument.partition("=")
        lines += [*rows_of(name, ib.Trace.load(file)), ""]
    if not lines:
        sys.exit(__doc__)
    lines.append(
        f"`+` and `-`: clearly more or less reward than {PREFERRED}: the 95% interval of the difference excludes 0."
    )
    OUT.write_text("\n".join(lines) + "\n")
    print(OUT)


if __name__ == "__main__":
    main()
