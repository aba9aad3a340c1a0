"""Figures as a plain-text table: knows widths and how a spread is written, nothing else."""

from collections.abc import Sequence

from memra.cli_bench.spread import Spread

NOTHING = "-"
_GAP = "  "


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of equal length, the first of which heads the columns; the first column reads, the others count."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        _GAP.join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    lines.insert(1, _GAP.join("-" * width for width in widths))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def format_number(value: float) -> str:
    """Three digits that mean something: `1234`, `56.7`, `0.912`."""
    for limit, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= limit:
            return f"{value:.{digits}f}"
    return f"{value:.3f}"


def format_spread(spread: Spread | None, *, scale: float = 1.0) -> str:
    """The median, with the lowest and the highest behind it where they differ."""
    if spread is None:
        return NOTHING
    median, low, high = (format_number(value * scale) for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} [{low}..{high}]"
