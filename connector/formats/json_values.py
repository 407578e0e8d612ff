"""Converts a parsed JSON document to a value of a Spark type, mostly by the rules of ``from_json``.

This module defines the meaning of JSON here.  `json_decoder` may be faster, but its results must be the same.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from itertools import islice
from typing import Any, NoReturn

from pyspark.sql import types as t

from pyspark_kafka_group.columns.rounding import for_single
from pyspark_kafka_group.columns.schema import to_arrow_type
from pyspark_kafka_group.formats.budget import Budget, cost_of, most_bytes
from pyspark_kafka_group.formats.decoder import TOO_LARGE, MalformedValueError

Convert = Callable[[Any], Any]

DATE = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-\d\d-\d\d"
"""A date, for the regular expressions of both Python and Arrow.  Excludes the year 0, which only Arrow knows."""

_TIMESTAMP = re.compile(
    rf"({DATE})(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{{1,9}}))?)?\s?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_DATE = re.compile(DATE, re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)  # Decimal itself also accepts 1_000
_EPOCH_DAYS = date(1970, 1, 1).toordinal()
_RANGES: dict[type[t.DataType], int] = {t.ByteType: 7, t.ShortType: 15, t.IntegerType: 31, t.LongType: 63}
_WORDS = {
    "NaN": float("nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}
_DECIMALS = Context(prec=76)


class Number(str):
    """The text of a number.  A string of the document is a plain `str`."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)


_PART_BYTES = 128
"""The size of a part of a parsed document.  An object of one field takes two of them, and has two signs."""

_SIGNS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[,:\[{]', re.DOTALL)
"""A string, or a sign before a part.  Deliberate: also a string without an end, or each quote in it would begin one."""


def _check_parts(value: bytes) -> None:
    """Raise :class:`MalformedValueError` for a document that would take too much memory when it is parsed.

    This includes fields that the schema does not have.
    """
    most = most_bytes(len(value)) // _PART_BYTES
    if len(value) <= most or sum(map(value.count, (b",", b":", b"[", b"{"))) <= most:
        return
    signs = (found for found in _SIGNS.finditer(value) if value[found.start()] != ord('"'))
    if next(islice(signs, most, None), None) is not None:
        raise MalformedValueError(TOO_LARGE)


def document(value: bytes) -> Any:
    """Return the parsed document, with numbers as :class:`Number`; raise :class:`MalformedValueError`."""
    _check_parts(value)
    try:
        return _DECODER.decode(value.decode())
    except UnicodeDecodeError as problem:
        raise MalformedValueError(f"it is not UTF-8 at byte {problem.start}") from None
    except json.JSONDecodeError as problem:
        raise MalformedValueError(f"it is not JSON: {problem.msg} at character {problem.pos}") from None
    except RecursionError:
        raise MalformedValueError("it is JSON that is nested too deeply") from None


def converter(wanted: t.DataType, budget: Budget, path: str = "") -> Convert:
    """Return a function that converts a part of a document to a value of a type.

    The function raises :class:`MalformedValueError`, and the errors of `Budget.spend`.
    """

    def checked(convert: Convert) -> Convert:
        return lambda found: None if found is None else convert(found)

    def refuse(found: Any) -> NoReturn:
        kind = _kind(found)
        raise MalformedValueError(f"{path or 'it'} is {kind}, and not {wanted.simpleString()[:80]}")

    if isinstance(wanted, t.StructType):
        fields = [(f.name, converter(f.dataType, budget, f"{path}.{f.name}" if path else f.name)) for f in wanted]
        return checked(
            lambda found: (
                {name: convert(found.get(name)) for name, convert in fields}
                if isinstance(found, dict)
                else refuse(found)
            )
        )
    if isinstance(wanted, t.ArrayType):
        element = converter(wanted.elementType, budget, f"{path}[]")
        cost = _cost(wanted.elementType)

        def array(found: Any) -> Any:
            if not isinstance(found, list):
                return refuse(found)
            budget.spend_bytes(len(found) * cost)
            return list(map(element, found))

        return checked(array)
    if isinstance(wanted, t.MapType):
        of_value = converter(wanted.valueType, budget, f"{path}{{}}")
        cost = _cost(wanted.keyType) + _cost(wanted.valueType)

        def entries(found: Any) -> Any:
            if not isinstance(found, dict):
                return refuse(found)
            budget.spend_bytes(len(found) * cost)
            return [(key, of_value(x)) for key, x in found.items()]

        return checked(entries)
    simple = _simple(wanted)

    def convert(found: Any) -> Any:
        try:
            return simple(found)
        except (ValueError, OverflowError, InvalidOperation, binascii.Error):
            return refuse(found)
        except RecursionError:
            raise MalformedValueError(f"{path or 'it'} is nested too deeply") from None

    return checked(convert)


def _cost(kind: t.DataType) -> int:
    return cost_of(to_arrow_type(kind))


def _simple(wanted: t.DataType) -> Convert:
    if isinstance(wanted, t.BooleanType):
        return lambda found: found if isinstance(found, bool) else _raise()
    if type(wanted) in _RANGES:
        limit = 1 << _RANGES[type(wanted)]
        return lambda found: _whole(found, limit)
    if isinstance(wanted, t.FloatType):
        return _single
    if isinstance(wanted, t.DoubleType):
        return _floating
    if isinstance(wanted, t.DecimalType):
        return lambda found: _decimal(found, wanted.precision, wanted.scale)
    if isinstance(wanted, t.StringType):
        return _string
    if isinstance(wanted, t.BinaryType):
        return lambda found: base64.b64decode(_plain(found), validate=True)
    if isinstance(wanted, t.DateType):
        return _days
    return lambda found: _microseconds(found, zoned=isinstance(wanted, t.TimestampType))


def _raise() -> NoReturn:
    raise ValueError


def _plain(found: Any) -> str:
    return found if isinstance(found, str) and not isinstance(found, Number) else _raise()


def _whole(found: Any, limit: int) -> int:
    number = int(found) if isinstance(found, Number) and len(found) < 25 else _raise()
    return number if -limit <= number < limit else _raise()


def _floating(found: Any) -> float:
    if isinstance(found, Number):
        return float(found)
    word = _plain(found)
    return _WORDS[word] if word in _WORDS else _raise()


def _single(found: Any) -> float:
    number = _floating(found)
    return for_single(number, found) if isinstance(found, Number) else number


def _decimal(found: Any, precision: int, scale: int) -> Decimal:
    if not isinstance(found, str) or len(found) > 400:
        return _raise()
    text = found if isinstance(found, Number) else found.strip()
    number = Decimal(text) if _DECIMAL.fullmatch(text) else _raise()
    rounded = number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=_DECIMALS)
    return rounded if rounded.adjusted() < precision - scale or not rounded else _raise()


def _string(found: Any) -> str:
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        return str(found)
    return _text(found)


def _text(found: Any) -> str:
    """Return a part of a document as JSON, without blanks."""
    if isinstance(found, dict):
        return "{" + ",".join(f"{_text(key)}:{_text(value)}" for key, value in found.items()) + "}"
    if isinstance(found, list):
        return "[" + ",".join(map(_text, found)) + "]"
    return str(found) if isinstance(found, Number) else json.dumps(found, ensure_ascii=False)


def _days(found: Any) -> int:
    text = _plain(found)
    return date.fromisoformat(text).toordinal() - _EPOCH_DAYS if _DATE.fullmatch(text) else _raise()


def _microseconds(found: Any, *, zoned: bool) -> int:
    """Return microseconds since 1970.  A time without a zone is in UTC."""
    if isinstance(found, Number):
        seconds = _whole(found, 1 << 43) if zoned else _raise()
        return seconds * 1_000_000
    parts = _TIMESTAMP.fullmatch(_plain(found))
    if parts is None or (parts[6] and not zoned):
        return _raise()
    hour, minute, second = (int(part or 0) for part in parts.group(2, 3, 4))
    day = date.fromisoformat(parts[1])
    offset = timedelta(0)
    if parts[6] and parts[6] != "Z":
        digits = parts[6].replace(":", "")
        offset = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:5])) * (-1 if digits[0] == "-" else 1)
        timezone(offset)  # refuses more than a day
        if int(digits[3:5]) > 59:
            return _raise()
    at = datetime(day.year, day.month, day.day, hour, minute, second)
    since = at - datetime(1970, 1, 1) - offset
    micros = int((parts[5] or "").ljust(6, "0")[:6])
    return (since.days * 86_400 + since.seconds) * 1_000_000 + micros


def _kind(found: Any) -> str:
    if isinstance(found, bool):
        return "a truth value"
    if isinstance(found, Number):
        return "a number"
    kinds: dict[type, str] = {str: "a string", list: "an array", dict: "an object"}
    return kinds.get(type(found), "something else")
