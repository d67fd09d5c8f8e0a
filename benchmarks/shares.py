"""The time of every loop as a share of a yardstick's, measured in turn on the same machine at the same time.

python benchmarks/shares.py COMMAND...

The yardstick is a command that prints lines with "X us per slot"; the last such line of a run counts, and the best of
all runs. Best times on both sides: other work on the machine can only make a loop slower.
"""

import re
import subprocess
import sys

from idleband.simulation.bench import bench

ROUNDS = 5


def yardstick(command: list[str]) -> float:
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"([0-9.]+) us per slot", output)[-1])


def main(command: list[str]) -> None:
    unit, best = float("inf"), dict[str, float]()
    for _ in range(ROUNDS):
        unit = min(unit, yardstick(command))
        for row in bench(rounds=2)["loops"]:
            best[row["loop"]] = min(best.get(row["loop"], float("inf")), row["microseconds"])
    print(f"yardstick: {unit:.3f} us per slot")
    for name, time in best.items():
        print(f"{name:16s} {time:.3f} us  share {time / unit:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
