"""The paper's four scenarios as they come."""

import pytest

import idleband as ib
from idleband.scenario.presets import PRESETS


def test_there_are_four() -> None:
    assert list(PRESETS) == ["S1", "S2", "S3", "S4"]


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
    law = world.perturbation
    assert (law.kind, law.clear, law.theta, law.theta_norm, law.per_channel) == ("linear", 0.7, None, None, False)
    assert law.drawn
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
