"""The class Trace: constructors, selection, thresholds, files."""

import copy
import pickle
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from tests.trace import recordings as make

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 5))


@given(st.data())
def test_arrays_come_back_from_a_file(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    T, K = data.draw(SHAPES)
    floats = {"width": 32, "allow_nan": False}
    power = data.draw(hnp.arrays(np.float32, (T, K), elements=st.floats(-200, 100, **floats)))
    reward = data.draw(st.none() | hnp.arrays(np.float32, (T, K), elements=st.floats(0, 1, **floats)))
    contexts = data.draw(st.none() | hnp.arrays(np.float32, (T, K, 2), elements=st.floats(-5, 5, **floats)))
    threshold = data.draw(st.none() | st.floats(-200, 100) | st.sampled_from(["floor+3", "q25+1"]))
    trace = ib.Trace.from_arrays(power_dbm=power, reward=reward, contexts=contexts, threshold=threshold, slot_s=0.25)
    path = tmp_path_factory.getbasetemp() / "round-trip.parquet"
    trace.save(path)
    again = ib.Trace.load(path)
    assert again.metadata == trace.metadata
    for name in ("busy", "power", "reward", "contexts"):
        before, after = getattr(trace, name), getattr(again, name)
        assert (before is None) == (after is None)
        assert before is None or np.array_equal(before, after)


def test_metadata_come_back_from_a_file(tmp_path: Path) -> None:
    trace = ib.Trace.from_arrays(
        busy=[[0, 1], [1, np.nan]], channel_names=["a b", "c/d"], freq_low_hz=[1e6, np.nan], freq_high_hz=[2e6, np.nan],
        source="roof", license="CC0", start="2024-01-01T00:00:00Z", slot_s=0.1,
    )  # fmt: skip
    trace.save(tmp_path / "t.parquet")
    again = ib.Trace.load(tmp_path / "t.parquet")
    assert (again.source, again.license, again.start, again.slot_s) == ("roof", "CC0", "2024-01-01T00:00:00Z", 0.1)
    assert again.channel_names == ("a b", "c/d")
    assert np.array_equal(again.freq_low_hz, [1e6, np.nan], equal_nan=True)
    assert np.isnan(again.threshold).all()
    assert again.metadata.filled == 1


def test_the_file_is_readable_without_the_package(tmp_path: Path) -> None:
    ib.Trace.from_arrays(power_dbm=[[-90.0, -60.0], [-60.0, -90.0]], threshold=-75).save(tmp_path / "t.parquet")
    table = pd.read_parquet(tmp_path / "t.parquet")
    assert list(table.columns) == ["slot", "busy_0", "busy_1", "power_0", "power_1"]
    assert table.busy_1.tolist() == [True, False]
    assert table.slot.tolist() == [1, 2]


def test_a_trace_is_pickled_and_not_copied() -> None:
    trace = ib.Trace.from_arrays(reward=[[0.2, 0.9], [0.7, 0.1]], channel_names=["a", "b"])
    assert copy.deepcopy(trace) is trace
    again = pickle.loads(pickle.dumps(trace))
    assert again.metadata == trace.metadata
    for name in ("busy", "reward", "power", "contexts"):
        assert np.array_equal(getattr(again, name), getattr(trace, name)), name


def test_a_trace_is_immutable() -> None:
    trace = ib.Trace.from_arrays(busy=[[0], [1]])
    with pytest.raises(AttributeError, match="immutable"):
        trace.busy = trace.busy
    with pytest.raises(ValueError, match="read-only"):
        trace.busy[0, 0] = True


def test_the_array_of_the_caller_stays_writeable() -> None:
    busy = np.zeros((3, 2), bool)
    ib.Trace(busy, ib.Trace.from_arrays(busy=busy).metadata)
    busy[0, 0] = True


def test_idle_is_the_opposite_of_busy() -> None:
    states = np.array([[0, 1], [1, 1]])
    assert np.array_equal(ib.Trace.from_arrays(idle=states).busy, states == 0)
    assert np.array_equal(ib.Trace.from_arrays(idle=states).idle, states == 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "one of them must be given"),
        ({"busy": [[0]], "idle": [[1]]}, "one of them is enough"),
        ({"busy": [[2]]}, r"busy\[0, 0\] = 2: must be 0 or 1"),
        ({"reward": [[0.5, 1.5]]}, r"reward\[0, 1\] = 1.5"),
        ({"power_dbm": [[1e9]]}, r"power\[0, 0\]"),
        ({"busy": [[0]], "power_dbm": [[-90, -80]]}, "expected"),
        ({"busy": np.zeros((0, 3))}, "has shape"),
        ({"busy": "x"}, "array of numbers"),
        ({"busy": [[0]], "threshold": -70}, "not with busy"),
        ({"busy": [[0, 1]], "channel_names": ["a"]}, "1 name for 2 channels"),
        ({"busy": [[0]], "slot_s": 0}, "slot_s = 0"),
        ({"busy": [[0]], "freq_low_hz": [2.0], "freq_high_hz": [1.0]}, "freq_low_hz 2 is above 1"),
        ({"power_dbm": [[-90]], "threshold": "florr+3"}, "must be a level such as -70"),
        ({"power_dbm": [[-90]], "threshold": "q120"}, "percentile"),
        ({"power": [[-90]], "power_unit": "W"}, "power_unit"),
        ({"busy": [[0]] + [[np.nan]] * 11}, "more than 10 slots in a row"),
    ],
)
def test_invalid_arrays_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        ib.Trace.from_arrays(**settings)


def test_channels_are_selected_by_index_name_range_and_frequency() -> None:
    low = np.arange(4) * 1e6
    trace = ib.Trace.from_arrays(
        power_dbm=make.powers(K=4), channel_names=list("abcd"), freq_low_hz=low, freq_high_hz=low + 1e6
    )
    for wanted in ([1, 2], ["b", 2], "1..2", "b,c", "b..c", "1 MHz..3 MHz", range(1, 3)):
        part = trace.select(channels=wanted)
        assert part.channel_names == ("b", "c")
        assert np.array_equal(part.power, trace.power[:, 1:3])
        assert np.array_equal(part.threshold, trace.threshold[1:3])
    for wrong in ("x", [9], "2..1", "8 MHz..9 MHz", []):
        with pytest.raises(ib.InputError):
            trace.select(channels=wrong)


def test_a_range_of_names_needs_no_frequencies() -> None:
    trace = ib.Trace.from_arrays(busy=np.zeros((2, 3)), channel_names=["1 MHz", "2 MHz", "3 MHz"])
    assert trace.select("2 MHz..3 MHz").channel_names == ("2 MHz", "3 MHz")
    with pytest.raises(ib.InputError, match="the frequencies of the channels are not known"):
        trace.select("2 MHz..4 MHz")


def test_slots_are_selected_and_the_start_moves() -> None:
    trace = ib.Trace.from_arrays(busy=np.eye(5), slot_s=60, start="2024-01-01T00:00:00Z")
    part = trace.select(slots=(2, 4))
    assert np.array_equal(part.busy, np.eye(5)[2:4])
    assert part.start == "2024-01-01T00:02:00Z"
    assert trace.select(slots=slice(-1, None)).T == 1
    for wrong in ((4, 4), slice(None, None, 2), 3):
        with pytest.raises(ib.InputError, match="slots"):
            trace.select(slots=wrong)


def test_a_threshold_needs_power_or_rewards() -> None:
    trace = ib.Trace.from_arrays(power_dbm=make.powers())
    assert trace.with_threshold(-200).busy.all()
    assert trace.with_threshold(-200).with_threshold("floor+6").threshold_rule == trace.threshold_rule
    assert ib.Trace.from_arrays(reward=[[0.2, 0.9]]).with_threshold(0.95).busy.tolist() == [[True, True]]
    with pytest.raises(ib.InputError, match="from 0 to 1"):
        ib.Trace.from_arrays(reward=[[0.2]]).with_threshold(-70)
    with pytest.raises(ib.InputError, match="neither power nor rewards"):
        ib.Trace.from_arrays(busy=[[0]]).with_threshold(-70)


def test_dataframes_with_gaps_in_time() -> None:
    values = make.powers(T=20, K=2)
    times = pd.date_range("2024-01-01", periods=20, freq="1s", tz="Europe/Rome")
    frame = pd.DataFrame(values, columns=["a", "b"], index=times).drop(times[5:7])
    trace = ib.Trace.from_dataframe(frame, threshold=-75)
    assert trace.T == 20
    assert trace.start == "2023-12-31T23:00:00Z"
    assert trace.metadata.filled == 4
    assert np.allclose(trace.power[7:], values[7:], atol=1e-4)
    with pytest.raises(ib.InputError, match="must be a pandas DataFrame"):
        ib.Trace.from_dataframe([[0]])  # type: ignore[arg-type]
    with pytest.raises(ib.InputError, match="not of numbers"):
        ib.Trace.from_dataframe(pd.DataFrame({"a": ["x"]}))


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (pd.to_datetime(["2024-01-01", None]), "DataFrame, row 1: has no time"),
        (["2024-01-01", "later"], "DataFrame, row 1: 'later' is not a time"),
        ([0.0, np.nan], "DataFrame, row 1: has no time"),
    ],
)
def test_dataframes_without_a_time_are_refused(times: Any, message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        ib.Trace.from_dataframe(pd.DataFrame({"time": times, "a": [0, 1]}))


def test_a_column_of_times_may_be_text() -> None:
    trace = ib.Trace.from_dataframe(pd.DataFrame({"time": ["2024-01-01 00:00:00", "2024-01-01 00:00:04"], "a": [0, 1]}))
    assert (trace.slot_s, trace.start) == (4.0, "2024-01-01T00:00:00Z")


def test_representations_as_text_and_html() -> None:
    trace = ib.Trace.from_arrays(busy=[[0], [1]], source="<roof>", channel_names=["a"])
    assert repr(trace) == "Trace(2 slots of 1 s, 1 channel, busy 0.5 to 0.5 of the time)"
    html = trace._repr_html_()
    assert "&lt;roof&gt;" in html
    assert "True where a primary user is present" in html
