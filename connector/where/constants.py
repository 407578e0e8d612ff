"""Reads the constants of a condition as Spark does: numbers with their types, dates and times."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal

import pyarrow as pa

from pyspark_kafka_group.where.expressions import Expression, Literal
from pyspark_kafka_group.where.types import MOST_DIGITS, limits

_INTEGER = re.compile(r"-?[0-9]++")
_EXPONENT = re.compile(r"-?([0-9]++(\.[0-9]*+)?|\.[0-9]++)[eE][+-]?[0-9]++")
_DECIMAL = re.compile(r"-?([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][+-]?[0-9]++)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    rf"{_DATE.pattern}[ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}})?)?(Z|[+-][0-9]{{2}}:[0-9]{{2}})?"
)


class UnsupportedError(Exception):
    """A part of the condition is not supported."""


def of_number(text: str) -> Literal:
    """Return a number, whose text may begin with a minus: Spark takes it for a part of the number."""
    if _INTEGER.fullmatch(text) and len(text) <= 20:
        for kind in (pa.int32(), pa.int64()):
            if is_inside(int(text), kind):
                return Literal(kind, int(text))
    if _EXPONENT.fullmatch(text):
        if math.isinf(float(text)):
            raise UnsupportedError(f"{text} is too large")
        return Literal(pa.float64(), float(text))
    return of_decimal(text)


def of_decimal(text: str) -> Literal:
    """Return a number of exactly these digits, which may have an exponent."""
    try:
        number = Decimal(text if _DECIMAL.fullmatch(text) else "")  # Decimal itself also accepts NaN and 1_000
        if abs(number.adjusted()) <= 2 * MOST_DIGITS:  # else the text would be long
            number = Decimal(format(number, "f"))
    except ArithmeticError:
        raise UnsupportedError(f"{text} is not a number") from None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    if len(digits) > MOST_DIGITS or scale > MOST_DIGITS or exponent > 0:
        raise UnsupportedError(f"{text} has more than {MOST_DIGITS} digits")
    return Literal(pa.decimal128(max(len(digits), scale, 1), scale), number)


def with_own_digits(of: Expression, other: Expression) -> Expression:
    """Return an integer constant beside a decimal with as many digits as it has, as Spark sees it."""
    if not isinstance(of, Literal) or of.value is None:
        return of
    if not pa.types.is_integer(of.type) or not pa.types.is_decimal(other.type):
        return of
    return Literal(pa.decimal128(len(str(abs(of.value))), 0), Decimal(of.value))


def is_inside(number: int | None, kind: pa.DataType) -> bool:
    """Return whether an integer type has a number."""
    low, high = limits(kind)
    return number is not None and low <= number <= high


def of_time(text: str, *, is_date: bool) -> Literal:
    """Return a date, or a time with its zone."""
    text = text.strip()
    if not (_DATE if is_date else _TIME).fullmatch(text):
        raise _not_a_time(text, is_date=is_date)
    try:
        if is_date:
            return Literal(pa.date32(), datetime.date.fromisoformat(text))
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise _not_a_time(text, is_date=is_date) from None
    if moment.tzinfo is None:
        raise UnsupportedError(f"{text!r} has no time zone: write it with Z, or an offset such as +01:00")
    return Literal(pa.timestamp("us", "UTC"), moment)


def _not_a_time(text: str, *, is_date: bool) -> UnsupportedError:
    example = "DATE '2026-01-31'" if is_date else "TIMESTAMP '2026-01-31 12:00:00Z'"
    return UnsupportedError(f"{text!r} is not a {example.partition(' ')[0]}: write it like {example}")
