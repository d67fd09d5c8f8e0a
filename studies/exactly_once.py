"""Run the state machine of tests/service/test_journaled_allocator.py over thousands of random sequences.

    python studies/exactly_once.py [SEQUENCES]    3000 by default, about 20 minutes; writes studies/exactly_once.md

Each sequence has up to 40 steps in random order: decisions, reports, repeated and contradictory requests, vacated
channels, resets, commits, kills, restarts and full disks. The policy is one of four, or one that misses some deadlines.
After every commit the state is compared, byte for byte, with that of an allocator that applied every acknowledged event
once and never stopped.
"""

import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.service.test_journaled_allocator import ExactlyOnce  # noqa: E402

counts: Counter[str] = Counter()


class Counted(ExactlyOnce):
    """The same state machine, with a count of the sequences."""

    def __init__(self) -> None:
        super().__init__()
        counts["sequences"] += 1


def main(sequences: int) -> None:
    began = time.monotonic()
    run_state_machine_as_test(
        Counted,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    minutes = (time.monotonic() - began) / 60
    text = (
        f"# Exactly once\n\n`python studies/exactly_once.py {sequences}`: {counts['sequences']:,} random sequences of"
        f" up to 40 steps, {minutes:.0f} minutes, no difference found.\n"
    )
    if sequences >= 3000:
        (HERE / "exactly_once.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
