"""What a trace file records beside its values."""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from idleband import validation
from idleband.channels import channel_text, check_channel_names
from idleband.errors import InputError, counted, shown
from idleband.trace.clock import ISO

MAX_CHANNELS = 100_000
MAX_SLOT_S = 1e9
POWER_UNITS = ("dBm", "dB", "digits")


@dataclass(frozen=True)
class Metadata:
    """Description of a trace: channels, slots, threshold and origin."""

    K: int
    slot_s: float = 1.0  # duration of a slot in seconds
    channel_names: tuple[str, ...] = ()  # empty where channels have no names
    freq_low_hz: tuple[float, ...] = ()  # lower edge per channel, nan where unknown; empty where none is known
    freq_high_hz: tuple[float, ...] = ()
    power_unit: str = "dBm"  # dBm; dB relative to an unknown level; or digits of a logarithmic detector
    threshold: tuple[float, ...] = ()  # a channel is busy above it, in units of power; nan where there is none
    threshold_rule: str = ""  # how busy was determined
    source: str = ""  # file and format, or instrument
    license: str = ""
    start: str | None = None  # time of the first slot, ISO 8601
    filled: int = 0  # missing values that were replaced
    fill_rule: str = ""  # how they were replaced
    notes: tuple[str, ...] = ()  # warnings of the import

    def __post_init__(self) -> None:
        validation.whole(self.K, "channels", 1, MAX_CHANNELS)
        validation.number(self.slot_s, "slot_s", 0, MAX_SLOT_S, above=True)
        check_channel_names(self.channel_names, self.K, "channel_names")
        for name in ("freq_low_hz", "freq_high_hz", "threshold"):
            values = getattr(self, name)
            if values and len(values) != self.K:
                raise InputError(f"{name}: has {counted(len(values), 'value')} for {counted(self.K, 'channel')}")
        if len(self.freq_low_hz) != len(self.freq_high_hz):
            given, absent = ("low", "high") if self.freq_low_hz else ("high", "low")
            raise InputError(f"freq_{absent}_hz is missing; freq_{given}_hz is given, and both edges are needed")
        for k, (low, high) in enumerate(zip(self.freq_low_hz, self.freq_high_hz, strict=True)):
            if low > high:
                raise InputError(f"{channel_text(k, self.channel_names)}: freq_low_hz {low:g} is above {high:g}")
        validation.choice(self.power_unit, "power_unit", POWER_UNITS)
        if self.start is not None and (not isinstance(self.start, str) or ISO.fullmatch(self.start.strip()) is None):
            raise InputError(f"start = {shown(self.start)}: must be a time such as 2024-01-31T12:00:00Z")

    def select(self, channels: Sequence[int]) -> "Metadata":
        """Return the metadata of some of the channels."""

        def some(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[k] for k in channels) if values else ()

        per_channel = ("channel_names", "freq_low_hz", "freq_high_hz", "threshold")
        changes: dict[str, Any] = {name: some(getattr(self, name)) for name in per_channel}
        return replace(self, K=len(channels), **changes)

    def to_json(self) -> str:
        """Return the metadata as JSON text; nan becomes null."""
        data = asdict(self)
        for name in ("freq_low_hz", "freq_high_hz", "threshold"):
            data[name] = [value if math.isfinite(value) else None for value in data[name]]
        data["channels"] = data.pop("K")
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Metadata":
        """Return the metadata of a file; unknown keys are ignored."""
        data = json.loads(text)
        if not isinstance(data, dict) or "channels" not in data:
            raise ValueError("no channels")
        data["K"] = data.pop("channels")
        for name in ("freq_low_hz", "freq_high_hz", "threshold"):
            data[name] = tuple(math.nan if value is None else float(value) for value in data.get(name, ()))
        for name in ("channel_names", "notes"):
            data[name] = tuple(map(str, data.get(name, ())))
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})


@contextlib.contextmanager
def describing(place: object) -> Iterator[None]:
    """Name the file in the message about invalid metadata."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def names_of_frequencies(centres_hz: Iterable[float]) -> tuple[str, ...]:
    """Return channel names from centre frequencies, with as many decimals as make them different.

    >>> names_of_frequencies([868.1e6, 868.3e6])
    ('868.1 MHz', '868.3 MHz')
    """
    centres_hz = list(centres_hz)
    for decimals in range(1, 7):
        names = [f"{centre / 1e6:.{decimals}f} MHz" for centre in centres_hz]
        exact = all(abs(float(name[:-4]) * 1e6 - centre) < 1 for name, centre in zip(names, centres_hz, strict=True))
        if len(set(names)) == len(names) and (exact or decimals >= 3):
            return tuple(names)
    return ()
