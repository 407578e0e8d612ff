"""Parses durations, for the options of Spark's sources and for the command line alike.  Pure."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS_MS = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), Fraction(1, 10**6)),
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), Fraction(1, 1000)),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), Fraction(1)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), Fraction(1000)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), Fraction(60_000)),
    **dict.fromkeys(("h", "hour", "hours"), Fraction(3_600_000)),
    **dict.fromkeys(("d", "day", "days"), Fraction(86_400_000)),
}
# The class of letters is as wide as the keys of the table.  \d without ASCII would be the digits of all scripts.
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]+)")
_DURATION = re.compile(rf"(?:{_AMOUNT.pattern}\s*)+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def duration_ms(text: str, *, alone: str | None) -> float | None:
    """Return a duration such as ``30s``, ``1h30m`` or ``5 minutes`` in milliseconds.

    Parameters
    ----------
    text : str
        What a user has written.
    alone : str or None
        The unit of a number without one.  None refuses such a number.

    Returns
    -------
    float or None
        None if the text is not a duration.
    """
    written = text.strip().lower()
    if alone is not None and _NUMBER.fullmatch(written):
        written += alone
    if not _DURATION.fullmatch(written):
        return None
    amounts = [(Fraction(amount), _UNITS_MS.get(unit)) for amount, unit in _AMOUNT.findall(written)]
    if any(unit is None for _, unit in amounts):
        return None
    total = sum((amount * unit for amount, unit in amounts if unit is not None), Fraction(0))
    return float(total) if total.denominator > 1 else int(total)
