"""Damaged, empty, truncated and inconsistent files: one line that names the file and the place, nothing written."""

import gzip
import io
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import idleband as ib
from idleband.trace.importing import import_trace
from tests.trace import recordings as make

Maker = Callable[[Path], object]


def text(content: str) -> Maker:
    return lambda path: path.write_text(content)


def data(content: bytes) -> Maker:
    return lambda path: path.write_bytes(content)


def changed(maker: Callable[..., Path], edit: Callable[[bytes], bytes], **settings: object) -> Maker:
    """A valid recording with one change."""

    def write(path: Path) -> None:
        maker(path, make.powers().round(), **settings)
        path.write_bytes(edit(path.read_bytes()))

    return write


def rtl(edit: Callable[[bytes], bytes], **settings: object) -> Maker:
    return changed(make.rtl_power, edit, **settings)


def lte(edit: Callable[[bytes], bytes], **settings: object) -> Maker:
    return changed(make.msod, edit, **settings)


def image(path: Path) -> bytes:
    return make.fits(path, make.powers() + 200).read_bytes()


def line(number: int, edit: Callable[[str], str]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        lines = content.decode().splitlines()
        lines[number - 1] = edit(lines[number - 1])
        return "\n".join(lines).encode()

    return apply


def lines(edit: Callable[[list[str]], list[str]]) -> Callable[[bytes], bytes]:
    return lambda content: "\n".join(edit(content.decode().splitlines())).encode()


def npz(**arrays: object) -> Maker:
    return lambda path: path.write_bytes(packed(**arrays))


def packed(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def false_shape(path: Path) -> None:
    """A small archive that claims to hold an enormous array."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 1000)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("power.npy", header.getvalue() + b"\0" * 100)


def cut_parquet(path: Path) -> None:
    ib.Trace.from_arrays(busy=np.zeros((100, 3))).save(path)
    path.write_bytes(path.read_bytes()[:-20])


def swap(i: int, j: int) -> Callable[[list[str]], list[str]]:
    def apply(rows: list[str]) -> list[str]:
        rows[i], rows[j] = rows[j], rows[i]
        return rows

    return apply


def swap_dates(rows: list[str]) -> list[str]:
    """Let the dates of the last two rows, a round of k7, lie a day before."""
    return [*rows[:-2], *(row.replace("2018-01-1", "2018-01-0", 1) for row in rows[-2:])]


WRONG_HOP = struct.pack("<BdddddQQ2x", 2, 0.0, 1.0, 88e6, 89e6, 1e4, 10, 12)

HOSTILE: dict[str, tuple[Maker, str]] = {
    "empty": (data(b""), "is empty"),
    "only empty lines": (text("\n\n\n"), "formats"),
    "binary garbage": (data(bytes(range(256)) * 50), "in none of the formats"),
    "NUL in text": (rtl(lambda b: b[:3000] + b"\0" + b[3000:]), r"line \d+: is not text"),
    "truncated row": (rtl(lambda b: b[:-12]), r"line 120: has \d readings, expected 4"),
    "truncated in the fields": (rtl(lambda b: b[: b.rindex(b"2024") + 20]), "line 120: has"),
    "row with too many readings": (rtl(line(5, lambda s: s + ", -1, -2")), "line 5: has 6"),
    "text among readings": (rtl(line(7, lambda s: s.replace("-90", "oops", 1))), "line 7: 'oops"),
    "huge reading": (rtl(line(9, lambda s: re.sub(r"-\d\d.00", "1e30", s, count=1))), "line 9: .*1e"),
    "negative step": (rtl(line(4, lambda s: s.replace("10000.00", "-10000.00"))), "line 4: .*range"),
    "impossible date": (rtl(line(3, lambda s: s.replace("-01,", "-77,"))), "line 3: .*not a date"),
    "time goes back": (rtl(lines(swap(9, 41))), r"line \d+: the time is"),
    "long gap": (rtl(lines(lambda r: r[:20] + r[80:]), second=10), "line 21: 30 slots"),
    "changing step": (rtl(line(5, lambda s: s.replace("100030000, 10000.00", "100060000, 20000.00"))),
                      "line 5: 3 bins of 20000 Hz"),
    "mixed sweeps": (rtl(line(6, lambda s: s.replace("100030000, 100060000", "100015000, 100045000"))),
                     "rows overlap"),
    "mixed formats in one file": (
        lambda p: p.write_text(make.rtl_power(p, make.powers()).read_text() + "Survey data\n"), "line 121: has 1"),
    "soapy_power, truncated": (changed(make.soapy_bin, lambda b: b[:-3]), r"byte \d+: the file ends in readings"),
    "soapy_power, damaged inside": (changed(make.soapy_bin, lambda b: b[:88] + b"XXXXX" + b[93:]), "byte 88: expected"),
    "soapy_power, wrong count": (data(b"SDRFF" + WRONG_HOP + b"\0" * 12), "byte 0: 12 bytes of readings for 100 bins"),
    "soapy_power text, one number": (changed(make.soapy_fftw, line(8, lambda s: s.split()[0])), "line 8: expected"),
    "iw, one dump": (lambda p: make.iw_survey(p, [{2412: (100, 10)}]), "holds one survey"),
    "iw, other text": (lambda p: p.write_text(make.iw_survey(p, [{2412: (9, 1)}] * 2).read_text() + "command failed\n"),
                       r"line \d+: 'command failed'"),
    "k7, rate above 1": (lambda p: make.k7(p, np.array([[1.5]])), "line 3: pdr = 1.5"),
    "k7, short row": (lambda p: p.write_text(make.k7(p, np.ones((3, 2))).read_text()[:-20]), "has . fields"),
    "msod, truncated": (lte(lambda b: b[:-2]), r"byte \d+: the file ends within a slot"),
    "msod, no values": (lte(lambda b: b[:-360]), r"byte \d+: no values"),
    "msod, damaged JSON": (lte(lambda b: b.replace(b'"mPar": {', b'"mPar": [', 1)), r"byte \d+: the JSON"),
    "msod, no channels": (lte(lambda b: b, mPar={"n": 0}), r"byte \d+: mPar must contain"),
    "msod, compressed": (lte(lambda b: b, Compression="Zip"), "only uncompressed"),
    "fits, truncated": (lambda p: p.write_bytes(image(p)[:3000]), "ends in the image"),
    "fits, no axis": (lambda p: p.write_bytes(image(p).replace(b"NAXIS1", b"NAXIS9")),
                      "has no NAXIS1"),
    "gzip, truncated": (lambda p: p.write_bytes(gzip.compress(image(p))[:500]),
                        "gzip data are damaged or end early"),
    "gzip, one endless line": (lambda p: p.write_bytes(gzip.compress(b"1" * 2**25)), "longer than|none of the formats"),
    "msod, infinite edge": (lte(lambda b: b, mPar={"n": 6, "fStart": 1e6, "fStop": float("inf")}), "mPar must contain"),
    "msod, half a channel": (lte(lambda b: b, mPar={"n": 2.5, "fStart": 1e6, "fStop": 2e6}), "n = 2.5 channels from"),
    "iw, no number": (
        lambda p: p.write_text(make.iw_survey(p, [{2412: (9, 1)}] * 2).read_text().replace("9 ms", "? ms", 1)),
        r"line 5: .* expected a time in ms"),
    "k7, time goes back": (
        lambda p: p.write_text("\n".join(swap_dates(make.k7(p, np.ones((2, 2))).read_text().splitlines()))),
        r"line \d: the time of a round is before"),
    "csv, UTF-16": (data("time,a\n1,-90\n2,-91\n".encode("utf-16")), "is text in UTF-16; save it as UTF-8"),
    "csv, Latin-1": (data("time,a\n1,-90\n2,-9\xe4\n".encode("latin-1")), r"line 3: is not text in UTF-8, at b'\\xe4'"),
    "csv, milliseconds": (text("time,a\n1700000000000,-90\n1700000000100,-91\n"), "line 2: .* not in milliseconds"),
    "csv, one frequency twice": (text("868.1 MHz,868100 kHz\n-90,-80\n"), "line 1: 868100000 Hz is the frequency of 2"),
    "csv, two kinds of power": (text("power_a,power_dbm_a\n-90,-80\n"), "line 1: columns of power and of power_dbm"),
    "csv, ragged": (text("a,b\n-90,-80\n-90\n"), "line 3: has 1 field, expected 2"),
    "csv, text": (text("a,b\n-90,-80\n-90,x\n"), r"line 3: 'x' is not a number, in column 1 \(b\)"),
    "csv, duplicate channels": (text("a,a\n-90,-80\n"), "line 1: channel 'a' appears twice"),
    "csv, header only": (text("power_a,power_b\n"), "formats|no row"),
    "csv, ambiguous": (text("a,b\n0.5,0.25\n"), "--values"),
    "csv, not binary later": (text("a\n" + "1\n" * 2000 + "0.5\n"), "0 or 1|--values"),
    "csv, all missing": (text("a,b\n-90,\n" + "-91,\n" * 20), r"channel 1 \(b\) has no measurement"),
    "csv, long gap": (text("a\n-90\n" + "nan\n" * 11 + "-90\n"), "more than 10 slots in a row, near slot 12"),
    "csv, infinite": (text("a,b\n-90,-80\n-90,inf\n"), r"line 3: inf is not a power .*\(channel 1 \(b\)"),
    "csv, slots go back": (text("slot,a\n1,-90\n3,-90\n2,-80\n"), "line 4: slot 2 after slot 3"),
    "csv, decimal commas with commas": (text("a,b\n-90,5,-80,25\n"), "line 2: has 4 fields"),
    "npz, enormous shape": (false_shape, "ends early"),
    "npz, no array": (npz(other=np.ones(3), more=np.ones(2)), "no array called busy"),
    "npz, objects": (npz(busy=np.array([{}, []], dtype=object)), "expected numbers"),
    "npz, shapes differ": (npz(busy=np.zeros((4, 2)), power=np.zeros((5, 2))), "has shape"),
    "npz, three axes": (npz(power=np.zeros((4, 2, 2))), r"array power has shape .* expected \(slots, channels\)"),
    "npz, slot of text": (npz(busy=np.zeros((4, 2)), slot_s=np.array("x")), "array slot_s is not of numbers"),
    "npz, negative slot": (npz(busy=np.zeros((4, 2)), slot_s=-1.0), "slot_s = -1.0: must be a number above 0"),
    "npz, one edge": (npz(busy=np.zeros((4, 2)), freq_low_hz=np.ones(2)), "freq_high_hz is missing"),
    "npz, no time": (npz(busy=np.zeros((4, 2)), start="yesterday"), "start = 'yesterday': must be a time such as"),
    "npz, truncated": (data(packed(busy=np.zeros((50, 2)))[:200]), "zip archive is damaged"),
    "parquet, truncated": (cut_parquet, "damaged or ends early"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_one_line_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    write, message = HOSTILE[name]
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "recording"
    write(path)
    out = tmp_path / "out" / "trace.parquet"
    with pytest.raises(ib.InputError, match=message) as error:
        import_trace([path], out)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    assert sorted(tmp_path.iterdir()) == [folder]


def test_folders_absent_and_locked_files(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "none", "No such file")):
        with pytest.raises(ib.InputError, match=message):
            ib.Trace.read(path)
    locked = tmp_path / "locked"
    locked.write_text("1\n")
    locked.chmod(0)
    if os.access(locked, os.R_OK):
        pytest.skip("this user reads every file")
    with pytest.raises(ib.InputError, match="Permission denied"):
        ib.Trace.read(locked)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_devices_are_refused_instead_of_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path(os.devnull)):
        for read in (ib.Trace.read, ib.Trace.load):
            with pytest.raises(ib.InputError, match="is a pipe, a socket or a device"):
                read(path)


def test_files_of_different_formats_are_refused(tmp_path: Path) -> None:
    first = make.rtl_power(tmp_path / "a", make.powers())
    second = make.msod(tmp_path / "b", make.powers().round())
    with pytest.raises(ib.InputError, match=r"has the format msod, but .* has rtl_power"):
        ib.Trace.read(first, second)
    with pytest.raises(ib.InputError, match="byte 0: expected a length"):
        ib.Trace.read(first, format="msod")


def test_an_existing_trace_survives_a_failed_import(tmp_path: Path) -> None:
    out = tmp_path / "trace.parquet"
    ib.Trace.from_arrays(busy=[[0], [1]]).save(out)
    before = out.read_bytes()
    path = tmp_path / "bad.csv"
    path.write_text("a\n-90\nx\n")
    with pytest.raises(ib.InputError):
        import_trace([path], out)
    assert out.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.csv", "trace.parquet"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_marks_are_accepted(tmp_path: Path, ends: str, mark: bytes) -> None:
    values = make.powers()
    path = make.rtl_power(tmp_path / "a", values)
    path.write_bytes(mark + path.read_text().replace("\n", ends).encode())
    assert np.allclose(ib.Trace.read(path).power, values)
    path.write_bytes(mark + f"868.1 MHz,b{ends}-90,-80{ends}-91,-81{ends}".encode())
    assert ib.Trace.read(path).channel_names == ("868.1 MHz", "b")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = make.msod(tmp_path / "a", make.powers().round())
    out = tmp_path / "dir"
    out.mkdir()
    with pytest.raises(ib.InputError, match="is a folder"):
        import_trace([path], out)
    (tmp_path / "file").write_text("")
    with pytest.raises(ib.StorageError, match="cannot be written"):
        import_trace([path], tmp_path / "file" / "trace.parquet")
