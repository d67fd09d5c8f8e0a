"""pandas DataFrames with one row per slot."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from idleband.errors import InputError, shown
from idleband.trace.clock import parse_time
from idleband.trace.recording import ImportOptions, Recording
from idleband.trace.tables import Batch, interpret, read_table


def read_dataframe(df: Any, options: ImportOptions) -> Recording:
    """Open a table in memory."""
    import pandas as pd

    if not isinstance(df, pd.DataFrame):
        raise InputError(f"df = {shown(type(df).__name__)}: must be a pandas DataFrame")
    columns = interpret(list(map(str, df.columns)), options, "DataFrame")
    indexed = isinstance(df.index, pd.DatetimeIndex) and columns.time is None
    numbers = np.full(df.shape, np.nan)
    for i in sorted({i for layer in columns.layers.values() for i in layer}):
        try:
            numbers[:, i] = df.iloc[:, i].to_numpy(dtype=float, na_value=np.nan)
        except (TypeError, ValueError):
            raise InputError(f"DataFrame: column {df.columns[i]!r} is not of numbers") from None
    times = None
    if indexed:
        columns = replace(columns, time=-1, slots=False)
        times = _seconds(df.index)
    elif columns.time is not None:
        times = _times(df.iloc[:, columns.time])

    def batches(values: bool) -> Iterator[Batch]:
        if len(df):
            yield Batch(range(len(df)), times, numbers)

    return read_table("dataframe", columns, batches, options, "DataFrame", "row")


def _times(column: Any) -> Any:
    """Return a column of times, of seconds or of text as seconds."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _seconds(pd.DatetimeIndex(column))
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=float, na_value=np.nan)
    times = [parse_time(text) if isinstance(text, str) else None for text in column]
    for row, time in enumerate(times):
        if time is None:
            raise InputError(f"DataFrame, row {row}: {shown(column.iloc[row])} is not a time")
    return np.array(times)


def _seconds(times: Any) -> Any:
    """Return times as seconds since 1970, nan where there is none."""
    epoch = np.datetime64("1970-01-01", "us")
    utc = times.tz_convert("UTC").tz_localize(None) if times.tz is not None else times
    found = (utc.to_numpy().astype("datetime64[us]") - epoch).astype(np.int64) / 1e6
    return np.where(utc.isna(), np.nan, found)
