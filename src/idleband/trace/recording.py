"""What a reader of a format returns, and the options that readers share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from idleband.trace.metadata import Metadata
from idleband.trace.missing import MAX_FILL

# What a chunk of a recording may contain: arrays of shape (slots, K), "contexts" of shape (slots, K, d). Missing values
# are nan. "busy" is 1 where a primary user is present, 0 where the channel is idle.
LAYERS = ("power", "busy", "reward", "contexts")
VALUES = ("power", "busy", "idle", "reward")
MAX_POWER = 10_000.0  # readings beyond it, in dB or digits, are refused as damaged
CHUNK_VALUES = 2**21  # values in a chunk, about

Chunk = dict[str, Any]


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import that readers use."""

    values: str | None = None  # one of VALUES: what the numbers of a file mean, where the file does not record it
    slot_s: float | None = None
    bins: int | None = None  # channels into which the bandwidth of a SigMF recording is divided
    link: str | None = None  # SRC-DST, for k7
    channels: Any = None  # applied by readers of tables, whose other columns may contain anything
    fill: int = MAX_FILL


@dataclass(frozen=True)
class Recording:
    """A recording that has been opened: its description, and its values in chunks of consecutive slots."""

    format: str
    metadata: Metadata
    layers: tuple[str, ...]
    chunks: Callable[[], Iterator[Chunk]]
    dimension: int = 0  # of contexts
    notes: list[str] = field(default_factory=list)  # may grow while chunks are read
    selected: bool = False  # whether ImportOptions.channels has been applied


def chunk_slots(K: int) -> int:
    """Return the number of slots of a chunk; at least 1024, so that gaps at the start can be filled."""
    return max(1024, CHUNK_VALUES // K)
