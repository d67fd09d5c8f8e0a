"""The commands and code blocks of the README and of the documentation run as they are written."""

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import idleband as ib
from idleband.cli import main
from idleband.cli.parser import SHORTLIST, build_parser
from idleband.scenario.table import from_table
from idleband.service.client import Client
from tests.conftest import ROOT
from tests.trace import recordings

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


@contextlib.contextmanager
def printed_in(folder: Path) -> Iterator[io.StringIO]:
    """Run what follows in a folder, as a user's session would; yield what it prints.

    Everything on the pages runs in this process, because a new one takes a second to import the package.
    """
    output = io.StringIO()
    with warnings.catch_warnings(), contextlib.chdir(folder), contextlib.redirect_stdout(output):
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ResourceWarning)  # as outside of tests
        yield output


# --- Python ----------------------------------------------------------------------------------------------------------


def run_blocks(page: Path, folder: Path) -> list[str]:
    """Run the Python blocks of a page, each as a script. Return what each printed.

    A block of text right after a block of Python is its output."""
    printed = []
    for i, block in enumerate(blocks(page, "python")):
        file = folder / f"block{i}.py"
        file.write_text(block)
        with printed_in(folder) as output:
            runpy.run_path(str(file), run_name="__main__")
        printed.append(output.getvalue())
    return printed


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


def run_commands(lines: list[str], folder: Path) -> list[str]:
    """Run commands, which must succeed. Return what each printed."""
    printed = []
    for line in lines:
        with printed_in(folder) as output, pytest.raises(SystemExit) as end:
            main(shlex.split(line)[1:])
        assert not end.value.code, line
        printed.append(output.getvalue())
    return printed


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=page_id)
def test_commands_on_pages_exist(page: Path) -> None:
    for line in commands(page):
        if line != "idleband --version":
            build_parser().parse_args(shlex.split(line)[1:])


@pytest.mark.slow
def test_commands_of_the_readme(tmp_path: Path) -> None:
    """With a recording, on which two policies are replayed instead of all."""
    lines = commands(README)
    assert len(lines) >= 4
    recordings.rtl_power(tmp_path / "sweep.csv", recordings.powers(T=100), second=10)
    few = " --policy mp-ucb --policy mp-random"
    shorter = [line + few if line.startswith("idleband advise ") else line for line in lines]
    printed = dict(zip(lines, run_commands(shorter, tmp_path), strict=True))
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
    (output,) = run_commands([f"{command.removeprefix('.venv/bin/')} --horizon 2e4 --replications 3"], tmp_path)
    figure = re.search(r"figure:\s+(\S+)", output)
    assert figure is not None
    assert (tmp_path / figure[1]).read_bytes().startswith(b"\x89PNG")
    for name in ("S1", "S4"):
        assert f"{name}, perturbation linear: 3 replications of 20,000 slots" in output
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
    clients = blocks(page, "py")
    with serving(f"{start.strip()} --port 0", tmp_path) as url:
        port = url.rpartition(":")[2]
        if shutil.which("curl") is None:  # which creates the second allocator
            clients = clients[:1]
        else:
            failing = requests.replace("8765", port).replace("curl ", "curl -sS --fail-with-body ")
            done = shell(f"set -e\n{failing}", tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            assert '"learned":[0]' in done.stdout
            with Client(url, "second") as second:
                assert second.status()["settings"]["parameters"]["beta"] == 0.5
        printed = ""
        for client in clients:
            (tmp_path / "client.py").write_text(client.replace("8765", port))
            done = shell(f"{shlex.quote(sys.executable)} client.py", tmp_path)
            assert done.returncode == 0, done.stderr
            printed += done.stdout
        assert printed.startswith("Slot ")
        assert len(clients) == 1 or printed.endswith("\n104 1\n")


# --- files and links -------------------------------------------------------------------------------------------------


def test_toml_blocks() -> None:
    found = [tomllib.loads(block) for page in PAGES for block in blocks(page, "toml")]
    assert len(found) >= 6
    for data in found:
        from_table(data["scenario"])


@pytest.mark.slow
def test_examples_run(tmp_path: Path) -> None:
    folder = with_examples(tmp_path)
    for script in ("learning_theta", "own_model", "base_station"):
        with printed_in(folder):
            runpy.run_path(f"examples/{script}.py", run_name="__main__")
    run_commands(["idleband run examples/two_bands.toml --horizon 2000"], folder)


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
