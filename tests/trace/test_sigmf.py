"""SigMF recordings: annotations and power."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from tests.trace import recordings as make

pytest.importorskip("sigmf")


def tone(count: int, offset_hz: float, level: float) -> Any:
    return level * np.exp(2j * np.pi * offset_hz / 1e6 * np.arange(count))


def interleaved(samples: Any, kind: str) -> Any:
    return np.stack([samples.real, samples.imag], axis=-1).round().astype(kind)


def test_annotations_give_busy(tmp_path: Path) -> None:
    annotation = {"core:sample_start": 1000, "core:sample_count": 1000,
                  "core:freq_lower_edge": 100.1e6, "core:freq_upper_edge": 100.24e6}  # fmt: skip
    edges = {"core:freq_lower_edge": 99.6e6, "core:freq_upper_edge": 99.6e6}
    narrow = {"core:sample_start": 0, "core:sample_count": 1, **edges}
    path = make.sigmf_recording(tmp_path / "a", np.zeros((4000, 2), "<i2"), annotations=[narrow, annotation])
    trace = ib.Trace.read(path, bins=10, slot_s=0.0005)
    expected = np.zeros((8, 10), bool)
    expected[2:4, 6] = True  # the centre of channel 6 is 100.15 MHz; that of 7 is 100.25 MHz
    expected[0, [0, 1]] = True  # on the edge between two channels
    assert np.array_equal(trace.busy, expected)
    assert trace.power is None
    assert trace.start == "2024-01-01T00:00:00Z"


@pytest.mark.parametrize("kind", ["ci16_le", "ci16_be", "cf32_le", "cu8"])
def test_power_of_a_tone(tmp_path: Path, kind: str) -> None:
    samples = tone(6400, 0.25e6, 50.0)
    samples[:3200] /= 1000
    stored = {
        "ci16_le": lambda: interleaved(samples, "<i2"),
        "ci16_be": lambda: interleaved(samples, ">i2"),
        "cf32_le": lambda: samples.astype("<c8"),
        "cu8": lambda: interleaved(samples + 128 + 128j, "u1"),
    }[kind]()
    path = make.sigmf_recording(tmp_path / "a", stored, kind)
    trace = ib.Trace.read(path, bins=20, threshold=10)
    assert trace.T == 10
    assert trace.busy[5:, 15].all()  # 100.25 MHz
    assert not trace.busy[:, :13].any()
    assert not trace.busy[:5].any()
    assert trace.power_unit == "dB"


def test_streams_of_a_recording_with_several_channels(tmp_path: Path) -> None:
    both = np.stack([tone(640, 0, 100), tone(640, 0.3e6, 100)], axis=-1)
    path = make.sigmf_recording(tmp_path / "a", both.astype("<c8"), "cf32_le", about={"core:num_channels": 2})
    trace = ib.Trace.read(path, bins=10, threshold=20)
    assert trace.K == 20
    assert trace.channel_names[10].startswith("rx1 ")
    assert trace.busy[0, 5]
    assert trace.busy[0, 18]
    assert not trace.busy[0, 8]


def test_half_floats_without_byte_order_are_read(tmp_path: Path) -> None:
    samples = np.cos(2 * np.pi * 0.1 * np.arange(640)).astype("<f2")
    path = make.sigmf_recording(tmp_path / "a", samples, "rf16")
    trace = ib.Trace.read(path, bins=10)
    assert int(trace.power[0].argmax()) == 2  # 100 kHz of 500 kHz


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"about": {"core:sample_rate": 0}}, "core:sample_rate"),
        ({"about": {"core:num_channels": 2000}}, "num_channels"),
        ({"about": {"core:sha512": "0" * 128}}, "hash"),
        ({"annotations": [{"core:sample_start": -5}]}, "annotation 0"),
        ({"captures": [{"core:sample_start": 0, "core:frequency": f} for f in (1e8, 2e8)]}, "2 frequencies"),
    ],
)
def test_damaged_metadata_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = make.sigmf_recording(tmp_path / "a", np.ones((4000, 2), "<i2"), **changes)
    with pytest.raises(ib.InputError, match=message):
        ib.Trace.read(path, bins=10)


def test_samples_that_end_before_an_annotation_are_refused(tmp_path: Path) -> None:
    annotation = {"core:sample_start": 5000, "core:sample_count": 10}
    path = make.sigmf_recording(tmp_path / "a", np.ones((4000, 2), "<i2"), annotations=[annotation])
    with pytest.raises(ib.InputError, match="ends before the final annotation"):
        ib.Trace.read(path)


def test_truncated_samples_are_refused(tmp_path: Path) -> None:
    path = make.sigmf_recording(tmp_path / "a", np.ones((100, 2), "<i2"))
    with pytest.raises(ib.InputError, match="100 samples are fewer"):
        ib.Trace.read(path)
    (tmp_path / "a.sigmf-data").unlink()
    with pytest.raises(ib.InputError):
        ib.Trace.read(path)
