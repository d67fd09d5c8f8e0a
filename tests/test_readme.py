"""The commands and code blocks of the README and of the documentation run as they are written."""

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
from idleband.cli.parser import SHORTLIST, build_parser
from idleband.scenario.table import from_table
from idleband.service.client import Client
from tests.conftest import ROOT

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


def commands(page: Path) -> list[str]:
    """The lines of shell blocks that call idleband, without comments."""
    return [
        shlex.join(shlex.split(line, comments=True))
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if line.startswith("idleband ")
    ]


def with_examples(folder: Path) -> Path:
    """A folder that contains nothing but the examples."""
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )


def python(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip


# --- Python ----------------------------------------------------------------------------------------------------------

RUN_FILES = """
import runpy, sys
for file in sys.argv[1:]:
    runpy.run_path(file, run_name="__main__")
    print("end of", file)
"""


def run_blocks(page: Path, folder: Path) -> list[str]:
    """Run the Python blocks of a page, each as a script, in one process. Return what each printed.

    A block of text right after a block of Python is its output."""
    files = []
    for i, block in enumerate(blocks(page, "python")):
        (folder / f"block{i}.py").write_text(block)
        files.append(f"block{i}.py")
    done = python(RUN_FILES, folder, *files)
    assert done.returncode == 0, (page.name, done.stderr)
    return re.split(r"end of block\d+\.py\n", done.stdout)[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=page_id)
def test_python_blocks(page: Path, tmp_path: Path) -> None:
    printed = run_blocks(page, tmp_path)
    shown = re.findall(r"```python\n.*?```(?:\n\n```text\n(.*?)```)?", page.read_text(), re.DOTALL)
    for output, expected in zip(printed, shown, strict=True):
        if expected:
            assert [line.rstrip() for line in output.splitlines()] == expected.splitlines()
    if page == README:
        assert any(shown)
        assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")


# --- commands --------------------------------------------------------------------------------------------------------

RUN_COMMANDS = """
import shlex, sys
from idleband.cli import main
for line in sys.argv[1:]:
    try:
        main(shlex.split(line)[1:])
    except SystemExit as end:
        if end.code:
            sys.exit(f"{line}: status {end.code}")
    print("end of", line)
"""


def run_commands(lines: list[str], folder: Path) -> list[str]:
    """Run commands in one process. Return what each printed."""
    done = python(RUN_COMMANDS, folder, *lines)
    assert done.returncode == 0, done.stderr
    return re.split(r"end of idleband .*\n", done.stdout)[:-1]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=page_id)
def test_commands_on_pages_exist(page: Path) -> None:
    for line in commands(page):
        if line != "idleband --version":
            build_parser().parse_args(shlex.split(line)[1:])


@pytest.mark.slow
def test_commands_of_the_readme(tmp_path: Path) -> None:
    lines = commands(README)
    assert len(lines) >= 3
    printed = dict(zip(lines, run_commands(lines, tmp_path), strict=True))
    assert printed["idleband cost S4 ch1,ch2,ch3,ch4,ch5"].strip() == "0.155"


@pytest.mark.slow
def test_commands_of_the_tutorial(tmp_path: Path) -> None:
    """With the files that the tutorial asks for."""
    page = ROOT / "docs/tutorial.md"
    (scenario,) = blocks(page, "toml")
    (policy,) = (block for block in blocks(page, "python") if "@ib.register" in block)
    (tmp_path / "bands.toml").write_text(scenario)
    (tmp_path / "greedy.py").write_text(policy)
    lines = commands(page)
    assert any("greedy.py:greedy" in line for line in lines)
    run_commands(lines, tmp_path)
    assert ib.load(tmp_path / "results/bands").labels == ["mp-ucb", "mp-lucb beta=0.1", "mp-lucb"]
    assert ib.load(tmp_path / "results/greedy").labels == ["greedy", "mp-ucb"]


@pytest.mark.slow
def test_commands_of_the_guide_to_comparisons(tmp_path: Path) -> None:
    run_commands(commands(ROOT / "docs/how-to/compare-policies.md"), tmp_path)
    assert "rca-m" in ib.load(tmp_path / "results/mine").labels


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=page_id)
def test_console_examples(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "console"):
        command, _, expected = block.partition("\n")
        done = shell(command.removeprefix("$ "), tmp_path)
        assert done.stdout + done.stderr == expected


def test_the_two_commands_stand_first() -> None:
    first = blocks(README, "sh")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make reproduce", "make test"]


def planned(target: str, *settings: str) -> list[str]:
    """The commands that make would run for a target."""
    done = subprocess.run(["make", "-n", target, *settings], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_make_reproduce_is_the_command_of_the_docs() -> None:
    """tests/paper runs it at a smaller size."""
    assert ".venv/bin/idleband reproduce --out results/paper" in planned("reproduce")


def test_make_docs_treats_warnings_as_errors() -> None:
    assert ".venv/bin/python -m sphinx -b html -W --keep-going -q docs site" in planned("docs")


@pytest.mark.slow
def test_make_demo_ranks_policies_and_prints_the_path_of_the_figure(tmp_path: Path) -> None:
    """The command of `make demo`, at a smaller size."""
    (command,) = (line for line in planned("demo") if "idleband compare" in line)
    assert command == ".venv/bin/idleband compare S1 S4 --out results/demo"
    done = shell(f"{command.removeprefix('.venv/bin/')} --horizon 2e4 --replications 3", tmp_path)
    assert done.returncode == 0, done.stderr
    figure = re.search(r"figure:\s+(\S+)", done.stdout)
    assert figure is not None
    assert (tmp_path / figure[1]).read_bytes().startswith(b"\x89PNG")
    for name in ("S1", "S4"):
        assert f"{name}, perturbation linear: 3 replications of 20,000 slots" in done.stdout
        table = ib.load(tmp_path / "results/demo" / name).table().reward
        assert sorted(table.index) == sorted(SHORTLIST)
        # Policies with beliefs earn more than those without, and nearly as much as the oracle.
        assert table["oracle-belief"] > 0.999 * table["mp-belief-lucb"] > table["mp-belief"] > table["mp-lucb"]
        assert table["mp-lucb"] > table["mp-ucb"]
        assert table["mp-belief-lucb"] > 0.99 * table["oracle-belief"]


# --- the service -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(command: str, folder: Path) -> Iterator[str]:
    """Run a service and yield its address."""
    words = shlex.split(command)
    with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0


@pytest.mark.slow
def test_make_serve_starts_a_service_with_a_simulated_station(tmp_path: Path) -> None:
    """The command of `make serve`, word for word, on a free port: channels are assigned and reported."""
    (command,) = (line for line in planned("serve", "PORT=0") if "idleband serve" in line)
    with serving(command.removeprefix(".venv/bin/"), tmp_path) as url, Client(url) as client:
        deadline = time.monotonic() + 600  # long enough for a busy machine
        while client.status()["counts"]["reported"] < 50:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.mark.slow
def test_requests_of_the_guide_to_the_service(tmp_path: Path) -> None:
    page = ROOT / "docs/how-to/run-the-service.md"
    start, requests, *_ = blocks(page, "sh")
    (client,) = blocks(page, "py")
    with serving(f"{start.strip()} --port 0", tmp_path) as url:
        port = url.rpartition(":")[2]
        if shutil.which("curl"):
            failing = requests.replace("8765", port).replace("curl ", "curl -sS --fail-with-body ")
            done = shell(f"set -e\n{failing}", tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            assert '"learned":[0]' in done.stdout
            with Client(url, "second") as second:
                assert second.status()["settings"]["parameters"]["beta"] == 0.5
        (tmp_path / "client.py").write_text(client.replace("8765", port))
        done = shell(f"{shlex.quote(sys.executable)} client.py", tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Slot ")


# --- files and links -------------------------------------------------------------------------------------------------


def test_toml_blocks() -> None:
    found = [tomllib.loads(block) for page in PAGES for block in blocks(page, "toml")]
    assert len(found) >= 6
    for data in found:
        from_table(data["scenario"])


@pytest.mark.slow
def test_examples_run(tmp_path: Path) -> None:
    folder = with_examples(tmp_path)
    scripts = ["examples/learning_theta.py", "examples/own_model.py", "examples/base_station.py"]
    in_one_process = f"import runpy; [runpy.run_path(script, run_name='__main__') for script in {scripts}]"
    for command in (f'python -c "{in_one_process}"', "idleband run examples/two_bands.toml --horizon 2000"):
        done = shell(command, folder)
        assert done.returncode == 0, done.stderr


def test_links_and_includes_lead_to_files() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        text = page.read_text()
        for target in [*re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text), *re.findall(r"{include} (\S+)", text)]:
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = set()
    for page in PAGES:
        for tree in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    assert listed == {page.resolve() for page in PAGES} - {README, ROOT / "docs/index.md"}


def test_every_public_name_is_in_the_reference() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/reference/api").glob("*.md"))
    directives = re.findall(r"\.\. (?:auto)?\w+:: (?:idleband\.)?(\S+)", pages)
    members = re.findall(r":members: (.+)", pages)
    documented = {*directives, *(name for line in members for name in line.split(", "))}
    assert set(ib.__all__) <= documented
