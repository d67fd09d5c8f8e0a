"""Replayed traces in simulations: horizon, checkpoints, rewards per block and their intervals."""

import math

import numpy as np
import pytest

import idleband as ib
from idleband.scenario.recording import Recording
from idleband.simulation.blocks import block_samples
from idleband.simulation.path import MAX_BLOCKS_RUN, checkpoints
from idleband.simulation.simulate import check_size
from idleband.simulation.statistics import Difference, Interval, Samples, block_bootstrap, effective_number


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
    assert marks[-1] == horizon
    assert (np.diff(marks) > 0).all()
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


@pytest.mark.parametrize(("T", "block", "horizon"), [(120, 6, 120), (125, 30, 125), (125, 30, 400), (125, 30, 47)])
def test_rewards_are_assigned_to_the_blocks_in_which_they_were_earned(T: int, block: int, horizon: int) -> None:
    recording, R = Recording(make_trace(T), block), 3
    rng = np.random.default_rng(1)
    per_slot = rng.random((R, horizon))
    totals, counts = np.zeros(recording.blocks), np.zeros(recording.blocks)
    for i in range(R):
        for t in range(horizon):
            b = min((recording.first_slot(i) + t) % T // block, recording.blocks - 1)
            totals[b] += per_slot[i, t]
            counts[b] += 1
    t = checkpoints(horizon, recording)
    found = block_samples(recording, t, per_slot.cumsum(axis=1)[:, t - 1])
    run = counts > 0
    assert found.values == pytest.approx(totals[run] / counts[run])
    assert found.weights == pytest.approx(counts[run] / counts.sum())
    assert found.mean == pytest.approx(per_slot.mean())


def autocorrelated(rng: np.random.Generator, slots: int, correlation: float) -> np.ndarray:
    """An AR(1) series with mean 0 and variance 1."""
    noise = rng.normal(size=slots) * math.sqrt(1.0 - correlation**2)
    series = np.empty(slots)
    series[0] = rng.normal()
    for t in range(1, slots):
        series[t] = correlation * series[t - 1] + noise[t]
    return series


@pytest.mark.parametrize(("blocks", "correlation", "least"), [(20, 0.5, 0.95), (20, 0.95, 0.94), (50, 0.95, 0.94)])
def test_block_bootstrap_has_its_coverage_where_slots_are_correlated(
    blocks: int, correlation: float, least: float
) -> None:
    """Of 600 series with blocks of 100 slots, at least 95% of the intervals contain the mean, within four standard
    errors of that rate; at most 99%. The least rate allows for the bias with a correlation time of 20 slots, a fifth of
    a block."""
    rng = np.random.default_rng(3)
    means = np.array([autocorrelated(rng, 100 * blocks, correlation).reshape(blocks, 100).mean(1) for _ in range(600)])
    weights = np.full(blocks, 1.0 / blocks)
    covered = np.mean([low <= 0.0 <= high for low, high in (block_bootstrap(row, weights) for row in means)])
    error = math.sqrt(least * (1.0 - least) / 600)
    assert least - 4 * error < covered < 0.99
    # As if slots were independent, most intervals would miss the mean.
    naive = 1.96 / math.sqrt(100 * blocks)
    assert np.mean(np.abs(means.mean(axis=1)) <= naive) < 0.8


def test_weights_count_in_the_block_bootstrap() -> None:
    values, weights = np.array([0.0] * 10 + [100.0]), np.array([1.0] * 10 + [1e-9])
    assert effective_number(weights) == 10
    assert block_bootstrap(values, weights) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_text_of_an_interval_names_its_method() -> None:
    rng = np.random.default_rng(0)
    found = Samples(rng.random(20), 5, np.full(20, 0.05)).interval()
    assert (found.method, found.blocks, found.replications) == ("block bootstrap", 20, 5)
    assert str(found).endswith("] (block bootstrap over 20 blocks of one recording)")
    assert found.low < found.mean < found.high
    assert found.half_width == pytest.approx((found.high - found.low) / 2)
    line = str(Difference.of(found, "a", "b", "reward", "per slot"))
    assert line.endswith(
        f"95% interval {found.low:.4g} to {found.high:.4g}, block bootstrap over 20 blocks of one recording"
    )
    few = Samples(rng.random(2), 5, np.array([0.5, 0.5])).interval()
    assert (few.low, few.high) == (-math.inf, math.inf)
    assert str(few).endswith("(2 blocks of one recording, no interval)")
    assert str(Interval(1.0, -math.inf, math.inf, 1)) == "1 (one replication, no interval)"
    assert Interval(1.0, 0.5, 1.5, 3).method == "Student t"


def test_intervals_of_a_replay_come_from_blocks_even_with_one_replication() -> None:
    study = ib.compare(ib.scenario(make_trace(400), users=2), ["mp-random", "mp-ucb"], replications=1)
    found = study.difference("mp-ucb", "mp-random", per_slot=True)
    assert found.blocks == 20
    assert 0.0 < found.low < found.mean < found.high
    a, b = (study[label].samples(per_slot=True) for label in ("mp-ucb", "mp-random"))
    assert (a - b).interval() == tuple(found)
    assert "block bootstrap over 20 blocks of one recording" in study._repr_html_()
    assert "block bootstrap over 20 blocks of one recording" in str(study)
    assert "block bootstrap over 20 blocks of one recording" in study["mp-ucb"]._repr_html_()
    assert study.table().reward_pm["mp-ucb"] == pytest.approx(study.interval("mp-ucb", per_slot=True).half_width)
    short = ib.simulate(study.scenario, "mp-ucb", horizon=30, replications=1)
    assert short.samples().interval().basis == "2 blocks of one recording, no interval"
    with pytest.raises(ib.InputError, match="column"):
        short.samples("rewards")


def test_samples_of_a_simulated_scenario_are_its_replications() -> None:
    result = ib.simulate("S1", "mp-random", horizon=100, replications=3)
    assert np.array_equal(result.samples(per_slot=True).values, result.reward[:, -1] / 100)
    assert np.array_equal(result.samples("collisions", at=3).values, result.curves["collisions"][:, 3])
