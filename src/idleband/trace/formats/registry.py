"""The formats that can be imported."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from idleband.errors import InputError, unknown
from idleband.trace.files import check_encoding, head_of
from idleband.trace.recording import ImportOptions, Recording

MODULES = {
    "rtl_power": "rtl_power",
    "hackrf_sweep": "hackrf_sweep",
    "soapy_power": "soapy_power",
    "iw_survey": "iw_survey",
    "sigmf": "sigmf",
    "k7": "k7",
    "msod": "msod",
    "ecallisto": "fits",
    "csv": "csv",
    "npz": "npz",
    "parquet": "parquet_table",
}
# Order of detection. CSV of rtl_power and of hackrf_sweep matches soapy_power, too.
ORDER = (
    "parquet", "npz", "ecallisto", "msod", "sigmf", "k7", "iw_survey",
    "rtl_power", "hackrf_sweep", "soapy_power", "csv",
)  # fmt: skip


class Format(Protocol):
    """What a module of a format contains."""

    DESCRIPTION: str

    def matches(self, head: bytes, path: Path) -> bool:
        """Return whether a file has this format, from its first bytes."""
        ...

    def read(self, paths: Sequence[Path], options: ImportOptions) -> Recording:
        """Open a recording."""
        ...


def format_of(name: str) -> Format:
    """Return a format by name."""
    if name not in MODULES:
        raise unknown("format", name, MODULES)
    return cast(Format, import_module(f"idleband.trace.formats.{MODULES[name]}"))


def detect(path: Path) -> str:
    """Return the name of the format of a file, from its content."""
    head = head_of(path)
    for name in ORDER:
        if format_of(name).matches(head, path):
            return name
    check_encoding(head, path)
    raise InputError(f"{path}: is in none of the formats {', '.join(MODULES)}; choose one with --format")
