"""Tables for a terminal."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows of cells in columns, the first `left` columns to the left, the others to the right.

    >>> print(aligned([("policy", "reward"), ("mp-ucb", "2.6")]))
    policy  reward
    mp-ucb     2.6
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        pairs = enumerate(zip(row, widths, strict=True))
        cells = [cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in pairs]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
