"""Replay: traces slot by slot, circular shifts, recorded rewards, long-run quantities, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from tests.scenario.paths import check_round_trip, refused, walk

RNG = np.random.default_rng(3)
BUSY = RNG.random((103, 4)) < [0.2, 0.5, 0.8, 0.6]


def traced(busy: Any = BUSY, **settings: Any) -> ib.Trace:
    return ib.Trace.from_arrays(busy=busy, **settings)


def states_of(scenario: ib.Scenario, replication: int = 0, slots: int = 103) -> np.ndarray:
    return walk(scenario, slots=slots, replication=replication).states


def test_states_are_those_of_the_trace() -> None:
    scenario = ib.scenario(traced(), users=2)
    assert np.array_equal(states_of(scenario) == 0, BUSY)
    assert np.array_equal(states_of(scenario, slots=250) == 0, np.resize(BUSY, (250, 4)))


def test_replications_are_shifts_by_whole_blocks() -> None:
    scenario = ib.scenario(trace={"file": traced(), "block": 10}, users=2)
    assert scenario.recording is not None
    starts = [scenario.recording.first_slot(i) for i in range(10)]
    assert sorted(starts) == list(range(0, 100, 10))
    for i, start in enumerate(starts):
        assert np.array_equal(states_of(scenario, i) == 0, np.roll(BUSY, -start, axis=0))
    assert np.array_equal(states_of(scenario, 0), states_of(scenario, 10))  # as many starting points as blocks


def test_seeds_do_not_change_a_replay() -> None:
    scenario = ib.scenario(traced(), users=2)
    assert np.array_equal(walk(scenario, 50, seed=1).states, walk(scenario, 50, seed=2).states)


def test_long_run_quantities_are_exact() -> None:
    """Along the circular trace; a channel that never changes keeps its share of good slots."""
    busy = np.column_stack([BUSY, np.ones(103), np.zeros(103)]).astype(bool)
    scenario = ib.scenario(traced(busy), users=2)
    np.testing.assert_allclose(scenario.good_shares, 1 - busy.mean(axis=0), atol=1e-8)
    for k in range(4):
        good, after = ~busy[:, k], ~np.roll(busy[:, k], -1)
        P = scenario.marginal_transition[k]
        assert P[1, 0] == pytest.approx((good & ~after).sum() / good.sum())
        assert P[0, 1] == pytest.approx((~good & after).sum() / (~good).sum())
    assert not scenario.markov


def test_recorded_rewards_are_paid_by_the_additive_reward() -> None:
    rewards = RNG.random((103, 4)).astype(np.float32)
    trace = ib.Trace.from_arrays(reward=rewards, busy=BUSY)
    scenario = ib.scenario(trace, users=4, reward="additive")
    np.testing.assert_allclose(scenario.table_means, rewards.mean(axis=0), rtol=1e-6)
    assert scenario.reward_range() == (0.0, 1.0)
    result = ib.simulate(scenario, "mp-random", horizon=103, replications=2, record="slots")
    assert result.slots is not None
    assert scenario.recording is not None
    found = result.slots.reward.to_numpy().reshape(2, 103, 4)
    for i in range(2):
        np.testing.assert_array_equal(found[i], np.roll(rewards, -scenario.recording.first_slot(i), axis=0))
    np.testing.assert_allclose(result.reward[:, -1], rewards.sum(dtype=float), rtol=1e-12)
    threshold = ib.scenario(trace, users=4)
    np.testing.assert_allclose(threshold.table_means, 0.1 + 0.9 * (1 - BUSY.mean(axis=0)))
    check_round_trip(scenario)
    check_round_trip(threshold)


def test_a_file_is_identified_by_its_content(tmp_path: Path) -> None:
    first, second, other = (tmp_path / f"{name}.parquet" for name in ("first", "second", "other"))
    traced(channel_names=["a", "b", "c", "d"]).save(first)
    second.write_bytes(first.read_bytes())
    traced(~BUSY, channel_names=["a", "b", "c", "d"]).save(other)
    scenarios = [ib.scenario(path, users=2, name="same") for path in (first, second, other)]
    assert scenarios[0] == scenarios[1] != scenarios[2]
    assert scenarios[0].channel_names == ("a", "b", "c", "d")
    assert ib.scenario(str(first), users=2).name == "first"
    assert ib.scenario(scenarios[0], users=3).users == 3
    for scenario in scenarios:
        check_round_trip(scenario)
    assert np.array_equal(states_of(scenarios[0]), states_of(ib.scenario(traced(), users=2)))


def test_a_trace_file_named_in_a_scenario_file_is_beside_it(tmp_path: Path) -> None:
    traced().save(tmp_path / "x.parquet")
    for text in ('trace = "x.parquet"\n', '[scenario.trace]\nfile = "x.parquet"\nblock = 20\n'):
        (tmp_path / "s.toml").write_text(f"[scenario]\nusers = 2\n{text}")
        scenario = ib.scenario(tmp_path / "s.toml")
        assert np.array_equal(states_of(scenario) == 0, BUSY)


def test_a_trace_replaces_channels() -> None:
    scenario = ib.scenario(ib.scenario("S1", users=2, context={"dimension": 3}), trace=traced())
    assert (scenario.K, scenario.users, scenario.dimension, scenario.channel_names) == (4, 2, 3, ())
    assert ib.scenario(scenario, p01=[0.1] * 4, p10=[0.1] * 4).recording is None


def test_channel_names_of_a_scenario_replace_those_of_its_trace() -> None:
    scenario = ib.scenario(traced(channel_names=["a", "b", "c", "d"]), users=1, channel_names=["w", "x", "y", "z"])
    assert scenario.channel_names == ("w", "x", "y", "z")
    check_round_trip(scenario)


def test_availability_of_a_trace() -> None:
    scenario = ib.scenario(traced(), users=1, availability=[[1, 0, 0, 0], [0, 1, 1, 1]])
    result = ib.simulate(scenario, "mp-random", horizon=100, replications=1, record="slots")
    assert result.slots is not None
    picked = result.slots[result.slots.picked]
    assert ((picked.channel == 0) == (picked.t % 2 == 1)).all()
    assert picked.good.sum() == 100 - result.curves["collisions"][0, -1]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"trace": 5}, "scenario.trace = 5: must be a table of settings"),
        ({"trace": {"block": 5}}, "scenario.trace.file = None: must be the name of a trace file, or an ib.Trace"),
        ({"trace": {"file": traced(), "blocks": 5}}, "unknown key 'blocks' in scenario.trace: did you mean 'block'?"),
        (
            {"trace": {"file": traced(), "block": 104}},
            "scenario.trace.block = 104: must be a whole number from 1 to 103",
        ),
        ({"trace": {"file": traced(BUSY[:1])}}, "scenario.trace: has 1 slot; must have at least 2"),
        ({"trace": "no.parquet"}, "no.parquet"),
        ({"p01": [0.1]}, "scenario.p01: not used with trace; leave it out"),
        ({"good": [1]}, "scenario.good: not used with trace; leave it out"),
        ({"dwell": {}}, "scenario.trace: give only one of dwell, regimes, trace"),
        ({"shocks": {"start": 0.1, "end": 0.1}}, "scenario.shocks: not used with trace; leave it out"),
        ({"correlation": {"common": 0.1}}, "scenario.correlation: not used with trace; leave it out"),
        ({"channel_names": ["a"] * 4}, "scenario.channel_names = 'a': is given twice; channel names must differ"),
        ({"channel_names": ["a"]}, "scenario.channel_names"),
        ({"users": 5}, "scenario.users = 5: must be a whole number from 1 to 4"),
        ({"base": "S1"}, "scenario.trace: give either base or channels, not both"),
    ],
)
def test_invalid_replays_are_refused_in_one_line(change: dict[str, Any], line: str) -> None:
    assert line in refused({"trace": traced(), "users": 1, **change})


def test_recorded_rewards_cannot_be_given_again() -> None:
    trace = ib.Trace.from_arrays(reward=np.full((9, 2), 0.5))
    table = {"trace": trace, "users": 1, "reward": "additive", "rewards": [0.0, 1.0]}
    assert "scenario.rewards: must be left out; the trace has recorded rewards" in refused(table)
