"""The four presets against the tables of the paper."""

import pytest

import idleband as ib
from idleband.scenario.presets import PRESETS

# The tables row by row as printed, typed independently of the presets.
TABLE_1 = """
S1 p01  0.01 0.01 0.02 0.02 0.03 0.03 0.04 0.04 0.05 0.05
S1 p10  0.08 0.07 0.08 0.07 0.08 0.07 0.02 0.01 0.02 0.01
S2 p01  0.1  0.1  0.2  0.3  0.4  0.5  0.6  0.7  0.8  0.9
S2 p10  0.9  0.9  0.8  0.7  0.6  0.5  0.4  0.3  0.2  0.1
S3 p01  0.01 0.1  0.02 0.3  0.04 0.5  0.06 0.7  0.08 0.9
S3 p10  0.09 0.9  0.08 0.7  0.06 0.5  0.04 0.3  0.02 0.1
S4 p01  0.02 0.04 0.04 0.5  0.06 0.05 0.7  0.8  0.9  0.9
S4 p10  0.03 0.03 0.04 0.4  0.05 0.06 0.6  0.7  0.8  0.9
"""
TABLE_2 = """
S1  0.2   0.21  0.28  0.3   0.35  0.37  0.7   0.82  0.74  0.85
S2  0.19  0.19  0.28  0.37  0.46  0.55  0.64  0.73  0.82  0.91
S3  0.19  0.19  0.28  0.37  0.46  0.55  0.64  0.73  0.82  0.91
S4  0.46  0.614 0.55  0.6   0.591 0.509 0.585 0.58  0.577 0.55
"""


def test_names_of_the_presets() -> None:
    assert list(PRESETS) == ["S1", "S2", "S3", "S4"]


def test_presets_contain_the_printed_tables() -> None:
    rows = [line.split() for line in (TABLE_1 + TABLE_2).split("\n") if line]
    printed = {tuple(row[:-10]): tuple(map(float, row[-10:])) for row in rows}
    stored = {(name, column): getattr(PRESETS[name], column) for name in PRESETS for column in ("p01", "p10")}
    stored |= {(name,): PRESETS[name].printed_means for name in PRESETS}
    assert stored == printed


@pytest.mark.parametrize("name", PRESETS)
def test_preset_has_the_settings_of_the_paper(name: str) -> None:
    scenario, preset = ib.scenario(name), PRESETS[name]
    assert (scenario.name, scenario.K, scenario.users, scenario.dimension) == (name, 10, 5, 8)
    assert (scenario.sensing, scenario.feedback, scenario.reward, scenario.context) == (
        "played",
        "perturbation",
        "threshold",
        "uniform",
    )
    model = scenario.perturbation
    assert (model.kind, model.clear, model.theta, model.theta_norm, model.per_channel) == (
        "linear",
        0.7,
        None,
        None,
        False,
    )
    assert model.drawn
    assert scenario.availability == ()
    assert scenario.available.tolist() == [[True] * 10]
    assert [P[0, 1] for P in scenario.transition] == list(preset.p01)
    assert [P[1, 0] for P in scenario.transition] == list(preset.p10)
    assert all(h.tolist() == [0.1, 1.0] for h in scenario.rewards)
    assert all(g.tolist() == [False, True] for g in scenario.good)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_note_and_ten_channels(name: str) -> None:
    preset = PRESETS[name]
    assert len(preset.p01) == len(preset.p10) == len(preset.printed_means) == 10
    assert preset.note
    assert "\n" not in preset.note


def test_presets_are_different_scenarios() -> None:
    assert len({ib.scenario(name) for name in PRESETS}) == 4
