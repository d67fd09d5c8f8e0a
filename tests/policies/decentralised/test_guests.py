"""What a user believes of others on channels that are not its own."""

from typing import Any

import numpy as np
import pytest

from idleband.policies.decentralised.guests import forget_guests, learn_occupied, new_guests, occupied
from idleband.policies.knowledge import setup_of
from idleband.policies.protocol import Feedback
from tests.policies.decentralised.band import independent


def setup(K: int = 3) -> Any:
    return setup_of(independent([0.5] * K, 1), ())


def test_before_any_play_the_probability_is_one_half() -> None:
    assert occupied(new_guests(3), 1, 5) == 0.5


def test_collisions_on_good_channels_are_learned_and_fade() -> None:
    """Others come with probability 0.05 and leave with 0.2: after 3000 slots the fit is close to that."""
    guests, rng, taken = new_guests(3), np.random.default_rng(1), 0
    for t in range(1, 3001):
        taken = int(rng.random() < (0.8 if taken else 0.05))
        learn_occupied(setup(), guests, Feedback(1, 1, 0.0, np.nan, taken), t)
    now = occupied(guests, 1, 3001)
    assert now == pytest.approx(0.8 if taken else 0.05, abs=0.05)
    assert occupied(guests, 1, 3100) == pytest.approx(0.2, abs=0.05)
    forget_guests(guests)
    assert occupied(guests, 1, 3100) == 0.5


def test_collisions_on_bad_channels_do_not_count() -> None:
    guests = new_guests(3)
    learn_occupied(setup(), guests, Feedback(1, 0, 0.0, np.nan, 1), 1)
    assert occupied(guests, 1, 2) == 0.5
    learn_occupied(setup(), guests, Feedback(1, 1, 0.0, np.nan, 1), 1)
    assert occupied(guests, 1, 1) == 1.0
