"""Small recordings in every format, as the tools write them."""

import gzip
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def powers(T: int = 60, K: int = 6, seed: int = 1) -> Any:
    """Powers with a noise floor near -90 dB and busy periods near -60 dB, rounded to 0.01."""
    rng = np.random.Generator(np.random.PCG64(seed))
    busy = rng.random((T, K)) < 0.2
    return np.round(rng.normal(-90, 0.5, (T, K)) + 30 * busy, 2)


def rtl_power(path: Path, values: Any, rows: int = 2, comma: str = ", ", second: int = 1) -> Path:
    """Sweeps of `rows` rows each; the last reading of a row is printed twice."""
    T, K = values.shape
    bins = K // rows
    lines = []
    for t in range(T):
        for row in range(rows):
            part = [f"{x:.2f}" for x in values[t, row * bins : (row + 1) * bins]]
            low = 100_000_000 + row * bins * 10_000
            head = [_date(t * second), _time(t * second), str(low), str(low + bins * 10_000), "10000.00", "16"]
            lines.append(comma.join([*head, *part, part[-1]]))
    path.write_text("\n".join(lines) + "\n")
    return path


def hackrf_sweep(path: Path, values: Any) -> Path:
    """Sweeps of four interleaved rows with one time per sweep."""
    T, K = values.shape
    bins = K // 4
    lines = []
    for t in range(T):
        for row in (0, 2, 1, 3):
            low = 2_400_000_000 + row * 5_000_000
            head = [_date(0), f"{_time(0)[:-2]}{t // 10:02d}.{t % 10}00000", str(low), str(low + 5_000_000)]
            part = [f"{x:.2f}" for x in values[t, row * bins : (row + 1) * bins]]
            lines.append(", ".join([*head, f"{5e6 / bins:.2f}", "20", *part]))
    path.write_text("\n".join(lines) + "\n")
    return path


def soapy_csv(path: Path, values: Any) -> Path:
    """Two hops per sweep, each with the time of its end, in unrounded frequencies."""
    T, K = values.shape
    lines = []
    for t in range(T):
        for hop in (0, 1):
            low = 88e6 + hop * K / 2 * 12_345.678
            head = [_date(0), _time(4 * t + 2 * hop), low, low + K / 2 * 12_345.678, 12_345.678, 1000]
            lines.append(", ".join(map(str, [*head, *values[t, hop * K // 2 : (hop + 1) * K // 2]])))
    path.write_text("\n".join(lines) + "\n")
    return path


def soapy_fftw(path: Path, values: Any) -> Path:
    """Pairs of frequency and reading, one empty line per hop and one more per run."""
    text = ""
    for t, row in enumerate(values):
        text += f"# soapy_power output\n# Acquisition start: {_date(0)} {_time(t)}\n"
        text += f"# Acquisition end: {_date(0)} {_time(t)}.5\n#\n# frequency [Hz] power spectral density [dB/Hz]\n"
        text += "".join(f"{88e6 + 1e4 * k} {x}\n" for k, x in enumerate(row)) + "\n\n"
    path.write_text(text)
    return path


def soapy_bin(path: Path, values: Any) -> Path:
    """One hop per sweep."""
    header = struct.Struct("<BdddddQQ2x")
    with path.open("wb") as file:
        for t, row in enumerate(values.astype("<f4")):
            packed = header.pack(2, 1.7e9 + 2 * t, 1.7e9 + 2 * t + 1, 88e6, 88e6 + 1e4 * len(row), 1e4, 100, row.nbytes)
            file.write(b"SDRFF" + packed + row.tobytes())
    return path


def iw_survey(path: Path, dumps: Sequence[dict[int, tuple[int, int]]], start: int | None = 1_700_000_000) -> Path:
    """Dumps of active and busy time in ms by frequency in MHz, each 10 s after the previous one."""
    text = ""
    for i, dump in enumerate(dumps):
        text += f"{start + 10 * i}\n" if start is not None else ""
        for frequency, (active, busy) in dump.items():
            text += f"Survey data from wlan0\n\tfrequency:\t\t\t{frequency} MHz\n\tnoise:\t\t\t\t-95 dBm\n"
            text += f"\tchannel active time:\t\t{active} ms\n\tchannel busy time:\t\t{busy} ms\n"
    path.write_text(text)
    return path


def k7(path: Path, values: Any, links: Sequence[tuple[int, int]] = ((0, 1),)) -> Path:
    """One row per round, channel and link."""
    T, K = values.shape
    header = {"channels": list(range(11, 11 + K)), "start_date": "2018-01-11 16:32:22", "location": "lab"}
    lines = [json.dumps(header), "datetime,src,dst,channel,mean_rssi,pdr,tx_count"]
    for t in range(T):
        for k in range(K):
            for source, destination in links:
                time = f"2018-01-11T{10 + t // 6:02d}:{t % 6}0:{k:02d}.0"
                lines.append(f"{time},{source},{destination},{11 + k},-70.5,{values[t, k]},100")
    path.write_text("\n".join(lines) + "\n")
    return path


def msod(path: Path, values: Any, **changes: Any) -> Path:
    """Three headers, each after its length, then int8."""
    K = values.shape[1]
    parameters = {"tm": 1.0, "fStart": 703.97e6, "fStop": 703.97e6 + K * 180e3, "n": K, "Det": "Peak"}
    data = {"Type": "Data", "mPar": parameters, "DataType": "Binary - int8", "nM": -1, "t1": 1432171042, "Ta": -1}
    headers = [{"Type": "Loc", "t": 1432171042}, {"Type": "Sys", "t": 1432171042}, {**data, **changes}]
    text = b"".join(f"{len(part)}\r".encode() + part for part in (json.dumps(header).encode() for header in headers))
    path.write_bytes(text + values.astype(np.int8).tobytes())
    return path


def fits(path: Path, values: Any, start: str = "03:11:52.0", packed: bool = False) -> Path:
    """An image of bytes, frequency by time, and the table of its frequencies, descending."""
    T, K = values.shape
    frequencies = np.linspace(870, 110, K)

    def block(cards: list[str]) -> bytes:
        text = "".join(card.ljust(80) for card in [*cards, "END"])
        return text.ljust(-(-len(text) // 2880) * 2880).encode()

    image = values[:, ::-1].T.astype(np.uint8).tobytes()
    first = block(
        [
            "SIMPLE  =                    T", "BITPIX  =                    8", "NAXIS   =                    2",
            f"NAXIS1  = {T:20d}", f"NAXIS2  = {K:20d}", "DATE-OBS= '2015/11/04'", f"TIME-OBS= '{start}'",
            "BZERO   =                   0.", "BSCALE  =                   1.", "CDELT1  =                 0.25 / step",
            "CONTENT = '2015/11/04  Radio flux density' / title",
        ]
    )  # fmt: skip
    second = block(
        [
            "XTENSION= 'BINTABLE'           / table", f"NAXIS1  = {8 * (T + K):20d}", "TFIELDS =                    2",
            f"TFORM1  = '{T}D8.3 '", "TTYPE1  = 'TIME    '", f"TFORM2  = '{K}D8.3 '", "TTYPE2  = 'FREQUENCY'",
        ]
    )  # fmt: skip
    table = np.arange(T, dtype=">f8").tobytes() + frequencies.astype(">f8").tobytes()
    data = first + image + b"\0" * (-len(image) % 2880) + second + table + b"\0" * (-len(table) % 2880)
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def csv_table(path: Path, values: Any, names: Sequence[str] | None = None, times: bool = False) -> Path:
    """A table of numbers, with a header if there are names."""
    lines = [",".join((["time"] if times else []) + list(names))] if names else []
    lines += [",".join(([f"{2 * t}"] if times else []) + [f"{x:g}" for x in row]) for t, row in enumerate(values)]
    path.write_text("\n".join(lines) + "\n")
    return path


def sigmf_recording(stem: Path, samples: Any, kind: str = "ci16_le", **changes: Any) -> Path:
    """Metadata and samples of a recording at 1 MS/s around 100 MHz."""
    about = {"core:datatype": kind, "core:sample_rate": 1e6, "core:version": "1.2.0", **changes.pop("about", {})}
    captures = [{"core:sample_start": 0, "core:frequency": 100e6, "core:datetime": "2024-01-01T00:00:00Z"}]
    meta = {"global": about, "captures": captures, "annotations": [], **changes}
    path = stem.with_name(stem.name + ".sigmf-meta")
    path.write_text(json.dumps(meta))
    stem.with_name(stem.name + ".sigmf-data").write_bytes(np.ascontiguousarray(samples).tobytes())
    return path


def _date(seconds: int) -> str:
    return f"2024-01-{1 + seconds // 86400:02d}"


def _time(seconds: int) -> str:
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
