"""Fixtures: a small reproduction of the whole paper, made once per session."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from idleband.paper.claims import Judgement, judge
from idleband.paper.figures import ReportFigure
from idleband.paper.report import report_figures, write_report
from idleband.paper.reproduce import reproduce
from idleband.paper.stored import StoredStudies
from idleband.simulation.scheduler import ThreadExecutor
from tests.paper.stored import SIZE
from tests.shared import made_once


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all parts and their report, made on one thread. Tests must not change it."""

    def make(folder: Path) -> None:
        reproduce(folder, SIZE, executor=ThreadExecutor(1))
        assert write_report(folder).missing == []

    return made_once(tmp_path_factory, "whole", make)


@pytest.fixture(scope="session")
def studies(whole: Path) -> StoredStudies:
    return StoredStudies(whole)


@pytest.fixture(scope="session")
def judged(studies: StoredStudies) -> list[Judgement]:
    return judge(studies)


@pytest.fixture(scope="session")
def drawn(studies: StoredStudies) -> dict[str, ReportFigure]:
    """Return the figures with their tables, by name."""
    return {drawing.name: drawing for drawing in report_figures(studies)}


@pytest.fixture(scope="session")
def draw(drawn: dict[str, ReportFigure]) -> Callable[[str, bool], Figure]:
    """Return a function that draws a figure by name, wide or narrow, once."""
    return cache(lambda name, narrow: drawn[name].draw(drawn[name].table, narrow))
