"""Figures: what is drawn is the data."""

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from scipy import stats

import idleband as ib
from idleband.reporting.plots import PACKAGE, REFERENCE_NAMES, learned_figure, regret_figure, save_figure, save_figures

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


def test_no_two_policies_look_alike() -> None:
    """Every policy of the package, and others beside them: a colour and dash of its own."""
    labels = [*PACKAGE, *(ib.policy("mp-ucb", L=L).label for L in (0.1, 0.2, 0.3))]
    drawn = ib.compare("S1", ["mp-random"], horizon=10, replications=1)["mp-random"]
    results = [dataclasses.replace(drawn, label=label) for label in labels]
    lines = regret_figure(drawn.scenario, results).axes[0].get_lines()
    styles = {
        line.get_label(): (to_hex(line.get_color()), str(line._unscaled_dash_pattern))  # type: ignore[attr-defined]
        for line in lines
    }
    assert {label for label in styles if label in labels} == set(labels)
    assert len({styles[label] for label in labels}) == len(labels)


# --- what was learned ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> list[ib.Learned]:
    world = ib.scenario("S1", perturbation="quadratic")
    return [ib.learned(world, "mp-lucb", beta=beta, horizon=300, replications=2) for beta in (1.0, 0.5)]


def test_errors_are_drawn_over_time(found: list[ib.Learned]) -> None:
    *panels, errors = learned_figure(found).axes
    assert [panel.get_title() for panel in panels] == ["mp-lucb", "mp-lucb beta=0.5"]
    lines = {line.get_label(): line for line in errors.get_lines()}
    for one in found:
        for name, expected in (("played", one.played), ("fresh", one.fresh)):
            t, level = lines[f"{one.label}, {name}"].get_data()
            assert t.tolist() == one.t.tolist()
            np.testing.assert_allclose(level, np.sqrt((expected**2).mean(axis=0)), rtol=1e-12)
    colours = [lines[f"{one.label}, played"].get_color() for one in found]
    assert len(set(colours)) == 2


def test_points_are_predicted_against_true(found: list[ib.Learned]) -> None:
    """The fresh ones below, the played ones above, those beyond the frame at its edge."""
    wild = dataclasses.replace(found[0], pairs_fresh=found[0].pairs_fresh * np.array([[100.0], [1.0]]))
    *panels, _ = learned_figure([found[1], wild]).axes
    for one, panel in zip([found[1], wild], panels, strict=True):
        low, high = panel.get_ylim()
        assert panel.get_xlim() == (low, high)
        for points, pairs in zip(panel.collections, (one.pairs_fresh, one.pairs_played), strict=True):
            at = np.asarray(points.get_offsets())
            predicted, true = pairs[:, np.linspace(0, pairs.shape[1] - 1, min(pairs.shape[1], 2500)).astype(int)]
            np.testing.assert_allclose(at[:, 0], true)
            inside = (predicted > true.min()) & (predicted < true.max())
            np.testing.assert_allclose(at[inside, 1], predicted[inside])
            assert ((at[:, 1] > low) & (at[:, 1] < high)).all()
    assert (wild.pairs_fresh[0] > high).any()


def test_the_title_says_what_was_learned(found: list[ib.Learned]) -> None:
    figure = learned_figure(found)
    assert figure.get_suptitle().startswith("S1, quadratic model: what was learned after 300 slots\n")
    assert "over 2 replications;" in figure.get_suptitle()
    lone = learned_figure([ib.learned("S1", "mp-lucb", horizon=2, replications=1)])
    assert "over 1 replication;" in lone.get_suptitle()


def test_a_figure_is_saved_twice(found: list[ib.Learned], tmp_path: Path) -> None:
    """As PNG and SVG, under the name given, dots in it too; the same data give the same files."""
    paths = save_figure(learned_figure(found), tmp_path / "clear 0.7")
    assert [path.name for path in paths] == ["clear 0.7.png", "clear 0.7.svg"]
    assert sorted(tmp_path.iterdir()) == paths
    assert size_of_png(paths[0].read_bytes()) == (1440, 1230)
    assert ElementTree.parse(paths[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    first = paths[0].read_bytes()
    save_figure(learned_figure(found), tmp_path / "clear 0.7")
    assert paths[0].read_bytes() == first


def test_a_policy_that_never_played_can_be_drawn() -> None:
    world = ib.scenario("S1", availability=[[0] * 10])
    learned_figure([ib.learned(world, "mp-lucb", horizon=20, replications=1)]).canvas.draw()
