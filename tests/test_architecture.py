"""docs/architecture.md names files and functions that exist, and all layers of the package."""

import ast
import re

import pytest

from tests.conftest import ROOT
from tests.test_paper_map import names_in, references

PAGE = (ROOT / "docs/architecture.md").read_text()
PACKAGE = ROOT / "src/idleband"
WALKS = {
    title: re.findall(r"^\d+\. (.*?)(?=^\d+\. |\Z)", text, re.DOTALL | re.MULTILINE)
    for title, text in re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
}


def steps(walk: str) -> list[tuple[str, list[str]]]:
    """The file and the functions of each step, which come before the dash."""
    found = []
    for step in WALKS[walk]:
        (reference,) = references(step.partition(" - ")[0])
        found.append(reference)
    return found


def test_the_walks_are_complete() -> None:
    assert list(WALKS) == [
        "`idleband run`",
        "`idleband run --workers`",
        "`idleband run --device cuda`",
        "`ib.simulate`",
        "A run without a base station",
        "`idleband reproduce`",
        "HTTP decide",
        "HTTP report",
        "A request for an allocator of another process",
        "Takeover of the allocators of a process that ended",
        "Restart from the journal",
        "`idleband evaluate`",
        "Snapshot while requests are served",
    ]


@pytest.mark.parametrize("walk", WALKS)
def test_files_and_functions_of_a_walk_exist(walk: str) -> None:
    found = steps(walk)
    assert len(found) >= 4
    for file, names in found:
        assert names, file
        assert set(names) <= names_in(PACKAGE / file), file


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_does_not_return_to_a_file(walk: str) -> None:
    files = [file for file, _ in steps(walk)]
    assert len(set(files)) == len(files)


def test_every_module_has_a_summary() -> None:
    """The list of modules on the page is made from their docstrings when the site is built."""
    assert "<!-- generated: modules -->" in PAGE
    for path in PACKAGE.rglob("*.py"):
        if not path.name.startswith("__"):
            assert ast.get_docstring(ast.parse(path.read_text())), path


def test_every_layer_is_listed() -> None:
    layers = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert {f"{name}/" for name in layers} <= set(re.findall(r"`(\w+/)`", PAGE.partition("## Walks")[0]))
    source = (ROOT / "docs/_extensions/generated.py").read_text()  # importing it needs Sphinx
    (listed,) = re.findall(r"^LAYERS = (\(.*?^\))", source, re.DOTALL | re.MULTILINE)
    assert layers == {name for name in ast.literal_eval(listed) if name}
