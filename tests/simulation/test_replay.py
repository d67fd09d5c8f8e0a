"""Replayed traces in simulations: horizon, checkpoints, and rewards per block."""

import numpy as np
import pytest

import idleband as ib
from idleband.scenario.recording import Recording
from idleband.simulation.path import MAX_BLOCKS_RUN, checkpoints
from idleband.simulation.simulate import check_size


def make_trace(T: int = 120, K: int = 4, seed: int = 0) -> ib.Trace:
    """A trace of channels with different occupancies."""
    busy = np.random.default_rng(seed).random((T, K)) < np.linspace(0.2, 0.7, K)
    return ib.Trace.from_arrays(busy=busy, channel_names=[f"f{k}" for k in range(K)])


def test_the_horizon_of_a_replay_is_the_length_of_the_trace() -> None:
    replayed, simulated = ib.scenario(make_trace(), users=2), ib.scenario("S1")
    assert check_size(replayed, None, 2, 0) == (120, 2, 0)
    assert check_size(replayed, 50, 2, 0)[0] == 50
    assert check_size(simulated, None, 2, 0)[0] == 100_000
    assert check_size(simulated, None, 2, 0, 7)[0] == 7
    assert ib.simulate(replayed, "mp-random", replications=1).horizon == 120
    assert ib.compare(replayed, ["mp-random"], replications=1)["mp-random"].horizon == 120


def test_a_replay_of_too_many_blocks_is_refused() -> None:
    scenario = ib.scenario(make_trace(), users=2)
    assert check_size(scenario, 6 * MAX_BLOCKS_RUN, 1, 0)[0] == 6 * MAX_BLOCKS_RUN
    with pytest.raises(ib.InputError, match=r"experiment\.horizon = 60001: must be a whole number from 1 to 60000"):
        check_size(scenario, 6 * MAX_BLOCKS_RUN + 1, 1, 0)


@pytest.mark.parametrize(("T", "block", "horizon"), [(120, 6, 120), (125, 30, 125), (125, 30, 400), (125, 30, 20)])
def test_checkpoints_of_a_replay_contain_the_ends_of_blocks(T: int, block: int, horizon: int) -> None:
    recording = Recording(make_trace(T), block)
    marks = checkpoints(horizon, recording)
    assert set(checkpoints(horizon)) <= set(marks)
    assert marks[-1] == horizon and (np.diff(marks) > 0).all()
    starts = [b * block for b in range(recording.blocks)]  # the remainder belongs to the last block
    for replication in range(recording.blocks):
        first = recording.first_slot(replication)
        assert first in starts
        assert {t for t in range(1, horizon) if (first + t) % T in starts} <= set(marks)


def test_checkpoints_of_an_endless_replay_are_limited() -> None:
    assert len(checkpoints(10**10, Recording(make_trace(), 6))) < 3 * MAX_BLOCKS_RUN


def test_a_scenario_of_a_trace_with_channel_names_can_be_changed() -> None:
    scenario = ib.scenario(make_trace(), users=2)
    assert ib.scenario(scenario.to_dict()) == scenario
    assert ib.scenario(scenario, users=3).channel_names == ("f0", "f1", "f2", "f3")
