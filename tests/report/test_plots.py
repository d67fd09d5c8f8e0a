"""Figures: what is drawn is the data."""

import struct
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from scipy import stats

import idleband as ib
from idleband.report.plots import REFERENCE_NAMES, regret_figure, save_figures

POLICIES = ["mp-random", "mp-ucb", ib.policy("mp-ucb", L=0.5)]


@pytest.fixture(scope="module")
def study() -> ib.Study:
    return ib.compare("S1", POLICIES, horizon=1000, replications=4)


@pytest.fixture(scope="module")
def lone() -> ib.Study:
    return ib.compare("S1", POLICIES, horizon=1000, replications=1)


def axes_of(study: ib.Study, reference: str = "static") -> Axes:
    (axes,) = study.plot(reference=reference).axes
    return axes


@pytest.mark.parametrize("reference", REFERENCE_NAMES)
def test_the_lines_are_the_data(study: ib.Study, reference: str) -> None:
    axes = axes_of(study, reference)
    lines = {line.get_label(): line for line in axes.get_lines()}
    for result in study.results:
        t, mean = lines[result.label].get_data()
        shown = result.t >= 2
        assert t.tolist() == result.t[shown].tolist()
        expected = result.regret(reference).mean(axis=0)[shown] / (5 * np.log(result.t[shown]))
        np.testing.assert_allclose(mean, expected, rtol=1e-12)
    assert REFERENCE_NAMES[reference] in axes.get_title()


def test_bands_are_the_intervals(study: ib.Study) -> None:
    bands = axes_of(study).collections
    assert len(bands) == len(study.results)
    for band, result in zip(bands, study.results, strict=True):
        corners = band.get_paths()[0].vertices
        values = result.regret()[:, -1] / (5 * np.log(1000))
        low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        last = corners[corners[:, 0] == 1000][:, 1]
        assert (last.min(), last.max()) == pytest.approx((low, high))
        assert corners[:, 0].min() == 2


def test_one_replication_has_no_band(lone: ib.Study) -> None:
    axes = axes_of(lone)
    assert not axes.collections
    assert len(axes.get_lines()) == len(lone.results) + 1  # and the line at 0
    assert axes.get_title().endswith("mean of 1 replication")


def test_title_and_legend_say_what_is_shown(study: ib.Study) -> None:
    axes = axes_of(study)
    assert axes.get_title().startswith("S1: regret against the best fixed channels")
    assert axes.get_title().endswith("K = 10 channels, M = 5 users, mean of 4 replications with 95% bands")
    assert "M ln t" in axes.get_ylabel()
    ends = {label: study[label].regret()[:, -1].mean() for label in study.labels}
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == sorted(ends, key=lambda label: -ends[label])


def size_of_png(data: bytes) -> Sequence[int]:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB\x60\x82")
    return struct.unpack(">II", data[16:24])


def test_files_are_drawn(study: ib.Study, tmp_path: Path) -> None:
    png, svg = save_figures(study.scenario, study.results, tmp_path)
    assert sorted(tmp_path.iterdir()) == [png, svg]
    assert size_of_png(png.read_bytes()) == (1440, 810)
    root = ElementTree.parse(svg).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    comments = svg.read_text()  # text is drawn as outlines, each with its words beside it as a comment
    assert all(f"<!-- {label} -->" in comments for label in study.labels)


def test_the_same_data_give_the_same_picture(study: ib.Study, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first = save_figures(study.scenario, study.results, tmp_path)[0]
    again = save_figures(study.scenario, study.results, tmp_path / "again")[0]
    assert first.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_study_plots_itself(study: ib.Study, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"figure.{suffix}"
    study.plot(path)
    assert path.stat().st_size > 1000


def test_a_run_of_one_slot_can_be_drawn(tmp_path: Path) -> None:
    ib.compare("S1", ["mp-random"], horizon=1, replications=1).plot(tmp_path / "figure.png")


def test_an_unknown_reference_is_refused(study: ib.Study) -> None:
    with pytest.raises(ib.InputError, match="reference = 'best': must be one of static, contextual, genie, table"):
        regret_figure(study.scenario, study.results, "best")
