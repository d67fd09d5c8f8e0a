"""The studies that are scenarios and policies alone run, at a small size, and write nothing."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("study", ["optimum", "robustness", "users_churn", "users_iid", "users_restless", "worlds"])
def test_study_runs(study: str) -> None:
    before = (ROOT / f"studies/{study}.md").read_bytes()
    command = [sys.executable, f"studies/{study}.py", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) >= 3
    assert len({row.count("|") for row in rows}) == 1
    assert (ROOT / f"studies/{study}.md").read_bytes() == before
    assert rows[0] == before.decode().splitlines()[0]  # the columns of the table on the page
