"""Figures of rewards, regret and prediction errors contain the data."""

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
from idleband.reporting.plots import (
    PACKAGE,
    REFERENCE_NAMES,
    learned_figure,
    regret_figure,
    reward_figure,
    save_figure,
)

POLICIES = ["mp-random", "mp-ucb", ib.policy("mp-ucb", L=0.5)]


@pytest.fixture(scope="module")
def study() -> ib.Study:
    return ib.compare("S1", POLICIES, horizon=1000, replications=4)


@pytest.fixture(scope="module")
def lone() -> ib.Study:
    return ib.compare("S1", POLICIES, horizon=1000, replications=1)


def axes_of(study: ib.Study, reference: str = "static") -> Axes:
    (axes,) = regret_figure(study.scenario, study.results, reference).axes
    return axes


# --- reward ----------------------------------------------------------------------------------------------------------


def test_reward_lines_and_bands_are_means_and_intervals(study: ib.Study) -> None:
    top, bottom = reward_figure(study.scenario, study.results).axes
    lines = {line.get_label(): line for line in top.get_lines()}
    best = max(study.results, key=lambda result: result.reward[:, -1].mean())
    ranked = sorted(study.results, key=lambda result: -result.reward[:, -1].mean())
    for result in study.results:
        t, mean = lines[result.label].get_data()
        assert t.tolist() == result.t.tolist()
        np.testing.assert_allclose(mean, (result.reward / result.t).mean(axis=0), rtol=1e-12)
    others = [result for result in ranked if result is not best]
    assert len(bottom.collections) == len(others)
    for result, band in zip(others, bottom.collections, strict=True):
        differences = (result.reward[:, -1] - best.reward[:, -1]) / 1000
        low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
        corners = band.get_paths()[0].vertices
        last = corners[corners[:, 0] == 1000][:, 1]
        assert (last.min(), last.max()) == pytest.approx((low, high))
    assert bottom.get_ylabel() == f"difference to {best.label}"


def test_reward_figure_shows_the_static_reference_and_the_upper_bound(study: ib.Study) -> None:
    top, _ = reward_figure(study.scenario, study.results).axes
    levels = {line.get_label(): line.get_ydata()[0] for line in top.get_lines()}
    result = study.results[0]
    for label, name in (("static reference", "static"), ("upper bound", "bound")):
        assert levels[label] == pytest.approx((result.reward + result.regret(name))[:, -1].mean() / 1000)
    low, high = top.get_ylim()
    assert low < levels["static reference"] < high
    assert low < levels["upper bound"] < high


def test_reward_figure_compares_with_a_chosen_policy(study: ib.Study) -> None:
    _, bottom = reward_figure(study.scenario, study.results, "mp-random").axes
    assert bottom.get_ylabel() == "difference to mp-random"
    ends = [line.get_ydata()[-1] for line in bottom.get_lines()]
    assert ends[0] == pytest.approx(max(ends))
    with pytest.raises(ib.InputError, match="unknown policy 'mp-best'"):
        reward_figure(study.scenario, study.results, "mp-best")


def test_reward_figure_legend_is_in_the_order_of_rewards(study: ib.Study) -> None:
    figure = reward_figure(study.scenario, study.results)
    (legend,) = figure.legends
    ranked = sorted(study.labels, key=lambda label: -study[label].reward[:, -1].mean())
    assert [text.get_text() for text in legend.get_texts()] == [*ranked, "static reference", "upper bound"]


def test_reward_figure_of_one_policy_or_one_slot_can_be_drawn(tmp_path: Path, lone: ib.Study) -> None:
    top, bottom = reward_figure(lone.scenario, lone.results[:1]).axes
    assert not bottom.get_visible()
    assert not top.collections
    short = ib.compare("S1", ["mp-random", "mp-ucb"], horizon=1, replications=1)
    save_figure(reward_figure(short.scenario, short.results), tmp_path / "short")


# --- regret on the scale of the paper ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", REFERENCE_NAMES)
def test_regret_lines_are_the_data(study: ib.Study, reference: str) -> None:
    axes = axes_of(study, reference)
    lines = {line.get_label(): line for line in axes.get_lines()}
    for result in study.results:
        t, mean = lines[result.label].get_data()
        shown = result.t >= 2
        assert t.tolist() == result.t[shown].tolist()
        expected = result.regret(reference).mean(axis=0)[shown] / (5 * np.log(result.t[shown]))
        np.testing.assert_allclose(mean, expected, rtol=1e-12)
    assert REFERENCE_NAMES[reference] in axes.get_title()


def test_regret_bands_are_intervals(study: ib.Study) -> None:
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


def test_regret_figure_has_title_and_legend(study: ib.Study) -> None:
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


def test_figure_is_written_as_png_and_svg(study: ib.Study, tmp_path: Path) -> None:
    png, svg = save_figure(regret_figure(study.scenario, study.results), tmp_path / "regret")
    assert sorted(tmp_path.iterdir()) == [png, svg]
    assert size_of_png(png.read_bytes()) == (1440, 810)
    root = ElementTree.parse(svg).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    comments = svg.read_text()  # text is drawn as outlines and repeated in comments
    assert all(f"<!-- {label} -->" in comments for label in study.labels)


def test_equal_data_give_equal_files(study: ib.Study, tmp_path: Path) -> None:
    first, again = (save_figure(reward_figure(study.scenario, study.results), tmp_path / name)[0] for name in "ab")
    assert first.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_study_plot_writes_a_file(study: ib.Study, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"figure.{suffix}"
    study.plot(path)
    assert path.stat().st_size > 1000


def test_study_of_one_slot_can_be_drawn(tmp_path: Path) -> None:
    ib.compare("S1", ["mp-random"], horizon=1, replications=1).plot(tmp_path / "figure.png")


def test_unknown_regret_reference_is_refused(study: ib.Study) -> None:
    with pytest.raises(ib.InputError, match="reference = 'best': must be one of static, contextual, genie, table"):
        regret_figure(study.scenario, study.results, "best")


def test_every_policy_has_a_different_colour_and_dash() -> None:
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


# --- predicted perturbations -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> list[ib.Learned]:
    scenario = ib.scenario("S1", perturbation="quadratic")
    return [ib.learned(scenario, "mp-lucb", beta=beta, horizon=300, replications=2) for beta in (1.0, 0.5)]


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
    """Points beyond the frame are drawn at its edge."""
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


def test_title_names_model_slots_and_replications(found: list[ib.Learned]) -> None:
    figure = learned_figure(found)
    assert figure.get_suptitle().startswith("S1, perturbation model quadratic: predictions after 300 slots\n")
    assert "over 2 replications;" in figure.get_suptitle()
    lone = learned_figure([ib.learned("S1", "mp-lucb", horizon=2, replications=1)])
    assert "over 1 replication;" in lone.get_suptitle()


def test_figure_name_may_contain_a_dot(found: list[ib.Learned], tmp_path: Path) -> None:
    paths = save_figure(learned_figure(found), tmp_path / "clear 0.7")
    assert [path.name for path in paths] == ["clear 0.7.png", "clear 0.7.svg"]
    assert sorted(tmp_path.iterdir()) == paths
    assert size_of_png(paths[0].read_bytes()) == (1440, 1230)
    assert ElementTree.parse(paths[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    first = paths[0].read_bytes()
    save_figure(learned_figure(found), tmp_path / "clear 0.7")
    assert paths[0].read_bytes() == first


def test_policy_that_never_played_can_be_drawn() -> None:
    scenario = ib.scenario("S1", availability=[[0] * 10])
    learned_figure([ib.learned(scenario, "mp-lucb", horizon=20, replications=1)]).canvas.draw()
