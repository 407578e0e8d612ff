"""Tables for people, within the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 80
"""How wide a table may be, unless it is asked to be wide."""

_GAP = "  "
_SHORTEST = 8
_CUT = "…"


class Column(NamedTuple):
    """A column: its head, whether it holds numbers, which stand to the right, and whether its texts may be cut."""

    head: str
    number: bool = False
    shrinks: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, width: int | None = WIDTH) -> list[str]:
    """Return the lines of a table.

    Parameters
    ----------
    columns : sequence of Column
        What stands above the rows.
    rows : sequence of sequences
        A cell for each column; None is a dash.
    width : int or None
        How many characters a line may have; the texts of columns that may be cut lose their middle until it does.
        None cuts nothing.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max([len(column.head), *(len(row[at]) for row in cells)]) for at, column in enumerate(columns)]
    if width is not None:
        _fit(widths, columns, width)
    lines = [[column.head for column in columns], *cells]
    return [_line(line, columns, widths) for line in lines]


def _fit(widths: list[int], columns: Sequence[Column], width: int) -> None:
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        able = [at for at, column in enumerate(columns) if column.shrinks and widths[at] > _SHORTEST]
        if not able:
            return
        widths[max(able, key=lambda at: widths[at])] -= 1


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    shown = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = cut(cell, width)
        shown.append(text.rjust(width) if column.number else text.ljust(width))
    return _GAP.join(shown).rstrip()


def cut(text: str, width: int) -> str:
    """Return a text without so much of its middle that it fits: names differ at their ends."""
    if len(text) <= width:
        return text
    left = (width - 1) // 2
    right = width - 1 - left
    return text[:left] + _CUT + text[len(text) - right :]


def clean(value: object) -> str:
    """Return what a cell shows: no character that does something to a terminal, and a dash for None."""
    if value is None:
        return "-"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value))


def duration(milliseconds: int) -> str:
    """Return how long something took, with its two largest units at most.

    Parameters
    ----------
    milliseconds : int
        How long.
    """
    seconds = max(0, milliseconds) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 24 * 3600:
        return f"{seconds // 3600} h {seconds // 60 % 60} min"
    return f"{seconds // 86400} d {seconds // 3600 % 24} h"


def brief(seconds: float | None) -> str | None:
    """Return how long something takes in at most six characters, for a column; None stays None."""
    if seconds is None:
        return None
    for limit, unit, size in ((99.5, "s", 1), (99.5 * 60, "m", 60), (47.5 * 3600, "h", 3600)):
        if seconds < limit:
            value = seconds / size
            return f"{value:.1f}{unit}" if 0 < value < 9.95 else f"{value:.0f}{unit}"
    return f"{min(seconds / 86400, 99999):.0f}d"
