"""Parses durations, for options and for the command line alike.  Pure."""

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
# \d would also match the digits of other scripts.  Spark's largest number has 19 digits, and the sum fits into a float.
_NUMBER = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,19})?")
_AMOUNT = re.compile(rf"({_NUMBER.pattern})\s*([a-zµ]+)")
_DURATION = re.compile(rf"(?:{_AMOUNT.pattern}\s*){{1,7}}")


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
    amounts = _AMOUNT.findall(written)
    if any(unit not in _UNITS_MS for _, unit in amounts):
        return None
    return float(sum(Fraction(amount) * _UNITS_MS[unit] for amount, unit in amounts))
