"""docs/paper-map.md names files, symbols and tests that exist, and leaves out nothing that the paper numbers."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

HEADER = ["in the paper", "symbol", "here", "test"]


class Row(NamedTuple):
    paper: str
    symbol: str
    here: str
    test: str


def read_rows() -> Iterator[Row]:
    """The rows of all tables with our header; other tables are passed over."""
    ours = False
    for line in (ROOT / "docs/paper-map.md").read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells or cells == HEADER:
            ours = cells == HEADER
        elif ours and set(line) != set("|-"):
            yield Row(*cells)


ROWS = list(read_rows())


def references(cell: str) -> list[tuple[str, list[str]]]:
    """Files and the names in each; a cell is `file.py`: `name`, `name`; `file.py`: `name`."""
    found: list[tuple[str, list[str]]] = []
    for quoted in re.findall(r"`([^`]*)`", cell):
        if quoted.endswith(".py"):
            found.append((quoted, []))
        else:
            found[-1][1].append(quoted)
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a file defines: functions, classes and variables, and those of its classes as Class.name."""
    assert path.is_file(), f"{path.relative_to(ROOT)} does not exist"
    return frozenset(defined(ast.parse(path.read_text()).body))


def defined(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name
        elif isinstance(statement, ast.ClassDef):
            yield statement.name
            yield from (f"{statement.name}.{name}" for name in defined(statement.body))
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper}, {row.symbol}")
def test_files_symbols_and_tests_of_every_row_exist(row: Row) -> None:
    here, tests = references(row.here), references(row.test)
    assert here
    assert tests
    for file, names in here:
        assert set(names) <= names_in(ROOT / "src/idleband" / file), file
    for file, names in tests:
        assert file.startswith("tests/")
        assert all(name.startswith("test_") for name in names)
        assert set(names) <= names_in(ROOT / file), file


def test_every_numbered_equation_line_figure_and_table_has_a_row() -> None:
    """Equations 1 to 4, the 24 lines of Algorithm 1, figures 1 to 4, tables I and II."""
    whole = " ".join(row.paper for row in ROWS)
    lines = [int(n) for row in ROWS if row.paper.startswith("line") for n in re.findall(r"\d+", row.paper)]
    assert sorted(lines) == list(range(1, 25))
    for wanted in [*(f"eq. {i}" for i in range(1, 5)), *(f"figure {i}" for i in range(1, 5)), "table I", "table II"]:
        assert re.search(rf"{wanted}\b", whole), wanted
