"""The commands and code blocks of the README and the docs, run as they stand."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import idleband as ib
from idleband.cli import SHORTLIST
from idleband.scenario.build import from_table
from idleband.service.client import Client
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def workplace(folder: Path) -> Path:
    """A folder in which the examples lie as in the project, and nothing else does."""
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )


def test_the_two_commands_stand_first() -> None:
    first = blocks(PAGES[0], "sh")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make reproduce", "make test"]


def test_make_reproduce_is_the_command_of_the_docs() -> None:
    """What `make reproduce` runs after its set-up; tests/paper runs it at a smaller size."""
    plan = subprocess.run(["make", "-n", "reproduce"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ".venv/bin/idleband reproduce --out results/paper" in plan.splitlines()


def test_make_demo_ranks_policies_at_the_papers_size_and_says_where_the_figure_is(tmp_path: Path) -> None:
    """What `make demo` runs after its set-up, word for word."""
    plan = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = (line for line in plan.splitlines() if "idleband compare" in line)
    assert command == ".venv/bin/idleband compare S1 S4 --out results/demo"
    done = shell(command.removeprefix(".venv/bin/"), tmp_path)
    assert done.returncode == 0, done.stderr
    figure = re.search(r"figure:\s+(\S+)", done.stdout)
    assert figure is not None
    assert (tmp_path / figure[1]).read_bytes().startswith(b"\x89PNG")
    for name in ("S1", "S4"):
        assert f"{name}, perturbation linear: 5 replications of 100,000 slots" in done.stdout
        table = ib.load(tmp_path / "results/demo" / name).table().reward
        assert sorted(table.index) == sorted(SHORTLIST)
        # The story of this package: who remembers what it has seen earns more, and nearly all that can be earned.
        assert table["oracle-belief"] > 0.999 * table["mp-belief-lucb"] > table["mp-belief"] > table["mp-lucb"]
        assert table["mp-lucb"] > table["mp-ucb"]
        assert table["mp-belief-lucb"] > 0.99 * table["oracle-belief"]


def test_make_serve_starts_a_service_that_lives(tmp_path: Path) -> None:
    """What `make serve` runs after its set-up, word for word, on a free port: channels are handed out and reported."""
    plan = subprocess.run(
        ["make", "-n", "serve", "PORT=0"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (command,) = (line for line in plan.splitlines() if "idleband serve" in line)
    with serving(command.removeprefix(".venv/bin/"), tmp_path) as url, Client(url) as client:
        deadline = time.monotonic() + 60
        while client.snapshot()["counts"]["reported"] < 50:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@contextlib.contextmanager
def serving(command: str, folder: Path) -> Iterator[str]:
    """While a service runs, its address."""
    words = shlex.split(command)
    with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0


def test_what_the_service_is_asked_in_the_docs(tmp_path: Path) -> None:
    page = ROOT / "docs/service.md"
    start, requests = blocks(page, "sh")
    (client,) = blocks(page, "py")
    with serving(f"{start.strip()} --port 0", tmp_path) as url:
        port = url.rpartition(":")[2]
        if shutil.which("curl"):
            failing = requests.replace("8765", port).replace("curl ", "curl -sS --fail-with-body ")
            done = shell(f"set -e\n{failing}", tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            assert '"learned":[1]' in done.stdout
            with Client(url, "second") as second:
                assert second.snapshot()["settings"]["parameters"]["beta"] == 0.5
        (tmp_path / "client.py").write_text(client.replace("8765", port))
        done = shell(f"{shlex.quote(sys.executable)} client.py", tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Slot ")


def test_commands_of_the_readme(tmp_path: Path) -> None:
    lines = [line for block in blocks(PAGES[0], "sh") for line in block.splitlines() if line.startswith("idleband")]
    assert len(lines) >= 8
    place = workplace(tmp_path)
    for line in lines:
        if "bench" not in line:  # covered by tests/simulation/test_bench.py at a smaller size
            done = shell(line, place)
            assert done.returncode == 0, (line, done.stderr)
            if line.startswith("idleband cost"):
                assert done.stdout.strip() == line.rpartition(":")[2].strip()


def test_console_examples_of_the_readme(tmp_path: Path) -> None:
    for block in blocks(PAGES[0], "console"):
        command, _, expected = block.partition("\n")
        done = shell(command.removeprefix("$ "), tmp_path)
        assert done.stdout + done.stderr == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks(page: Path, tmp_path: Path) -> None:
    for i, block in enumerate(blocks(page, "python")):
        script = tmp_path / f"block{i}.py"
        script.write_text(block)
        done = shell(f"{shlex.quote(sys.executable)} {script}", tmp_path)
        assert done.returncode == 0, (page.name, done.stderr)
    if page.name == "README.md":
        assert (tmp_path / "regret.png").exists()


def test_toml_blocks() -> None:
    found = [tomllib.loads(block) for block in blocks(ROOT / "docs/scenarios.md", "toml")]
    assert len(found) == 3
    for data in found:
        from_table(data["scenario"])


def test_examples_run(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    for command in (
        "python examples/learning_theta.py",
        "python examples/own_model.py",
        "python examples/base_station.py",
        "idleband run examples/two_bands.toml --horizon 2000",
    ):
        done = shell(command, place)
        assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
