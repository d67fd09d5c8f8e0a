"""Thresholds: rules, noise floors and notes."""

import numpy as np
import pytest

import idleband as ib
from idleband.trace.threshold import MAX_SAMPLE, ThresholdRule, sample_step


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (None, ThresholdRule(None, 0.10, 6.0)),
        (-70, ThresholdRule(-70.0)),
        (" -70.5 ", ThresholdRule(-70.5)),
        ("floor", ThresholdRule(None, 0.10, 6.0)),
        ("floor+8", ThresholdRule(None, 0.10, 8.0)),
        ("FLOOR - 2", ThresholdRule(None, 0.10, -2.0)),
        ("q2.5+3", ThresholdRule(None, 0.025, 3.0)),
    ],
)
def test_threshold_rules_are_parsed(text: object, rule: ThresholdRule) -> None:
    assert ThresholdRule.parse(text) == rule


@pytest.mark.parametrize(
    "text", ["", "high", "floor+", "floor+x", "q+3", "q0+3", "q100", "nan", "inf", True, [1], "floor+1.2.3"]
)
def test_invalid_threshold_rules_are_refused(text: object) -> None:
    with pytest.raises(ib.InputError, match="threshold = "):
        ThresholdRule.parse(text)


def noise(T: int, K: int, deviation: float = 1.0) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(5)).normal(-90, deviation, (T, K))


def test_noise_of_an_averaging_receiver_is_idle_and_signals_are_busy() -> None:
    power = noise(5000, 8)
    truth = np.random.Generator(np.random.PCG64(6)).random((5000, 8)) < np.linspace(0, 0.8, 8)
    trace = ib.Trace.from_arrays(power_dbm=power + 20 * truth)
    assert np.mean(trace.busy[~truth]) < 0.001
    assert trace.busy[truth].mean() > 0.999
    assert trace.notes == ()
    assert "10th percentile of the channel +6 dB" in trace.threshold_rule


def test_a_channel_that_is_always_busy_leaves_a_note() -> None:
    power = noise(500, 8)
    power[:, 3] += 30
    trace = ib.Trace.from_arrays(power_dbm=power, channel_names=[f"c{k}" for k in range(8)])
    assert trace.occupancy[3] < 0.01
    (note,) = trace.notes
    assert "noise floor of 1 channel (c3)" in note
    assert trace.with_threshold(-75).occupancy[3] == 1


def test_spectra_without_averaging_leave_a_note() -> None:
    draws = np.random.Generator(np.random.PCG64(8)).exponential(size=(500, 4))
    trace = ib.Trace.from_arrays(power_dbm=10 * np.log10(draws))
    assert any("without averaging" in note for note in trace.notes)


def test_a_short_recording_leaves_a_note() -> None:
    assert any("3 slots only" in note for note in ib.Trace.from_arrays(power_dbm=noise(3, 2)).notes)


def test_large_recordings_are_sampled() -> None:
    assert sample_step(1000, 100) == 1
    assert sample_step(MAX_SAMPLE, 3) == 3
