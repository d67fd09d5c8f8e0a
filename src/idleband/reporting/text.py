"""Tables and paragraphs for a terminal of 80 columns."""

import math
import textwrap
from collections.abc import Sequence

WIDTH = 80
MIN_LABEL = 12  # columns that the first column keeps when it is wrapped


def table(rows: Sequence[Sequence[str]], left: int = 1, width: int = WIDTH) -> str:
    """Return rows of cells as aligned columns.

    The first `left` columns are aligned to the left, the others to the right. Where the table would be wider than
    `width`, the cells of the first column are wrapped over several lines.

    >>> print(table([("policy", "reward"), ("mp-ucb", "2.6")]))
    policy  reward
    mp-ucb     2.6
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    if excess > 0:
        widths[0] = max(min(MIN_LABEL, widths[0]), widths[0] - excess)
    lines = []
    for row in rows:
        first, *more = textwrap.wrap(row[0], widths[0], subsequent_indent=" ") or [""]
        pairs = enumerate(zip([first, *row[1:]], widths, strict=True))
        cells = [cell.ljust(size) if i < left else cell.rjust(size) for i, (cell, size) in pairs]
        lines += ["  ".join(cells).rstrip(), *more]
    return "\n".join(lines)


def paragraph(text: str, indent: int = 0) -> str:
    """Return a text wrapped at 80 columns; lines after the first are indented."""
    return textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def definitions(entries: Sequence[tuple[str, str]]) -> str:
    """Return terms with their explanations in a second column.

    >>> print(definitions([("p01", "probability of becoming good"), ("t", "slot")]))
    p01  probability of becoming good
    t    slot
    """
    size = max(len(term) for term, _ in entries) + 2
    return "\n".join(paragraph(f"{term:{size}}{text}", size) for term, text in entries)


def with_half_width(value: float, half: float, digits: int, unit: str = "") -> str:
    """Return a mean and the half width of its interval; "-" for no value, no half width where it is not finite.

    >>> with_half_width(2.5, 0.25, 2), with_half_width(2.5, math.inf, 2), with_half_width(math.nan, 0.0, 2)
    ('2.50 ±0.25', '2.50', '-')
    """
    if not math.isfinite(value):
        return "-"
    return f"{value:.{digits}f}" + (f" ±{half:.{digits}f}" if math.isfinite(half) else "") + unit


def digits_for(values: Sequence[float], digits: int = 4) -> int:
    """Return the number of decimals for a column: fewer where its numbers have several digits before the point.

    >>> digits_for([0.25, 3.5]), digits_for([123.4])
    (4, 2)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return max(0, digits - max(0, math.floor(math.log10(largest)) if largest >= 1 else 0))
