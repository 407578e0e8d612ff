"""Rounds numbers of texts to the nearest FLOAT.  Pure."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

_MOST_DIGITS = 400
"""A longer text is not compared digit by digit: others write it, and it would take long."""


def for_single(number: float, text: str) -> float:
    """Return a number that rounds to the FLOAT nearest to a text: rounding twice may give a neighbour.

    Parameters
    ----------
    number : float
        The DOUBLE nearest to the text.
    text : str
        A decimal number.
    """
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    if bits & 0x1FFFFFFF != 0x10000000 or len(text) > _MOST_DIGITS:
        return number  # not halfway between two of FLOAT
    written, halfway = Decimal(text), Decimal(number)
    return number if written == halfway else math.nextafter(number, math.copysign(math.inf, written - halfway))
