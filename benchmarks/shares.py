"""Measure the time of every loop as a share of that of a reference command, in alternation.

    python benchmarks/shares.py COMMAND...

The command prints lines with "X us per slot"; the last such line of a run and the best of all runs are used. Best times
are compared, because other work on the machine can only make a loop slower.
"""

import re
import subprocess
import sys

from idleband.experiments.spec import every_policy
from idleband.simulation.bench import bench

ROUNDS = 5


def reference_time(command: list[str]) -> float:
    """Return the microseconds per slot that the command prints."""
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"([0-9.]+) us per slot", output)[-1])


def main(command: list[str]) -> None:
    reference, best = float("inf"), dict[str, float]()
    for _ in range(ROUNDS):
        reference = min(reference, reference_time(command))
        for row in bench(every_policy(), rounds=2)["loops"]:
            best[row["loop"]] = min(best.get(row["loop"], float("inf")), row["microseconds"])
    print(f"reference: {reference:.3f} us per slot")
    for name, time in best.items():
        print(f"{name:16s} {time:.3f} us  share {time / reference:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
