"""Write which verdicts of the reproduction differ from those of the previous report, and why.

    python studies/verdict_changes.py                # from results/paper
    python studies/verdict_changes.py FOLDER

The previous verdicts are in claims-before.csv, taken from docs/explanation/claims.md as it was before noise, the
additive reward, a theta per channel and the tuning of gamma were added. Verdicts under these new readings are compared
with those of the first reading. Writes verdict-changes.md beside this file.
"""

import csv
import sys
from pathlib import Path

from idleband.paper.changes import Change, changes
from idleband.paper.claims import judge
from idleband.paper.stored import StoredStudies

HERE = Path(__file__).parent
HEAD = ("claim", "reading", "policy", "before", "now", "why")


def row(change: Change) -> list[str]:
    one = change.judgement
    return [change.column.title, one.reading.title, one.policy, change.before, one.outcome, change.why]


def main(folder: Path) -> None:
    with (HERE / "claims-before.csv").open(newline="") as file:
        before = list(csv.DictReader(file))
    stored = StoredStudies(folder)
    found = changes(before, judge(stored), stored.choices, stored.size)
    rows = [HEAD, ["---"] * len(HEAD), *map(row, found)]
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in rows) + "\n"
    (HERE / "verdict-changes.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "results/paper")
