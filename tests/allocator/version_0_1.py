"""A journal written by version 0.1, and the slots that version 0.1 went through after it was written.

The journal holds three allocators, `main`, `lucb` and `rca`, with snapshots of format 1 and later events.
"""

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parents[1] / "data" / "version-0.1"
NAMES = ("main", "lucb", "rca")


class RecordedSlot(NamedTuple):
    """One slot of one allocator: the arguments of `decide` and `report`, and what version 0.1 decided."""

    request_id: str
    contexts: list[list[float]]
    users: int | None
    states: list[int]
    perturbations: list[float]
    reported: bool
    measured: bool  # whether the report contained perturbations
    channels: tuple[int, ...]
    by: str
    slot: int

    def feedback(self) -> tuple[dict[int, float], dict[int, int], dict[int, float] | None]:
        """Return rewards, states and perturbations of the assigned channels."""
        good = {k: bool(self.states[k]) and self.perturbations[k] < 1 for k in self.channels}
        return (
            {k: 1.0 if good[k] else 0.1 for k in self.channels},
            {k: self.states[k] for k in self.channels},
            {k: self.perturbations[k] for k in self.channels} if self.measured else None,
        )


def unpack_journal(folder: Path) -> Path:
    """Write the journal into a folder, as the service finds it there."""
    path = folder / "journal.sqlite"
    path.write_bytes(gzip.decompress((DATA / "journal.sqlite.gz").read_bytes()))
    return path


def stored_snapshot(folder: Path, name: str) -> bytes:
    """Return the snapshot of an allocator from the journal."""
    question = "SELECT state FROM snapshots JOIN allocators ON allocator = number WHERE name = ?"
    with closing(sqlite3.connect(unpack_journal(folder))) as connection:
        (state,) = connection.execute(question, (name,)).fetchone()
    return bytes(state)


def recorded_slots() -> Iterator[tuple[str, RecordedSlot]]:
    """Yield the slots after the journal in order, each with the name of its allocator."""
    later: list[dict[str, Any]] = json.loads((DATA / "journal_continued.json").read_text())["later"]
    for one in later:
        i = one["i"]
        for name in NAMES:
            decided = one["decisions"][name]
            yield (
                name,
                RecordedSlot(
                    f"{name}-{i}", one["contexts"], 1 if i % 9 == 0 else None, one["states"], one["n"], i % 7 != 3,
                    name == "main", tuple(decided["channels"]), decided["by"], decided["slot"],
                ),
            )  # fmt: skip
