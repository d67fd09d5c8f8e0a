"""Random damage to valid recordings: each file is imported, or refused in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from tests.trace import recordings as make


def npy(path: Path, values: Any) -> Path:
    np.savez(path.with_suffix(".npz"), power=values, slot_s=1.0)
    return path.with_suffix(".npz")


def own(path: Path, values: Any) -> Path:
    ib.Trace.from_arrays(power_dbm=values).save(path)
    return path


MAKERS: dict[str, Callable[[Path, Any], Path]] = {
    "rtl_power": make.rtl_power,
    "hackrf_sweep": lambda path, values: make.hackrf_sweep(path, np.tile(values, 2)),
    "soapy_csv": make.soapy_csv,
    "soapy_fftw": make.soapy_fftw,
    "soapy_bin": make.soapy_bin,
    "iw_survey": lambda path, _: make.iw_survey(
        path, [{2412: (1000 * i, 300 * i), 2437: (9 * i, i)} for i in range(6)]
    ),
    "k7": lambda path, values: make.k7(path, np.abs(values) / 100),
    "msod": make.msod,
    "fits": lambda path, values: make.fits(path, values + 200),
    "fits.gz": lambda path, values: make.fits(path, values + 200, packed=True),
    "csv": lambda path, values: make.csv_table(path, values, list("abcdef"), times=True),
    "npz": npy,
    "parquet": own,
    "sigmf": lambda path, _: make.sigmf_recording(path, np.ones((4000, 2), "<i2")),
}


SOAPY = dict.fromkeys(("soapy_csv", "soapy_fftw", "soapy_bin"), "soapy_power")
FORMATS = {"fits": "ecallisto", "fits.gz": "ecallisto", **SOAPY}


@pytest.mark.parametrize("name", MAKERS)
def test_damaged_files_are_imported_or_refused(tmp_path: Path, name: str) -> None:
    if name == "sigmf":
        pytest.importorskip("sigmf")
    rng = np.random.Generator(np.random.PCG64(11))
    path = MAKERS[name](tmp_path / "recording", make.powers(T=12).round())
    valid = path.read_bytes()
    messages = []
    for _ in range(40):
        content = bytearray(valid)
        kind = rng.integers(4)
        at = int(rng.integers(len(content)))
        if kind == 0:
            content = content[:at]
        elif kind == 1:
            content[at] = int(rng.integers(256))
        elif kind == 2:
            del content[at : at + int(rng.integers(1, 40))]
        else:
            content[at:at] = content[: int(rng.integers(1, 60))]
        path.write_bytes(content)
        for form in (None, FORMATS.get(name, name)):  # detected, and forced
            try:
                trace = ib.Trace.read(path, format=form)
                assert trace.busy.shape == (trace.T, trace.K)
            except ib.InputError as error:
                messages.append(str(error))
    assert messages
    assert not any("\n" in message for message in messages)
