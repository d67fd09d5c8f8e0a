"""Every format: values, channels, slots and times of a small recording."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import idleband as ib
from idleband.trace.formats.registry import MODULES, ORDER, detect, format_of
from tests.trace import recordings as make


def test_every_format_is_tried_and_described() -> None:
    assert sorted(ORDER) == sorted(MODULES)
    assert all(format_of(name).DESCRIPTION for name in MODULES)


@pytest.mark.parametrize("comma", [", ", ","])
def test_rtl_power_drops_the_repeated_reading(tmp_path: Path, comma: str) -> None:
    values = make.powers()
    path = make.rtl_power(tmp_path / "sweep.csv", values, comma=comma, second=10)
    assert detect(path) == "rtl_power"
    trace = ib.Trace.read(path)
    assert np.allclose(trace.power, values)
    assert (trace.slot_s, trace.power_unit, trace.start) == (10.0, "dB", "2024-01-01T00:00:00Z")
    assert trace.channel_names[:2] == ("100.005 MHz", "100.015 MHz")
    assert trace.freq_low_hz[0] == 100e6
    assert trace.freq_high_hz[-1] == 100.06e6
    assert np.array_equal(trace.busy, values > -75)


def test_rtl_power_with_one_bin_per_row(tmp_path: Path) -> None:
    values = make.powers(K=3)
    assert np.allclose(ib.Trace.read(make.rtl_power(tmp_path / "sweep.csv", values, rows=3)).power, values)


def test_hackrf_sweep_sorts_interleaved_rows(tmp_path: Path) -> None:
    values = make.powers(T=30, K=20)
    path = make.hackrf_sweep(tmp_path / "sweep.csv", values)
    assert detect(path) == "hackrf_sweep"
    trace = ib.Trace.read(path)
    assert np.allclose(trace.power, values)
    assert trace.slot_s == pytest.approx(0.1)
    assert np.all(np.diff(trace.freq_low_hz) > 0)


@pytest.mark.parametrize("maker", [make.soapy_csv, make.soapy_fftw, make.soapy_bin])
def test_soapy_power_outputs(tmp_path: Path, maker: object) -> None:
    values = make.powers()
    path = maker(tmp_path / "hops", values)  # type: ignore[operator]
    assert detect(path) == "soapy_power"
    trace = ib.Trace.read(path)
    assert np.allclose(trace.power, values)
    assert trace.slot_s == {make.soapy_csv: 4.0, make.soapy_fftw: 1.0, make.soapy_bin: 2.0}[maker]  # type: ignore[index]


def test_iw_survey_gives_shares_of_idle_time(tmp_path: Path) -> None:
    dumps = [
        {2412: (1000, 100), 2437: (500, 50), 2462: (59, 10)},
        {2412: (2000, 1000), 2437: (600, 60), 2462: (59, 10)},
        {2412: (500, 100), 2437: (700, 160), 2462: (59, 10)},  # the counters of the first began again
    ]
    trace = ib.Trace.read(make.iw_survey(tmp_path / "survey.txt", dumps))
    assert trace.channel_names == ("2412 MHz", "2437 MHz")
    assert np.allclose(trace.reward, [[0.1, 0.9], [0.8, 0.0]])
    assert trace.busy.tolist() == [[True, False], [False, True]]
    assert trace.slot_s == 10
    assert any("left out" in note for note in trace.notes)
    assert any("began again" in note for note in trace.notes)


def test_iw_survey_ignores_fields_that_it_does_not_know(tmp_path: Path) -> None:
    path = make.iw_survey(tmp_path / "survey", [{5955: (1000 * i, 100 * i)} for i in range(1, 4)])
    text = path.read_text()
    path.write_text(text.replace("\tchannel busy time", "\tchannel BSS receive time:\t7 ms\n\tchannel busy time"))
    assert ib.Trace.read(path).reward == pytest.approx(0.9)


def test_iw_survey_in_one_file_per_dump(tmp_path: Path) -> None:
    paths = [
        make.iw_survey(tmp_path / f"{i}.txt", [{2412: (1000 * (i + 1), 300 * (i + 1))}], start=None) for i in range(3)
    ]
    assert np.allclose(ib.Trace.read(*paths, slot_s=5).reward, 0.7)
    with pytest.raises(ib.InputError, match="--slot"):
        ib.Trace.read(*paths)


def test_iw_survey_keeps_the_larger_of_two_entries_of_a_frequency(tmp_path: Path) -> None:
    first = make.iw_survey(tmp_path / "a", [{2412: (100_000, 42_000)}]).read_text()
    second = make.iw_survey(tmp_path / "b", [{2412: (101_000, 42_500)}], start=None).read_text()
    scan = make.iw_survey(tmp_path / "c", [{2412: (59, 20)}], start=None).read_text()
    path = tmp_path / "survey.txt"
    path.write_text(f"{first}{scan}1700000010\n{second}{scan}")
    assert ib.Trace.read(path).reward == pytest.approx(0.5)


def test_k7_of_all_links_and_of_one(tmp_path: Path) -> None:
    values = np.array([[1.0, 0.25, 0.5], [0.75, 0.5, 1.0]])
    path = make.k7(tmp_path / "lab.k7", values, links=[(0, 1), (3, 2)])
    assert detect(path) == "k7"
    trace = ib.Trace.read(path, link="3-2")
    assert np.allclose(trace.reward, values)
    assert np.allclose(ib.Trace.read(path).reward, values)
    assert trace.channel_names == ("ch11", "ch12", "ch13")
    assert trace.slot_s == 600
    assert trace.busy.tolist() == [[False, True, False], [False, False, False]]
    with pytest.raises(ib.InputError, match="no row of link 9-9"):
        ib.Trace.read(path, link="9-9")


def test_msod_of_one_message(tmp_path: Path) -> None:
    values = make.powers().round()
    path = make.msod(tmp_path / "lte.dat", values)
    assert detect(path) == "msod"
    trace = ib.Trace.read(path, threshold=-70)
    assert np.array_equal(trace.power, values)
    assert (trace.power_unit, trace.start, trace.slot_s) == ("dBm", "2015-05-21T01:17:22Z", 1.0)
    assert trace.power_dbm is trace.power
    assert trace.freq_high_hz[0] == pytest.approx(703.97e6 + 180e3)


def test_msod_with_several_messages(tmp_path: Path) -> None:
    values = make.powers().round()
    parts = [make.msod(tmp_path / str(i), values[i : i + 20], nM=20).read_bytes() for i in (0, 20, 40)]
    (tmp_path / "all.dat").write_bytes(b"".join(parts))
    assert np.array_equal(ib.Trace.read(tmp_path / "all.dat").power, values)


def test_ecallisto_sorts_frequencies_and_joins_files(tmp_path: Path) -> None:
    values = (make.powers(T=80) + 200).round()
    first = make.fits(tmp_path / "a.fit.gz", values[:40], "03:11:52.0", packed=True)
    second = make.fits(tmp_path / "b.fit", values[40:], "03:12:02.0")
    assert detect(first) == detect(second) == "ecallisto"
    trace = ib.Trace.read(first, second)
    assert np.array_equal(trace.power, values)
    assert trace.power_unit == "digits"
    assert trace.power_dbm is None
    assert trace.channel_names[0] == "110.0 MHz"
    with pytest.raises(ib.InputError, match="before the end of"):
        ib.Trace.read(second, first)


def test_csv_with_names_times_and_gaps(tmp_path: Path) -> None:
    values = make.powers(K=2)
    path = make.csv_table(tmp_path / "t.csv", values, ["868.1 MHz", "868.3 MHz"], times=True)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:11] + lines[13:]))  # two slots are missing
    trace = ib.Trace.read(path)
    assert trace.T == 60
    assert trace.slot_s == 2
    assert trace.channel_names == ("868.1 MHz", "868.3 MHz")
    assert np.allclose(trace.power[10:12], values[9])
    assert np.allclose(trace.power[12:], values[12:], atol=1e-4)
    assert trace.metadata.filled == 4
    with pytest.raises(ib.InputError, match="line 12: 2 slots of 2 s are missing"):
        ib.Trace.read(path, fill=1)


def test_csv_of_states_is_busy_where_it_is_1(tmp_path: Path) -> None:
    states = np.array([[0, 1], [1, 1], [0, 0]])
    path = make.csv_table(tmp_path / "t.csv", states, ["a", "b"])
    trace = ib.Trace.read(path)
    assert np.array_equal(trace.busy, states)
    assert any("1 = busy" in note for note in trace.notes)
    assert np.array_equal(ib.Trace.read(path, values="idle").idle, states)


def test_csv_with_columns_of_several_kinds(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("slot,power_a,reward_a,power_b,reward_b\n1,-90,0.5,-60,1\n2,-60,0.25,-90,0\n")
    trace = ib.Trace.read(path, threshold=-75)
    assert trace.busy.tolist() == [[False, True], [True, False]]
    assert trace.reward.tolist() == [[0.5, 1], [0.25, 0]]


@pytest.mark.parametrize(
    "text", ["a;b\n-90,5;-60,25\n-91,5;-61\n", "a\tb\n-90,5\t-60,25\n-91,5\t-61\n", "-90.5 -60.25\n-91.5 -61\n"]
)
def test_separators_and_decimal_commas_of_csv_are_detected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.txt"
    path.write_text(text)
    assert ib.Trace.read(path).power.tolist() == [[-90.5, -60.25], [-91.5, -61]]


def test_columns_of_a_table_that_are_not_named_may_contain_anything(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,site,868.1 MHz,868.3 MHz,868.5 MHz\n0,hill,-90,-80,9e9\n2,?,-91,-81,x\n")
    for channels in ("868.1 MHz,868.3 MHz", "1..2", "868.0 MHz..868.4 MHz"):
        trace = ib.Trace.read(path, channels=channels)
        assert trace.channel_names == ("868.1 MHz", "868.3 MHz")
        assert trace.power_dbm.tolist() == [[-90.0, -80.0], [-91.0, -81.0]]
        assert trace.slot_s == 2.0
    table = pd.DataFrame({"site": ["hill", "?"], "a": [-90.0, -91.0], "b": [-80.0, -81.0]})
    table.to_parquet(tmp_path / "log.parquet")
    assert ib.Trace.read(tmp_path / "log.parquet", channels="b,a").power_dbm.tolist() == [
        [-80.0, -90.0],
        [-81.0, -91.0],
    ]


def test_frequencies_keep_their_edges_where_some_are_selected(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text("868100000,868300000,868500000\n-90,-80,-95\n-91,-60,-95\n")  # the header is of numbers only
    trace = ib.Trace.read(path, channels="0,2")
    assert trace.channel_names == ("868.1 MHz", "868.5 MHz")
    assert trace.freq_low_hz.tolist() == [868.0e6, 868.4e6]
    assert trace.T == 2


def test_one_reading_per_line(tmp_path: Path) -> None:
    path = tmp_path / "noise.txt"
    path.write_text("-98\n-39\n-97\n")
    assert ib.Trace.read(path, threshold=-85).busy.tolist() == [[False], [True], [False]]


def test_npz_and_npy_give_the_stored_arrays(tmp_path: Path) -> None:
    values = make.powers().astype(np.float32)
    contexts = np.arange(60 * 6 * 2, dtype=np.float32).reshape(60, 6, 2) / 1000
    names = [f"c{k}" for k in range(6)]
    np.savez(tmp_path / "a.npz", power_dbm=values, contexts=contexts, slot_s=0.5, channel_names=names)
    trace = ib.Trace.read(tmp_path / "a.npz")
    assert np.array_equal(trace.power, values)
    assert np.array_equal(trace.contexts, contexts)
    assert (trace.slot_s, trace.channel_names) == (0.5, tuple(names))
    np.save(tmp_path / "b.npy", np.asfortranarray(values))
    assert np.array_equal(ib.Trace.read(tmp_path / "b.npy").power, values)
    np.savez_compressed(tmp_path / "c.npz", idle=values < -75)
    assert np.array_equal(ib.Trace.read(tmp_path / "c.npz").busy, values > -75)


def test_parquet_of_another_program_is_read(tmp_path: Path) -> None:
    values = make.powers(K=2)
    times = pd.date_range("2024-05-01", periods=60, freq="500ms")
    pd.DataFrame({"time": times, "868100000": values[:, 0], "868300000": values[:, 1]}).to_parquet(
        tmp_path / "t.parquet"
    )
    trace = ib.Trace.read(tmp_path / "t.parquet")
    assert np.allclose(trace.power, values)
    assert (trace.slot_s, trace.start) == (0.5, "2024-05-01T00:00:00Z")
    assert trace.channel_names == ("868.1 MHz", "868.3 MHz")


def test_a_trace_file_can_be_imported_again(tmp_path: Path) -> None:
    trace = ib.Trace.from_arrays(power_dbm=make.powers(), channel_names=list("abcdef"), source="here")
    trace.save(tmp_path / "t.parquet")
    again = ib.Trace.read(tmp_path / "t.parquet", threshold=-100, channels="b..d")
    assert again.busy.all()
    assert again.channel_names == ("b", "c", "d")


def test_a_new_threshold_replaces_the_notes_of_the_old_one(tmp_path: Path) -> None:
    power = np.random.default_rng(0).normal(-90, 6, (200, 3))  # without averaging, which leaves a note
    trace = ib.Trace.from_arrays(power_dbm=power)
    assert any(note.startswith("low readings of 3 channels") for note in trace.notes)
    assert trace.with_threshold(-80).notes == ()
    trace.save(tmp_path / "trace.parquet")
    assert ib.Trace.read(tmp_path / "trace.parquet", threshold=-80).notes == ()
    again = ib.Trace.read(tmp_path / "trace.parquet", threshold="q10+6")
    assert sum(note.startswith("low readings") for note in again.notes) == 1


def test_longer_slots_of_a_trace_file_are_busy_in_a_part(tmp_path: Path) -> None:
    power = np.full((6, 1), -90.0)
    power[1] = -60.0
    ib.Trace.from_arrays(power_dbm=power, threshold=-63).save(tmp_path / "trace.parquet")
    trace = ib.Trace.read(tmp_path / "trace.parquet", slot_s=3)
    assert trace.busy[:, 0].tolist() == [True, False]  # the mean power is -64.8 dBm
    assert trace.threshold_rule.endswith("the same level for all channels, in a part of the slot (3 recorded slots)")


def test_slots_can_be_made_longer(tmp_path: Path) -> None:
    values = make.powers(T=61)
    path = make.msod(tmp_path / "lte.dat", values.round())
    trace = ib.Trace.read(path, slot_s=3)
    linear = 10 ** (values.round()[:60].reshape(20, 3, 6) / 10)
    assert np.allclose(trace.power, 10 * np.log10(linear.mean(axis=1)), atol=1e-4)
    assert trace.slot_s == 3
    with pytest.raises(ib.InputError, match="whole multiple"):
        ib.Trace.read(path, slot_s=1.5)


def test_only_active_channels_are_kept(tmp_path: Path) -> None:
    values = make.powers()
    values[:, 0] = -90
    path = make.msod(tmp_path / "lte.dat", values.round())
    trace = ib.Trace.read(path, occupancy="0.02..0.98")
    assert trace.K == 5
    assert trace.freq_low_hz[0] == pytest.approx(703.97e6 + 180e3)
    assert np.array_equal(trace.busy, ib.Trace.read(path).select(occupancy=(0.02, 0.98)).busy)


def test_an_incomplete_last_sweep_is_left_out(tmp_path: Path) -> None:
    path = make.rtl_power(tmp_path / "sweep.csv", make.powers())
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    trace = ib.Trace.read(path)
    assert trace.T == 59
    assert any("incomplete" in note for note in trace.notes)


def test_missing_sweeps_are_filled_and_counted(tmp_path: Path) -> None:
    values = make.powers()
    path = make.rtl_power(tmp_path / "sweep.csv", values, second=10)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:20] + lines[26:]))  # sweeps 10 to 12
    trace = ib.Trace.read(path)
    assert trace.T == 60
    assert np.allclose(trace.power[10:13], values[9])
    assert trace.metadata.filled == 18
    assert "up to 10 slots" in trace.metadata.fill_rule
