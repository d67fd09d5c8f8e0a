"""Rankings as text, CSV, JSON and a figure."""

import csv
import io

import pytest

import idleband as ib
from idleband.experiments.ranking import Row, ranking
from idleband.reporting.ranking import legend, ranking_csv, ranking_figure, ranking_json, ranking_text

LABELS = ["mp-random", "mp-ucb", "rca-m", "oracle-belief", "genie"]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return ranking(ib.compare("S4", LABELS, horizon=500, replications=3, seed=2))


def test_text_csv_and_json_contain_the_same_numbers(rows: list[Row]) -> None:
    table, data, text = list(csv.DictReader(io.StringIO(ranking_csv(rows)))), ranking_json(rows), ranking_text(rows)
    for row, line, entry in zip(rows, table, data, strict=True):
        assert float(line["reward"]) == entry["reward"] == row.reward
        assert line["label"] == entry["label"] == row.label
        assert f"{row.reward:.4f} ±{row.reward_pm:.4f}" in text
    assert text.startswith("S4, perturbation linear: 3 replications of 500 slots; means per slot\n")


def test_text_fits_80_columns(rows: list[Row]) -> None:
    assert max(map(len, [*ranking_text(rows).split("\n"), *legend(rows).split("\n")])) <= 80


def test_knowledge_is_shown_by_letters(rows: list[Row]) -> None:
    head = ranking_text(rows).split("\n")[3 : 3 + len(rows)]
    letters = {line.split()[0]: line.split()[-1] for line in head}
    assert letters["mp-ucb"] == "-"
    assert letters["oracle-belief"] == "CP"
    assert letters["genie"] == "CPS"


def test_missing_values_are_empty_in_csv_and_none_in_json() -> None:
    rows = ranking(ib.compare(ib.scenario("S1", sensing="all"), ["mp-ucb"], horizon=50, replications=2))
    (line,) = csv.DictReader(io.StringIO(ranking_csv(rows)))
    assert line["share_of_bound"] == line["regret_bound"] == line["gap_closed"] == ""
    assert ranking_json(rows)[0]["share_of_bound"] is None
    assert "to bound" not in ranking_text(rows)


def test_one_replication_has_no_interval() -> None:
    alone = ranking(ib.compare("S2", ["mp-ucb"], horizon=100, replications=1))
    assert "±" not in ranking_text(alone)


def test_figure_has_one_panel_per_scenario_with_policies_in_order(rows: list[Row]) -> None:
    axes = ranking_figure([rows, rows]).axes
    assert [panel.get_title() for panel in axes] == ["S4, linear", "S4, linear"]
    names = [label.get_text() for label in axes[0].get_yticklabels()]
    assert names == [row.label for row in reversed(rows)]
    assert axes[0].get_xlabel() == "reward per slot"
