"""Figures of the report: their tables, compared with numbers read by pandas, and what they show."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from idleband.paper.drawing import DARK, MAP_LINES, STYLES
from idleband.paper.figures import ReportFigure
from idleband.paper.readings import NOISE, find
from tests.paper import stored
from tests.paper.stored import BASELINES, GRID, SCENARIOS, SIZE, mean_and_interval

Draw = Callable[[str, bool], Figure]
ROLES = ("MP-LUCB", "MP-NUCB")
READINGS = ("slot-played", "rca-sensed")
OTHERS = tuple(key for key in stored.POLICIES if key not in READINGS)
M = 5


def measured(row: pandas.Series, name: str) -> list[float]:
    return [row[name], row.low, row.high]


def check(row: pandas.Series, name: str, values: np.ndarray) -> None:
    """Compare a row of a table with one number per replication."""
    assert row.replications == len(values)
    assert measured(row, name) == pytest.approx(mean_and_interval(values), rel=1e-9, abs=1e-9)


def only(table: pandas.DataFrame, **where: object) -> pandas.Series:
    for key, value in where.items():
        table = table[table[key] == value]
    assert len(table) == 1, where
    return table.iloc[0]


def test_all_figures_are_made(drawn: dict[str, ReportFigure]) -> None:
    assert list(drawn) == ["figure1", "figure2", "figure3", "figure4", "map", *(f"reading-{key}" for key in OTHERS)]


# --- tables ----------------------------------------------------------------------------------------------------------


def moved(folder: Path, reading: str, preset: str, replications: int) -> pandas.Series:
    """Return the correction of a line with fewer replications: mean of MP-LUCB over all minus over these."""
    study, policy, parameters = stored.proposed_policy(folder, reading, preset, "MP-LUCB")
    linear = stored.curve(folder, study, "regret_static", policy, **parameters)
    return linear.mean() - linear[:replications].mean()


def check_curves(table: pandas.DataFrame, folder: Path, reading: str) -> None:
    """Compare R(t) / (M ln t) of a reading at every checkpoint from slot 10 with the stored results."""
    ours = table[table.reading == reading]
    roles = {*BASELINES, *ROLES, *(["genie"] if reading == "rca-sensed" else [])}
    assert set(ours.policy) == roles
    assert set(ours.scenario) == set(SCENARIOS)
    for preset in SCENARIOS:
        for role in roles:
            if role in BASELINES:
                study, policy, parameters = stored.baseline_policy(folder, reading, preset, role)
            else:
                name = "MP-LUCB" if role == "genie" else role
                study, policy, parameters = stored.proposed_policy(folder, reading, preset, name)
            curve = stored.curve(folder, study, "regret_static", policy, **parameters)
            if role == "genie":
                curve = curve - stored.curve(folder, study, "regret_genie", policy, **parameters)
            line = ours[(ours.scenario == preset) & (ours.policy == role)]
            t = [t for t in curve if t >= 10]
            assert line.t.tolist() == t
            assert set(line.replications) == {len(curve)}
            curve = curve + moved(folder, reading, preset, len(curve))
            expected = mean_and_interval(curve[t].to_numpy() / (M * np.log(t)))
            found = line[["regret", "low", "high"]].to_numpy().T
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_figure_1_is_the_stored_regret(drawn: dict[str, ReportFigure], whole: Path) -> None:
    table = drawn["figure1"].table
    assert " ".join(table.columns) == "reading scenario policy label replications t regret low high"
    assert set(table.reading) == set(READINGS)
    for reading in READINGS:
        check_curves(table, whole, reading)


@pytest.mark.parametrize("key", OTHERS)
def test_figures_of_other_readings_are_the_stored_regret(drawn: dict[str, ReportFigure], whole: Path, key: str) -> None:
    table = drawn[f"reading-{key}"].table
    assert set(table.reading) == {key}
    check_curves(table, whole, key)


def test_genie_is_below_all_lines_in_figure_1(drawn: dict[str, ReportFigure]) -> None:
    """Its mean is the lowest at every checkpoint among lines with the same replications."""
    table = drawn["figure1"].table
    table = table[(table.reading == "rca-sensed") & (table.replications == SIZE.replications)]
    lowest = table.loc[table.groupby(["scenario", "t"]).regret.idxmin()]
    genie = table[table.policy == "genie"].set_index(["scenario", "t"]).regret
    assert np.all(genie <= lowest.set_index(["scenario", "t"]).regret + 1e-9)
    assert genie.loc[:, SIZE.horizon].max() < 0


def test_baselines_are_the_same_in_both_rows_of_figure_1(drawn: dict[str, ReportFigure]) -> None:
    table = drawn["figure1"].table
    table = table[table.policy.isin(BASELINES)].drop(columns="reading")
    assert len(table) == 2 * len(table.drop_duplicates())


def test_labels_contain_the_tuned_parameters(drawn: dict[str, ReportFigure], whole: Path) -> None:
    table = drawn["figure1"].table
    for reading in READINGS:
        for preset in SCENARIOS:
            labels = table[(table.reading == reading) & (table.scenario == preset)].set_index("policy").label.to_dict()
            linear, neural = stored.POLICIES[reading]
            values = {"MP-LUCB": (linear, "beta", stored.beta(whole, reading, preset), 1.0)}
            gamma = stored.gamma(whole, reading, preset)
            for name, L in stored.tuned_L(whole, "slot-played", preset).items():
                values[name] = (name, "L", L, stored.TEXTBOOK[name])
            for role, (name, parameter, value, default) in values.items():
                assert labels[role] == (name if value == default else f"{name} {parameter}={value:g}")
            tuned = f" gamma={gamma:g}" * (gamma != 1.0)
            assert labels["MP-NUCB"] == f"{neural}{tuned} covariance=diagonal"


def test_figure_2_counts_the_stored_plays(drawn: dict[str, ReportFigure], whole: Path) -> None:
    table = drawn["figure2"].table
    assert len(table) == 2 * 4 * 6 * 2
    for _, row in table.iterrows():
        column = f"suboptimal_{row.counted}"
        if row.policy in ROLES:
            plays = stored.proposed(whole, row.reading, row.scenario, row.policy, column)
        else:
            plays = stored.baseline(whole, row.reading, row.scenario, row.policy, column)
        check(row, "plays", plays)
    assert not table.duplicated(["reading", "scenario", "policy", "counted"]).any()


def test_figure_3_is_the_stored_regret(drawn: dict[str, ReportFigure], whole: Path) -> None:
    table = drawn["figure3"].table
    assert len(table) == 3 * 5 * 3 * 2
    for reading, role in stored.FIGURE_3:
        for users in stored.USERS:
            for reference in ("static", "contextual", "table"):
                values = stored.with_users(whole, reading, role, users, f"regret_{reference}") / np.log(SIZE.horizon)
                at = {"reading": reading, "policy": role, "M": users, "reference": reference}
                check(only(table, **at, divided_by_M=False), "regret", values)
                check(only(table, **at, divided_by_M=True), "regret", values / users)


def test_figure_4_removes_the_mean_of_each_replication(drawn: dict[str, ReportFigure], whole: Path) -> None:
    """The rest is multiplied by Morey's factor, the square root of 6/5 for six betas."""
    table = drawn["figure4"].table
    assert len(table) == len(stored.LINEAR_MODEL) * 6 * 3
    for key in stored.LINEAR_MODEL:
        for reference in ("static", "contextual", "table"):
            regret = pandas.DataFrame(
                {
                    beta: stored.at_end(
                        whole, f"S1-{key}-beta", f"regret_{reference}", stored.linear_policy(key), beta=beta
                    )
                    for beta in GRID
                }
            ) / (M * np.log(SIZE.horizon))
            common = regret.mean(axis=1) - regret.mean(axis=1).mean()
            for beta in GRID:
                row = only(table, reading=key, reference=reference, beta=beta)
                left = (regret[beta] - common).to_numpy()
                check(row, "regret", left.mean() + (left - left.mean()) * np.sqrt(6 / 5))
                assert row.regret == pytest.approx(regret[beta].mean())  # means do not change
                assert row.replications == (6 if key == "slot-played" else 2)


def test_map_shows_the_margin_over_the_best_baseline(drawn: dict[str, ReportFigure], whole: Path) -> None:
    table = drawn["map"].table
    assert len(table) == 4 * len(stored.MAP) * 2
    for (clear, noise), key in stored.MAP.items():
        for preset in SCENARIOS:
            proposed = stored.proposed(whole, key, preset, "MP-LUCB", "reward") / SIZE.horizon
            for against in ("tuned", "textbook"):
                others = {
                    name: stored.baseline(whole, key, preset, name, "reward", tuned=against == "tuned") / SIZE.horizon
                    for name in BASELINES
                }
                best = max(others, key=lambda name: others[name].mean())
                row = only(table, scenario=preset, clear=clear, noise=noise, against=against)
                check(row, "margin", proposed - others[best])
                assert row.best.split()[0] == best
                if against == "textbook":
                    assert row.best == best


# --- drawings --------------------------------------------------------------------------------------------------------

PANELS = {"figure1": 8, "figure2": 8, "figure3": 6, "figure4": len(stored.LINEAR_MODEL), "map": 4}
LEGENDS = {
    "figure1": [*BASELINES, *ROLES, "genie"],
    "figure2": ["outside the best fixed set", "M channels were better, given the contexts"],
    "figure3": ["static reference", "contextual reference", "table reference"],
    "map": [
        *("over the best baseline, tuned", "over the best baseline, textbook"),
        *(f"over the best baseline, tuned, sigma = {noise:g}" for noise in NOISE),
    ],
    "reading": [*BASELINES, *ROLES],
}


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", [*PANELS, "reading-none"])
def test_panels_have_titles_and_labels(draw: Draw, name: str, narrow: bool) -> None:
    figure = draw(name, narrow)
    width, _ = figure.get_size_inches()
    assert width <= 5 if narrow else width >= 8
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == PANELS.get(name, 4)
    for axes in panels:
        row, column = (axes.get_subplotspec().rowspan, axes.get_subplotspec().colspan)  # type: ignore[union-attr]
        last = row.stop == axes.get_gridspec().nrows  # type: ignore[union-attr]
        assert axes.get_xlabel() or not last
        assert axes.get_ylabel() or column.start or name == "figure2"  # its bars have names instead
        assert axes.get_title() or (name == "figure3" and last)
    if name == "figure2":
        assert [label.get_text() for label in panels[0].get_yticklabels()] == [*BASELINES, *ROLES]
    legend = LEGENDS.get(name, LEGENDS["reading"] if name.startswith("reading") else None)
    if legend is None:  # one line
        assert not figure.legends
    else:
        (found,) = figure.legends
        assert sorted(text.get_text() for text in found.get_texts()) == sorted(legend)


def test_lines_of_figure_1_are_its_table(drawn: dict[str, ReportFigure], draw: Draw) -> None:
    table = drawn["figure1"].table
    for narrow in (False, True):
        panels = draw("figure1", narrow).axes
        for place, axes in enumerate(panels):
            reading, preset = READINGS[place // 4], SCENARIOS[place % 4]
            assert axes.get_title().strip() == preset
            lines = {line.get_label(): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")}
            part = table[(table.reading == reading) & (table.scenario == preset)]
            assert set(lines) == set(part.policy)
            for role, line in lines.items():
                rows = part[part.policy == role][["t", "regret"]].to_numpy()
                last = len(rows) - 1  # always drawn, and before it every second one
                assert last % 2 == 1  # otherwise the first would be drawn as well
                shown = [i for i in range(last + 1) if (last - i) % 2 == 0]
                np.testing.assert_array_equal(line.get_xydata(), rows[shown])
                assert to_hex(line.get_color()) == STYLES[role][0]
    titles = [text.get_text() for axes in panels for text in axes.texts]
    assert titles == [find(reading).title for reading in READINGS]


def test_bars_of_figure_2_are_its_table(drawn: dict[str, ReportFigure], draw: Draw) -> None:
    table = drawn["figure2"].table
    for place, axes in enumerate(draw("figure2", False).axes):
        at = {"reading": READINGS[place // 4], "scenario": SCENARIOS[place % 4]}
        for bar, role in zip(axes.patches, [*BASELINES, *ROLES], strict=True):
            assert bar.get_width() == only(table, **at, policy=role, counted="static").plays / 1000  # type: ignore[attr-defined]


def test_lines_of_figure_3_are_its_table(drawn: dict[str, ReportFigure], draw: Draw) -> None:
    """The wide figure has one row for the total and one for the quotient by M; the narrow one has columns."""
    table = drawn["figure3"].table
    for narrow in (False, True):
        figure = draw("figure3", narrow)
        (legend,) = figure.legends
        looks = {
            text.get_text().split()[0]: (mark.get_marker(), mark.get_linestyle())  # type: ignore[union-attr]
            for text, mark in zip(legend.get_texts(), legend.get_lines(), strict=True)
        }
        for place, axes in enumerate(figure.axes):
            i, average = (place // 2, place % 2) if narrow else (place % 3, place // 3)
            reading, role = stored.FIGURE_3[i]
            titled = f"{role}, {'sensed' if reading == 'rca-sensed' else 'played'}"
            assert axes.get_title() == (titled if narrow or not average else "")
            references = set()
            for container in axes.containers:
                line = container[0]
                (reference,) = (r for r, look in looks.items() if look == (line.get_marker(), line.get_linestyle()))
                rows = table[
                    (table.reading == reading) & (table.policy == role)
                    & (table.divided_by_M == bool(average)) & (table.reference == reference)
                ]  # fmt: skip
                np.testing.assert_array_equal(line.get_xydata(), rows[["M", "regret"]].to_numpy(float))
                assert to_hex(line.get_color()) == STYLES[role][0]
                references.add(reference)
            assert references == {"static", "contextual", "table"}


def test_ring_of_figure_4_is_the_lowest_point(drawn: dict[str, ReportFigure], draw: Draw) -> None:
    table = drawn["figure4"].table
    table = table[table.reference == "static"]
    panels = draw("figure4", False).axes
    for axes, (_, line) in zip(panels, table.groupby("reading", sort=False), strict=False):
        np.testing.assert_array_equal(axes.containers[0][0].get_xydata(), line[["beta", "regret"]].to_numpy())
        rings = [mark.get_xydata().tolist() for mark in axes.get_lines() if mark.get_markersize() == 12]
        lowest = line.loc[line.regret.idxmin()]
        assert rings == ([[[lowest.beta, lowest.regret]]] if line.regret.nunique() > 1 else [])


def test_hollow_marks_of_the_map_are_intervals_that_contain_zero(drawn: dict[str, ReportFigure], draw: Draw) -> None:
    table = drawn["map"].table
    for preset, axes in zip(SCENARIOS, draw("map", False).axes, strict=True):
        lines = [line for line in axes.get_lines() if len(line.get_xydata()) != 2 or line.get_marker() != "None"]
        rows = table[table.scenario == preset]
        solid = [line for line in lines if str(line.get_label()).startswith("over")]
        hollow = [line for line in lines if line.get_linestyle() == "None"]
        drawn_lines = [(0.0, "tuned"), (0.0, "textbook"), *((noise, "tuned") for noise in NOISE)]
        for (noise, against), line, marks in zip(drawn_lines, solid, hollow, strict=True):
            ours = rows[(rows.against == against) & (rows.noise == noise)]
            np.testing.assert_array_equal(line.get_xydata(), ours[["clear", "margin"]].to_numpy())
            level = ours[(ours.low <= 0) & (ours.high >= 0)]
            np.testing.assert_array_equal(marks.get_xydata(), level[["clear", "margin"]].to_numpy())


def test_every_colour_has_a_dark_replacement() -> None:
    assert {colour for colour, _, _ in STYLES.values()} <= set(DARK)
    assert len(set(DARK.values())) == len(DARK)
    assert len({(colour, str(dash)) for colour, dash, _ in STYLES.values()}) == len(STYLES)
    assert {line.colour for line in MAP_LINES} <= set(DARK)
    looks = [(line.colour, str(line.dash), line.marker) for line in MAP_LINES]
    assert all(len(set(column)) == len(MAP_LINES) for column in zip(*looks, strict=True))


# --- texts -----------------------------------------------------------------------------------------------------------


def numbers(text: str) -> list[float]:
    return [float(n.replace(",", "")) for n in re.findall(r"[-+]?\d[\d,]*(?:\.\d+)?", text)]


def test_every_figure_has_title_caption_and_alternative_text(drawn: dict[str, ReportFigure]) -> None:
    for drawing in drawn.values():
        assert len(drawing.caption) > 20
        assert drawing.title
        assert len(numbers(drawing.alternative)) > 10
        assert drawing.alternative.endswith(".")
        assert "nan" not in drawing.alternative
    assert len({drawing.title for drawing in drawn.values()}) == len(drawn)


def end_of(folder: Path, reading: str, preset: str, role: str) -> float:
    if role in ROLES:
        values = stored.proposed(folder, reading, preset, role, "regret_static")
        value = values.mean() + moved(folder, reading, preset, len(values))[SIZE.horizon]
    else:
        value = stored.baseline(folder, reading, preset, role, "regret_static").mean()
    return float(value / (M * np.log(SIZE.horizon)))


@pytest.mark.parametrize(("name", "reading"), [("figure1", "slot-played"), ("reading-cosine", "cosine")])
def test_alternative_text_of_curves_contains_final_values(
    drawn: dict[str, ReportFigure], whole: Path, name: str, reading: str
) -> None:
    for preset in SCENARIOS:
        ends = ", ".join(f"{role} {end_of(whole, reading, preset, role):.0f}" for role in (*BASELINES, *ROLES))
        assert f"{preset}: {ends}" in drawn[name].alternative


def test_alternative_text_of_other_figures_contains_their_numbers(drawn: dict[str, ReportFigure], whole: Path) -> None:
    plays = {
        name: [
            stored.baseline(whole, "slot-played", "S2", name, f"suboptimal_{count}").mean()
            for count in ("static", "contextual")
        ]
        for name in BASELINES
    }
    words = ", ".join(f"{name} {fixed:,.0f} ({given:,.0f})" for name, (fixed, given) in plays.items())
    assert f"{find('slot-played').title}, S2: {words}, MP-LUCB " in drawn["figure2"].alternative
    for reading, role in stored.FIGURE_3:
        regret = [
            stored.with_users(whole, reading, role, n, "regret_static").mean() / np.log(SIZE.horizon)
            for n in stored.USERS
        ]
        words = ", ".join(f"M = {n} {value:.0f}" for n, value in zip(stored.USERS, regret, strict=True))
        assert f"{role}, {find(reading).title}: {words}." in drawn["figure3"].alternative
    regret = [
        stored.at_end(whole, "S1-rca-played-beta", "regret_static", "mp-lucb-rca", beta=beta).mean() for beta in GRID
    ]
    words = ", ".join(f"beta {b:g} {r / (M * np.log(SIZE.horizon)):.4g}" for b, r in zip(GRID, regret, strict=True))
    assert f"{find('rca-played').title}: {words}" in drawn["figure4"].alternative
    for noise in (0.0, *NOISE):
        tuned = drawn["map"].table.query("against == 'tuned' and scenario == 'S3' and noise == @noise")
        words = ", ".join(f"{clear:g} {margin:+.3f}" for clear, margin in zip(tuned.clear, tuned.margin, strict=True))
        assert f"S3{f', sigma = {noise:g}' * bool(noise)}: {words}" in drawn["map"].alternative


def test_captions_contain_the_horizon(drawn: dict[str, ReportFigure]) -> None:
    for name in ("figure1", "figure2", "figure3", "figure4"):
        assert SIZE.horizon in numbers(drawn[name].caption + drawn[name].alternative)


def test_caption_names_the_policy_with_the_lowest_regret(drawn: dict[str, ReportFigure]) -> None:
    for name, drawing in drawn.items():
        if name.startswith("reading-"):
            named = re.findall(r"([\w-]+) in (S\d)", drawing.caption.partition("Lowest at the end:")[2])
            assert [preset for _, preset in named] == ["S1", "S2", "S3", "S4"]
            for policy, preset in named:
                part = drawing.table[(drawing.table.scenario == preset) & (drawing.table.t == SIZE.horizon)]
                ends = dict(zip(part.policy, part.regret, strict=True))
                assert ends[policy] == min(ends.values())
