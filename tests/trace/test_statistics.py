"""Statistics of traces, by hand and against simulated chains."""

import json

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from idleband.trace.statistics import DwellTimes, statistics_of
from idleband.trace.waterfall import waterfall_of


def test_statistics_equal_values_computed_by_hand() -> None:
    busy = np.array([[0, 0, 1, 1, 0, 0, 0, 1, 0, 1], [0, 0, 1, 1, 0, 0, 0, 1, 0, 1], [1] * 10]).T
    found = ib.Trace.from_arrays(busy=busy).statistics()
    first = found.channels[0]
    assert first.occupancy == 0.4
    assert first.p01 == 2 / 3  # three busy slots before another slot, two of them followed by idle
    assert first.p10 == 3 / 6
    assert first.idle.counts == {3: 1, 1: 1}  # the first run is cut by the beginning
    assert first.busy.counts == {2: 1, 1: 1}
    assert first.idle.mean == 2
    assert first.idle.cv2 == pytest.approx(0.5)
    assert first.idle.geometric_cv2 == 0.5
    assert found.correlation is not None
    assert found.correlation[0, 1] == pytest.approx(1)
    assert np.isnan(found.correlation[0, 2])
    assert found.mean_correlation == pytest.approx(1)
    assert found.adjacent_correlation == pytest.approx(1)
    assert found.channels[2].to_dict()["p10"] is None


@given(hnp.arrays(bool, st.tuples(st.integers(2, 60), st.integers(1, 4))), st.integers(1, 20))
def test_chunks_give_the_same_statistics(busy: np.ndarray, size: int) -> None:
    K = busy.shape[1]
    whole = statistics_of([busy], K, 1.0, ())
    parts = statistics_of([busy[i : i + size] for i in range(0, len(busy), size)], K, 1.0, ())
    assert parts.to_dict() == whole.to_dict()
    for k, channel in enumerate(whole.channels):
        runs = ib.Trace.from_arrays(busy=busy).runs(k)
        lengths = runs.length[runs.complete & ~runs.busy]
        assert channel.idle.counts == {int(n): int((lengths == n).sum()) for n in np.unique(lengths)}
        assert runs.length.sum() == len(busy)
    image = waterfall_of([{"busy": busy[i : i + size]} for i in range(0, len(busy), size)], len(busy), K)
    assert np.array_equal(image.busy, busy)


def test_a_simulated_chain_has_its_probabilities_and_geometric_dwell_times() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    T, p01, p10 = 200_000, 0.2, 0.05
    busy = np.zeros(T, bool)
    draws = rng.random(T)
    for t in range(1, T):
        busy[t] = draws[t] >= p01 if busy[t - 1] else draws[t] < p10
    (channel,) = ib.Trace.from_arrays(busy=busy).statistics().channels
    for estimate, true, n in ((channel.p01, p01, busy.sum()), (channel.p10, p10, (~busy).sum())):
        assert abs(estimate - true) < 4 * np.sqrt(true * (1 - true) / n)
    runs = channel.idle.runs
    assert channel.idle.cv2 == pytest.approx(channel.idle.geometric_cv2, abs=4 * 3 / np.sqrt(runs))


def test_survival_of_dwell_times() -> None:
    lengths, share = DwellTimes({1: 2, 5: 1, 3: 1}).survival()
    assert lengths.tolist() == [1, 3, 5]
    assert share.tolist() == [1, 0.5, 0.25]


def test_statistics_are_json() -> None:
    found = ib.Trace.from_arrays(busy=[[0, 0], [0, 0]]).statistics()
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["occupancy"] == {"min": 0, "median": 0, "max": 0}


def test_a_long_trace_is_reduced_to_an_image() -> None:
    busy = np.zeros((4000, 3), bool)
    busy[:3, 1] = True
    image = waterfall_of([{"busy": busy, "power": busy * 1.0}], 4000, 3)
    assert image.slots_per_row == 3
    assert image.busy.shape == (1334, 3)
    assert image.busy[0].tolist() == [0, 1, 0]
    assert image.busy.sum() == 1
    assert image.kind == "power"
    assert image.level is not None
    assert np.array_equal(image.level, image.busy)
