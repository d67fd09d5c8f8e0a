"""A policy replayed on a log selects in every slot and learns from the logged feedback, when it came."""

import numpy as np
import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.evaluation.evaluate import selections
from idleband.evaluation.replay import fixed_selections, policy_selections
from tests.evaluation.simulated import simulated


@pytest.mark.parametrize("delay", [0, 3])
def test_a_policy_without_random_choices_repeats_its_own_log(delay: int) -> None:
    log = simulated("S1", "mp-ucb", 150, 0, delay=delay).log
    assert np.array_equal(policy_selections(log, "mp-ucb"), log.selected)
    assert not np.array_equal(policy_selections(log, "mp-ucb:L=0.1"), log.selected)


def test_the_delay_of_feedback_matters() -> None:
    log = simulated("S1", "mp-random", 150, 0, delay=4).log
    soon = simulated("S1", "mp-random", 150, 0).log
    assert np.array_equal(log.selected, soon.selected)
    assert not np.array_equal(policy_selections(log, "mp-ucb"), policy_selections(soon, "mp-ucb"))


def test_a_policy_that_randomises_has_other_draws_than_the_logging_policy() -> None:
    """With propensities their probabilities count; the draws of Thompson sampling depend on the seed."""
    log = simulated("S1", "mp-ts", 60, 0).log
    assert (policy_selections(log, "mp-random") == 0.5).all()
    own = policy_selections(log, "mp-ts")
    assert not np.array_equal(own, log.selected)
    assert np.array_equal(own, policy_selections(log, "mp-ts"))
    assert not np.array_equal(own, policy_selections(log, "mp-ts", seed=1))


def test_typed_and_users_policies() -> None:
    log = simulated("S1", "mp-random", 40, 0).log
    typed = policy_selections(log, ib.policies.MPUCB(L=0.5))
    assert np.array_equal(typed, policy_selections(log, "mp-ucb:L=0.5"))
    assert list(selections(log, ["mp-ucb:L=0.5"], [["ch2", "ch1", 4, "5", 7]])) == [
        "mp-ucb L=0.5", "channels ch2,ch1,ch5,ch6,ch8",
    ]  # fmt: skip


def test_fixed_sets_play_what_is_available() -> None:
    log = simulated("S1", "mp-random", 3, 0).log
    log.available[1, 0] = False
    log.users[2] = 2
    found = fixed_selections(log, (0, 1, 2, 3, 4))
    assert found.sum(axis=1).tolist() == [5, 4, 2]
    assert found[2, :2].tolist() == [1, 1]
    with pytest.raises(InputError, match=r"channels: 2 channels; must be 5, one per user"):
        fixed_selections(log, (0, 1))


def test_a_policy_that_observes_all_states_is_refused_on_a_log_without_them() -> None:
    log = simulated("S1", "mp-random", 5, 0).log
    with pytest.raises(InputError, match=r"policy genie: observes all states .* does not have them"):
        policy_selections(log, "genie")
