"""Tables for people: 80 columns for a terminal, Markdown for the docs.  All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.samples import Spread

WIDTH = 80
MISSING = "-"

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(kw_only=True)
class Table:
    """Rows under a header; the first column is text, the others are figures.

    Attributes
    ----------
    title : str
        The line above the table.
    header : list of str
        The names of the columns.
    rows : list of list of str
        The content of the rows.
    """

    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def text(self) -> str:
        """Return the table for a terminal, cut to :data:`WIDTH` columns."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        spare = WIDTH - sum(widths) - 2 * (len(widths) - 1)
        if spare < 0:
            widths[0] = max(8, widths[0] + spare)
        lines = [_line(row, widths) for row in [self.header, ["-" * width for width in widths], *self.rows]]
        return "\n".join([self.title[:WIDTH], *(line[:WIDTH] for line in lines)])

    def markdown(self) -> str:
        """Return the table for the docs."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        rows = [f"| {' | '.join(row)} |" for row in [self.header, rule, *self.rows]]
        return "\n".join([f"**{self.title.strip()}**", "", *rows])  # Markdown has no bold text that begins with a space


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0] if len(row[0]) <= widths[0] else row[0][: widths[0] - 1] + "~"
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def figure(value: float | None) -> str:
    """Return a number with three significant digits, and k, M or G for thousands, millions and billions."""
    if value is None:
        return MISSING
    for size, prefix in _PREFIXES:
        if abs(value) >= size * 0.9995:
            return f"{_three_digits(value / size)}{prefix}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3f}" if size >= 0.0005 else f"{value:.1e}"


def figure_with_spread(measured: Spread | None) -> str:
    """Return the median, with smallest and largest in parentheses if there are several repetitions."""
    if measured is None:
        return MISSING
    if measured.count == 1:
        return figure(measured.median)
    return f"{figure(measured.median)} ({figure(measured.smallest)}-{figure(measured.largest)})"
