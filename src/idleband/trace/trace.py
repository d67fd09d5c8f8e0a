"""The class Trace: recorded spectrum in memory."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats, Ints
from idleband.channels import channel_index, check_channel_names
from idleband.errors import InputError, counted, shown
from idleband.trace.metadata import MAX_SLOT_S, Metadata
from idleband.trace.missing import LIMIT, MAX_FILL, Filler
from idleband.trace.parquet import TraceFile, write_trace
from idleband.trace.recording import MAX_POWER, ImportOptions
from idleband.trace.selection import active_channels, select_channels
from idleband.trace.statistics import TraceStatistics, run_lengths, statistics_of
from idleband.trace.threshold import ThresholdRule, notes_without_threshold, reward_rule, sample_step

if TYPE_CHECKING:
    import pandas as pd

    from idleband.trace.fit.fit import TraceFit


class Runs(NamedTuple):
    """Consecutive runs of a channel in the same state."""

    busy: Flags  # state of each run
    start: Ints  # first slot of each run, from 0
    length: Ints  # in slots
    complete: Flags  # not cut by the beginning or the end of the trace


class Trace:
    """Recorded spectrum: which channels were busy in which slots.

    A trace is immutable. Make one with `Trace.from_arrays`, `Trace.from_dataframe`, `Trace.read` (recordings of
    spectrum analysers) or `Trace.load` (trace files).

    **True means busy**: a primary user is present. Sensing tools use the same convention. The paper and the states of a
    scenario use the opposite one, 1 = good = idle; `idle` gives that.

    Attributes
    ----------
    busy : array of shape (T, K)
        True where a primary user is present.
    power : array of shape (T, K), or None
        Measured power in units of `power_unit`, float32.
    reward : array of shape (T, K), or None
        Measured reward in [0, 1], such as a packet delivery ratio, float32.
    contexts : array of shape (T, K, d), or None
        Measured channel state information, float32.
    metadata : Metadata
        Everything else that a trace file records.

    Examples
    --------
    >>> import idleband as ib
    >>> trace = ib.Trace.from_arrays(busy=[[0, 1], [0, 1], [1, 0], [0, 0]], slot_s=0.5, channel_names=["a", "b"])
    >>> trace
    Trace(4 slots of 0.5 s, 2 channels, busy 0.25 to 0.5 of the time)
    >>> trace.occupancy
    array([0.25, 0.5 ])
    """

    __slots__ = ("busy", "contexts", "metadata", "power", "reward")

    busy: Flags
    power: Any
    reward: Any
    contexts: Any
    metadata: Metadata

    def __init__(
        self, busy: Any, metadata: Metadata, power: Any = None, reward: Any = None, contexts: Any = None
    ) -> None:
        arrays = {"busy": busy, "power": power, "reward": reward, "contexts": contexts}
        for name, values in arrays.items():
            if values is not None:
                values = np.ascontiguousarray(values, np.bool_ if name == "busy" else np.float32).view()
                values.flags.writeable = False
            object.__setattr__(self, name, values)
        object.__setattr__(self, "metadata", metadata)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a trace is immutable; {name} cannot be set")

    def __reduce__(self) -> tuple[Any, ...]:
        return Trace, (self.busy, self.metadata, self.power, self.reward, self.contexts)

    def __deepcopy__(self, memo: object) -> "Trace":
        return self

    # --- constructors --------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        *,
        busy: Any = None,
        idle: Any = None,
        power_dbm: Any = None,
        power: Any = None,
        reward: Any = None,
        contexts: Any = None,
        slot_s: float = 1.0,
        channel_names: Sequence[str] | None = None,
        freq_low_hz: Sequence[float] | None = None,
        freq_high_hz: Sequence[float] | None = None,
        power_unit: str = "dBm",
        threshold: Any = None,
        fill: int = MAX_FILL,
        source: str = "",
        license: str = "",
        start: str | None = None,
    ) -> "Trace":
        """Make a trace from arrays with one row per slot and one column per channel.

        Parameters
        ----------
        busy
            Array of shape (T, K), 1 or True where a primary user is present.
        idle
            The opposite of `busy`, instead of it.
        power_dbm
            Measured power in dBm. Without `busy` or `idle` a channel is busy where its power is above `threshold`.
        power
            The same in units of `power_unit`.
        reward
            Measured reward in [0, 1]. Without `busy`, `idle` and power a channel is busy where the reward is below
            `threshold`, 0.5 by default.
        contexts
            Array of shape (T, K, d).
        slot_s
            Duration of a slot in seconds.
        channel_names
            Names of the channels.
        freq_low_hz, freq_high_hz
            Edges of the channels.
        power_unit
            Unit of `power`: dBm, dB or digits.
        threshold
            A level, "floor+8" (noise floor plus 8 dB) or "q10+8" (10th percentile plus 8 dB); by default floor+6.
        fill
            Missing values, nan, are replaced by the last measurement, up to this number of slots in a row.
        source, license, start
            Origin of the measurements and time of the first slot (ISO 8601).

        Returns
        -------
        Trace

        Raises
        ------
        InputError
            If shapes differ, values are out of range, or more than `fill` slots in a row are missing.

        Examples
        --------
        >>> import idleband as ib, numpy as np
        >>> power = np.array([[-95.0, -94.0], [-60.0, -95.0], [-96.0, -95.0]])
        >>> trace = ib.Trace.from_arrays(power_dbm=power, threshold=-80)
        >>> trace.busy.astype(int).tolist()
        [[0, 0], [1, 0], [0, 0]]
        >>> trace.threshold_rule
        'busy above -80 dBm, the same level for all channels'
        """
        if busy is not None and idle is not None:
            raise InputError("busy and idle: one of them is enough")
        if power_dbm is not None and power is not None:
            raise InputError("power and power_dbm: one of them is enough")
        if power_dbm is not None:
            power, power_unit = power_dbm, "dBm"
        state = "idle" if idle is not None else "busy"
        given = {state: busy if idle is None else idle, "power": power, "reward": reward, "contexts": contexts}
        layers = {name: _array(values, name) for name, values in given.items() if values is not None}
        if not layers or set(layers) == {"contexts"}:
            raise InputError("busy, idle, power_dbm, power or reward: one of them must be given")
        T, K = next(values for name, values in layers.items() if name != "contexts").shape
        for name, values in layers.items():
            if values.shape[:2] != (T, K):
                raise InputError(f"{name}: has shape {values.shape}, expected ({T}, {K})")
        names = check_channel_names(channel_names, K, "channel_names")
        filled, rule = 0, "no value was missing"
        limit = validation.whole(fill, "fill", 0, LIMIT)
        for name, values in layers.items():
            filler = Filler(values[0].size, limit, names if name != "contexts" else (), name)
            layers[name] = filler.fill(values.reshape(T, -1)).reshape(values.shape)
            filled += filler.filled
            rule = filler.rule if filler.filled else rule
        metadata = Metadata(
            K=K, slot_s=validation.number(slot_s, "slot_s", 0, MAX_SLOT_S, above=True), channel_names=names,
            freq_low_hz=_edges(freq_low_hz, "freq_low_hz"), freq_high_hz=_edges(freq_high_hz, "freq_high_hz"),
            power_unit=power_unit, source=source, license=license, start=start, filled=filled, fill_rule=rule,
        )  # fmt: skip
        others = {name: layers.get(name) for name in ("power", "reward", "contexts")}
        if "idle" in layers:
            layers["busy"] = 1 - layers.pop("idle")
        if "busy" in layers:
            if threshold is not None:
                raise InputError("threshold: must come with power or reward only, not with busy or idle")
            recorded = replace(metadata, threshold_rule="busy as given, without a threshold")
            return cls(layers["busy"] > 0.5, recorded, **others)
        return cls(np.zeros((T, K), bool), metadata, **others).with_threshold(threshold)

    @classmethod
    def from_dataframe(cls, df: "pd.DataFrame", *, values: str | None = None, **settings: Any) -> "Trace":
        """Make a trace from a pandas DataFrame with one row per slot and one column per channel.

        Parameters
        ----------
        df
            Columns called busy_X, idle_X, power_X or reward_X belong to channel X. Otherwise every column is a channel,
            and `values` states what the numbers are. A DatetimeIndex determines slot and start; rows that are missing
            by their times are filled.
        values
            What the numbers are: power, busy, idle or reward. By default busy where all are 0 or 1, and power where
            some are outside 0 to 1.
        **settings
            Settings of `from_arrays`: slot_s, threshold, fill, source, license and others.

        Returns
        -------
        Trace

        Examples
        --------
        >>> import idleband as ib, pandas as pd
        >>> times = pd.date_range("2024-01-01", periods=3, freq="2s")
        >>> trace = ib.Trace.from_dataframe(pd.DataFrame({"868.1 MHz": [0, 1, 1], "868.3 MHz": [0, 0, 1]}, index=times))
        >>> trace
        Trace(3 slots of 2 s from 2024-01-01T00:00:00Z, 2 channels, busy 0.333 to 0.667 of the time)
        """
        from idleband.trace.formats.dataframe import read_dataframe

        options = ImportOptions(values=values, slot_s=settings.get("slot_s"), fill=settings.get("fill", MAX_FILL))
        recording = read_dataframe(df, options)
        parts = list(recording.chunks())
        found = {name: np.concatenate([part[name] for part in parts]) for name in recording.layers}
        about = recording.metadata
        known = {
            "slot_s": about.slot_s, "channel_names": about.channel_names, "start": about.start,
            "freq_low_hz": about.freq_low_hz or None, "freq_high_hz": about.freq_high_hz or None,
        }  # fmt: skip
        return cls.from_arrays(**{**known, **found, **settings})

    @classmethod
    def read(cls, *paths: str | Path, **options: Any) -> "Trace":
        """Import a recording into memory, as `idleband trace import` does into a file.

        Parameters
        ----------
        *paths
            One or more files; several are consecutive in time.
        **options
            Those of the command: `format`, `threshold`, `slot_s`, `channels`, `values`, `bins`, `link`, `fill`,
            `source`, `occupancy` and `license`.

        Returns
        -------
        Trace

        Raises
        ------
        InputError
            If a file is damaged or in no known format; the message names the file and the place.
        """
        from idleband.trace.importing import imported

        with imported([validation.path(path, "path", "file") for path in paths], **options) as found:
            return cls._of_chunks(found.metadata, found.chunks(), found.dimension)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read a trace file.

        Parameters
        ----------
        path
            A file that `save` or `idleband trace import` wrote.

        Returns
        -------
        Trace

        Raises
        ------
        InputError
            If the file is not a trace file, is damaged, or has a newer version of the format.
        """
        file = TraceFile(validation.path(path, "path", "file"))
        return cls._of_chunks(file.metadata, file.chunks(), file.dimension)

    @classmethod
    def _of_chunks(cls, metadata: Metadata, chunks: Iterator[Any], dimension: int) -> "Trace":
        parts = list(chunks)
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if "contexts" in found:
            found["contexts"] = found["contexts"].reshape(len(found["busy"]), metadata.K, dimension)
        return cls(found.pop("busy"), metadata, **found)

    def save(self, path: str | Path) -> None:
        """Write a trace file, atomically: it is complete or does not exist.

        Parameters
        ----------
        path
            Name of the file, usually ending in .parquet. It can be read with any Parquet library.

        Raises
        ------
        StorageError
            If the file cannot be written.
        """
        layers = {"busy": self.busy, "power": self.power, "reward": self.reward, "contexts": self.contexts}
        known = {name: values for name, values in layers.items() if values is not None}
        dimension = self.contexts.shape[2] if self.contexts is not None else 0
        write_trace(validation.path(path, "path", "file"), self.metadata, known, [known], dimension)

    # --- content -------------------------------------------------------------------------------------------------

    @property
    def T(self) -> int:
        """Number of slots."""
        return len(self.busy)

    @property
    def K(self) -> int:
        """Number of channels."""
        return self.metadata.K

    @property
    def idle(self) -> Flags:
        """The opposite of `busy`: True where a channel is idle, which the paper calls good."""
        return ~self.busy

    @property
    def power_dbm(self) -> Any:
        """`power` if its unit is dBm, otherwise None."""
        return self.power if self.power_unit == "dBm" else None

    @property
    def slot_s(self) -> float:
        """Duration of a slot in seconds."""
        return self.metadata.slot_s

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the channels; empty where they have none."""
        return self.metadata.channel_names

    @property
    def freq_low_hz(self) -> Floats:
        """Lower edge of each channel in Hz; nan where it is not known."""
        return _per_channel(self.metadata.freq_low_hz, self.K)

    @property
    def freq_high_hz(self) -> Floats:
        """Upper edge of each channel in Hz; nan where it is not known."""
        return _per_channel(self.metadata.freq_high_hz, self.K)

    @property
    def power_unit(self) -> str:
        """Unit of `power` and `threshold`: dBm, dB or digits."""
        return self.metadata.power_unit

    @property
    def threshold(self) -> Floats:
        """Power above which each channel is busy; nan where there is none."""
        return _per_channel(self.metadata.threshold, self.K)

    @property
    def threshold_rule(self) -> str:
        """How busy was determined, as a sentence."""
        return self.metadata.threshold_rule

    @property
    def source(self) -> str:
        """Origin of the measurements."""
        return self.metadata.source

    @property
    def license(self) -> str:
        """License of the measurements."""
        return self.metadata.license

    @property
    def start(self) -> str | None:
        """Time of the first slot, ISO 8601."""
        return self.metadata.start

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that the import left, such as a doubtful noise floor."""
        return self.metadata.notes

    @property
    def occupancy(self) -> Floats:
        """Share of slots in which each channel is busy."""
        return np.asarray(self.busy.mean(axis=0), dtype=float)

    def runs(self, channel: int | str) -> Runs:
        """Return the idle and busy periods of a channel.

        Parameters
        ----------
        channel
            Index from 0, or name.

        Returns
        -------
        Runs
            Arrays `busy`, `start` (from 0), `length` (the dwell times, in slots) and `complete`.

        Examples
        --------
        >>> import idleband as ib
        >>> runs = ib.Trace.from_arrays(busy=[[0], [0], [1], [0]]).runs(0)
        >>> runs.length.tolist(), runs.busy.tolist(), runs.complete.tolist()
        ([2, 1, 1], [False, True, False], [False, True, False])
        """
        state, start, length = run_lengths(self.busy[:, channel_index(channel, self.K, self.channel_names, "channel")])
        complete = np.ones(len(state), bool)
        complete[[0, -1]] = False
        return Runs(state, start, length, complete)

    def statistics(self) -> TraceStatistics:
        """Return occupancy, dwell times, transition probabilities and correlation between channels.

        Returns
        -------
        TraceStatistics
            With `to_dict()` for JSON.

        Examples
        --------
        >>> import idleband as ib
        >>> found = ib.Trace.from_arrays(busy=[[0], [0], [1], [1], [0], [0], [1]]).statistics()
        >>> found.channels[0].p01, found.channels[0].p10
        (0.5, 0.5)
        """
        return statistics_of([self.busy], self.K, self.slot_s, self.channel_names)

    def fit(
        self, *, users: int | None = None, name: str | None = None, model: str = "auto", seed: int = 0
    ) -> "TraceFit":
        """Fit channel models to the trace and choose one for a scenario file.

        Parameters
        ----------
        users
            Channels to assign per slot in the scenario; by default a fifth of the channels, at least one.
        name
            Name of the scenario.
        model
            "auto" chooses by log-loss on held-out parts of the trace. "markov", "semi-markov" and "regimes" (common to
            all channels) set the model.
        seed
            Seed of permutation tests and of the simulated traces that the fit is compared with.

        Returns
        -------
        TraceFit
            p01 and p10 with intervals, tests of dwell times, hazards by age, change points, correlation, the chosen
            model, and a verdict in words. `save` writes the scenario file.

        Raises
        ------
        InputError
            If the trace has fewer than 10 slots, or a value is out of range.

        Examples
        --------
        >>> import idleband as ib, numpy as np
        >>> rng = np.random.Generator(np.random.PCG64(0))
        >>> fit = ib.Trace.from_arrays(busy=rng.random((60, 2)) < 0.3).fit(users=1)
        >>> fit
        TraceFit(2 channels, 60 slots: markov, trust low)
        >>> channel = fit.channels[0]
        >>> bool(channel.p10.low < channel.p10.probability < channel.p10.high)
        True
        """
        from idleband.trace.fit.fit import fit_trace

        return fit_trace(self.busy, self.metadata, users=users, name=name, model=model, seed=seed)

    # --- derived traces ------------------------------------------------------------------------------------------

    def select(self, channels: Any = None, slots: Any = None, occupancy: Any = None) -> "Trace":
        """Return a trace of some of the channels or slots.

        Parameters
        ----------
        channels
            Indices from 0 or names, or text with ranges whose ends are included: "3..52", "868.1 MHz..868.5 MHz".
        slots
            A slice, or a pair (first, last) in Python's convention: from 0, the last one not included.
        occupancy
            A pair (low, high): keep channels that are busy in more than `low` and less than `high` of the slots.

        Returns
        -------
        Trace

        Examples
        --------
        >>> import idleband as ib
        >>> trace = ib.Trace.from_arrays(busy=[[0, 1, 0], [1, 1, 0], [0, 0, 0]])
        >>> trace.select(channels=[0, 2], slots=(0, 2)).busy.astype(int).tolist()
        [[0, 0], [1, 0]]
        """
        columns: Sequence[int] = range(self.K) if channels is None else select_channels(channels, self.metadata)
        if occupancy is not None:
            columns = active_channels(self.occupancy, columns, occupancy)
        if isinstance(slots, tuple) and len(slots) == 2:
            slots = slice(*slots)
        rows = slice(None) if slots is None else slots
        if not isinstance(rows, slice):
            raise InputError(f"slots = {shown(slots)}: must be a slice or a pair (first, last)")
        begin, end, step = rows.indices(self.T)
        if step != 1 or begin >= end:
            raise InputError(f"slots = {shown(slots)}: must select consecutive slots from 0 to {self.T}")
        part = {
            name: None if values is None else values[begin:end][:, list(columns)]
            for name, values in (("power", self.power), ("reward", self.reward), ("contexts", self.contexts))
        }
        metadata = self.metadata.select(columns)
        if begin and metadata.start is not None:
            metadata = replace(metadata, start=_later(metadata.start, begin * self.slot_s))
        return Trace(self.busy[begin:end][:, list(columns)], metadata, **part)

    def with_threshold(self, threshold: Any = None) -> "Trace":
        """Return a trace with the same measurements and another threshold.

        Parameters
        ----------
        threshold
            A level in units of power, "floor+8" or "q10+8"; by default floor+6. For a trace with rewards and no power:
            the reward below which a channel is busy, 0.5 by default.

        Returns
        -------
        Trace

        Raises
        ------
        InputError
            If the trace has neither power nor rewards.
        """
        rest = {"power": self.power, "reward": self.reward, "contexts": self.contexts}
        if self.power is not None:
            rule = ThresholdRule.parse(threshold)
            sample = self.power[:: sample_step(self.T, self.K)]
            level, sentence, notes = rule.apply(sample, self.power_unit, self.channel_names)
            kept = notes_without_threshold(self.notes)
            metadata = replace(
                self.metadata, threshold=tuple(level.tolist()), threshold_rule=sentence, notes=(*kept, *notes)
            )
            return Trace(self.power > level, metadata, **rest)
        if self.reward is not None:
            low = reward_rule(threshold)
            sentence = f"busy where the reward is below {low:g}"
            return Trace(self.reward < low, replace(self.metadata, threshold_rule=sentence), **rest)
        raise InputError("threshold: the trace has neither power nor rewards")

    # --- text ----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        low, high = float(self.occupancy.min()), float(self.occupancy.max())
        since = f" from {self.start}" if self.start else ""
        slots, channels = counted(self.T, "slot"), counted(self.K, "channel")
        return f"Trace({slots} of {self.slot_s:g} s{since}, {channels}, busy {low:.3g} to {high:.3g} of the time)"

    def _repr_html_(self) -> str:
        names = f", {self.channel_names[0]} to {self.channel_names[-1]}" if self.channel_names else ""
        share, missing = self.occupancy, self.metadata.filled
        rows = [
            ("slots", f"{self.T:,} of {self.slot_s:g} s"),
            ("channels", f"{self.K}{names}"),
            ("occupancy", f"{share.min():.3f} to {share.max():.3f}, median {np.median(share):.3f}"),
            ("busy", f"True where a primary user is present: {self.threshold_rule}"),
            ("missing values", f"{missing:,}: {self.metadata.fill_rule}" if missing else "none"),
            ("start", self.start or ""),
            ("source", self.source),
            ("license", self.license),
            *(("note", note) for note in self.notes),
        ]
        cells = "".join(f"<tr><th>{term}</th><td>{html.escape(text)}</td></tr>" for term, text in rows if text)
        return f"<table><caption>Trace</caption>{cells}</table>"


def _array(values: Any, name: str) -> Any:
    """Return an array of shape (T, K) or (T, K, d), with values in range; nan is missing."""
    try:
        array = np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{name}: must be an array of numbers") from None
    if array.ndim == 1 and name != "contexts":
        array = array[:, None]
    if array.ndim != (3 if name == "contexts" else 2) or not array.size:
        raise InputError(f"{name}: has shape {array.shape}; expected (T, K{', d' * (name == 'contexts')})")
    low, high = {"busy": (0, 1), "idle": (0, 1), "reward": (0, 1)}.get(name, (-MAX_POWER, MAX_POWER))
    with np.errstate(invalid="ignore"):
        bad = (array < low) | (array > high)
    if name in ("busy", "idle"):
        bad |= ~np.isin(array, (0, 1)) & ~np.isnan(array)
    for place in np.argwhere(bad)[:1]:
        at = ", ".join(map(str, place))
        expected = "0 or 1" if name in ("busy", "idle") else f"from {low:g} to {high:g}"
        raise InputError(f"{name}[{at}] = {array[tuple(place)]:g}: must be {expected}")
    return array


def _edges(values: Sequence[float] | None, field: str) -> tuple[float, ...]:
    if values is None:
        return ()
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InputError(f"{field} = {shown(values)}: must be a list of frequencies in Hz") from None


def _per_channel(values: tuple[float, ...], K: int) -> Floats:
    return np.array(values) if values else np.full(K, np.nan)


def _later(start: str, seconds: float) -> str | None:
    from idleband.trace.clock import iso_time, parse_time

    time = parse_time(start)
    return None if time is None else iso_time(time + seconds)
