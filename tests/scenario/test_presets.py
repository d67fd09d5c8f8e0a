"""The paper's four scenarios as they come."""

import pytest

import idleband as ib
from idleband.scenario.presets import PRESETS

# The tables once more, row by row as they are printed: what the presets hold was typed by hand.
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


def test_there_are_four() -> None:
    assert list(PRESETS) == ["S1", "S2", "S3", "S4"]


def test_tables_are_as_printed() -> None:
    rows = [line.split() for line in (TABLE_1 + TABLE_2).split("\n") if line]
    printed = {tuple(row[:-10]): tuple(map(float, row[-10:])) for row in rows}
    held = {(name, column): getattr(PRESETS[name], column) for name in PRESETS for column in ("p01", "p10")}
    held |= {(name,): PRESETS[name].printed_means for name in PRESETS}
    assert held == printed


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_carries_the_papers_settings(name: str) -> None:
    world, preset = ib.scenario(name), PRESETS[name]
    assert (world.name, world.K, world.users, world.dimension) == (name, 10, 5, 8)
    assert (world.sensing, world.feedback, world.reward, world.context) == (
        "played",
        "perturbation",
        "threshold",
        "uniform",
    )
    model = world.perturbation
    assert (model.kind, model.clear, model.theta, model.theta_norm, model.per_channel) == (
        "linear",
        0.7,
        None,
        None,
        False,
    )
    assert model.drawn
    assert world.availability == ()
    assert world.available.tolist() == [[True] * 10]
    assert [P[0, 1] for P in world.transition] == list(preset.p01)
    assert [P[1, 0] for P in world.transition] == list(preset.p10)
    assert all(h.tolist() == [0.1, 1.0] for h in world.rewards)
    assert all(g.tolist() == [False, True] for g in world.good)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_note_and_full_rows(name: str) -> None:
    preset = PRESETS[name]
    assert len(preset.p01) == len(preset.p10) == len(preset.printed_means) == 10
    assert preset.note
    assert "\n" not in preset.note


def test_presets_differ() -> None:
    assert len({ib.scenario(name) for name in PRESETS}) == 4
