"""Open and read input files; errors name the file and the place."""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from idleband.errors import InputError, StorageError, shown

GZIP = b"\x1f\x8b"
HEAD = 2**20  # bytes from which a format is detected
MAX_LINE = 2**24
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")  # bytes that text does not have


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file opened for reading bytes, decompressed where it is a gzip file."""
    with reading(path):
        check_regular(path)
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as file:
                    yield io.BufferedReader(cast(io.RawIOBase, file), 2**18)
            else:
                yield raw


def check_regular(path: Path) -> None:
    """Refuse what cannot be read twice from its beginning, such as a folder, a pipe or a device."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a file")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is a pipe, a socket or a device; save its content in a file, which is read twice")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system and of gzip into errors of one line."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: the gzip data are damaged or end early: {error}") from None
    except (InputError, StorageError):
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file; an empty file is refused."""
    with opened(path) as file:
        head = file.read(HEAD)
    if not head:
        raise InputError(f"{path}: is empty")
    return head


def check_encoding(head: bytes, path: Path) -> None:
    """Refuse text that is not UTF-8; `head` is the beginning of a file whose format is not known."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: is text in UTF-16; save it as UTF-8")
    if CONTROL.search(head):
        return
    for number, line in enumerate(head.splitlines()[:-1] if len(head) == HEAD else head.splitlines(), 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: is not text in UTF-8, at {shown(line[error.start : error.start + 10])};"
                " save the file as UTF-8"
            ) from None


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file, from 1, without line ends and byte order mark."""
    with opened(path) as file:
        number = 0
        while line := file.readline(MAX_LINE):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if len(line) == MAX_LINE:
                raise InputError(f"{path}, line {number}: is longer than {MAX_LINE} bytes")
            try:
                if b"\0" in line:
                    raise ValueError
                yield number, line.decode().rstrip("\r\n")
            except ValueError:
                raise InputError(f"{path}, line {number}: is not text: {shown(line[:20])}") from None


def exactly(file: IO[bytes], count: int, path: Path, offset: int, what: str) -> bytes:
    """Return `count` bytes; a file that ends before is refused."""
    data = file.read(count)
    if len(data) < count:
        raise InputError(f"{path}, byte {offset}: the file ends in {what}: {len(data)} of {count} bytes are there")
    return data
