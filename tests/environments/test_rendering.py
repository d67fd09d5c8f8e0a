"""Images of the last slots."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import idleband as ib
from idleband.environments.rendering import BUSY, CELL, COLOURS, IDLE, PLAYED, SLOTS, UNAVAILABLE, UNKNOWN

MIDDLE = CELL // 2


def cells(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the colours of the cells as numbers, and which have a mark."""
    K = image.shape[0] // CELL
    assert image.shape == (K * CELL, SLOTS * CELL, 3)
    assert image.dtype == np.uint8
    corners = image[2::CELL, 2::CELL]
    kinds = (corners[:, :, None] == COLOURS).all(axis=-1)
    assert (kinds.sum(axis=-1) == 1).all()
    marked = (image[MIDDLE::CELL, MIDDLE::CELL] == PLAYED).all(axis=-1)
    return kinds.argmax(axis=-1), marked


@pytest.mark.parametrize("settings", [{}, {"sensing": "all", "sensing_errors": {"missed": 0.3, "false_alarm": 0.3}}])
def test_image_shows_what_was_observed_and_played(settings: dict[str, Any]) -> None:
    rows = [[1] * 10, [1, 0] * 5]
    scenario = ib.scenario("S1", availability=rows, **settings)
    made: Any = gymnasium.make("idleband/Channels-v1", scenario=scenario, render_mode="rgb_array").unwrapped
    by_hand = ib.Environment(scenario, horizon=1000, seed=1)
    made.reset(seed=1)
    seen = by_hand.reset()
    made.action_space.seed(0)
    expected, marks = np.full((10, SLOTS), UNAVAILABLE), np.zeros((10, SLOTS), bool)
    for _ in range(SLOTS + 15):
        info = made.step(made.action_space.sample())[4]
        step = by_hand.step(np.flatnonzero(info["played"]))
        known = np.where(seen.sensed == 1, IDLE, np.where(seen.sensed == 0, BUSY, UNKNOWN))
        column = np.where(seen.available, known, UNAVAILABLE)
        for one in step.feedback:
            column[one.channel] = IDLE if one.state == 1 else BUSY
        expected = np.column_stack([expected[:, 1:], column])
        marks = np.column_stack([marks[:, 1:], info["played"]])
        seen = step.observation
        found, marked = cells(made.render())
        assert np.array_equal(found[:, :-1], expected[:, 1:])  # the last column is the slot that is played next
        assert np.array_equal(marked[:, :-1], marks[:, 1:])
    assert set(np.unique(expected)) >= {BUSY, IDLE}
    made.reset()
    found, marked = cells(made.render())
    assert (found[:, :-1] == UNAVAILABLE).all()
    assert not marked.any()


def test_render_needs_a_mode() -> None:
    made: Any = gymnasium.make("idleband/Channels-v1", scenario="S1").unwrapped
    made.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert made.render() is None


def test_wrong_mode_is_refused() -> None:
    from idleband.environments.channels import ChannelsEnv

    with pytest.raises(ib.InputError, match=r"^render_mode = 'human': must be one of rgb_array$"):
        ChannelsEnv("S1", render_mode="human")
