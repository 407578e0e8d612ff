"""Random rows and random conditions, to compare the option where with Spark's own ``df.where``."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

from pyspark.sql import types as t

from pyspark_kafka_group.columns.schema import COLUMNS, spark_schema

_VALUE = t.StructType(
    [
        t.StructField("b", t.ByteType()),
        t.StructField("s", t.ShortType()),
        t.StructField("i", t.IntegerType()),
        t.StructField("l", t.LongType()),
        t.StructField("f", t.FloatType()),
        t.StructField("d", t.DoubleType()),
        t.StructField("dec", t.DecimalType(12, 3)),
        t.StructField("t", t.StringType()),
        t.StructField("bin", t.BinaryType()),
        t.StructField("ok", t.BooleanType()),
        t.StructField("day", t.DateType()),
        t.StructField("ts", t.TimestampType()),
        t.StructField("In", t.StructType([t.StructField("x y", t.IntegerType())])),
    ]
)
SCHEMA = t.StructType(
    [t.StructField(field.name, _VALUE if field.name == "value" else field.dataType) for field in spark_schema(COLUMNS)]
)
"""The columns of the source, with a typed value."""

_UTC = datetime.UTC
_DOUBLES = [0.0, -0.0, 1.0, 1.5, -2.25, 3.0, float("nan"), float("inf"), float("-inf"), 1e300, 0.1]
_FLOATS = [0.0, 1.5, -2.25, float("nan"), float("inf"), 0.1, 3.0]
_TEXTS = ["", "a", "ab", "abc", "a\nb", "a%b", "a_b", "12", " 12 ", "-7", "1.5", "abc\n", "ABC", "é€", "x" * 30, "nan"]
_TEXTS += ["1e3", "0012", "\\", "a.c", "a-b", "0", "-0", "99999999999999999999", "3000000000", "127", "+5", "12\x0b"]
_TEXTS += ["1.00000005960464477539062500001", "1d", "-NaN", "nan\x7f", "+Infinity", " é", "a\r\n", "a\u2028", "\u0085"]
CUT = b"\xe2\x82"
"""The beginning of a character.  Spark's ``substring`` reads beyond such a text, and adds zero bytes: docs/where.md."""
_BYTES = [text.encode() for text in _TEXTS] + [b"\xff", b"a\xffb", b"\x00", b"\xed\xa0A", CUT]


def rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Return random records, a seventh of whose fields are null."""

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.15 else value

    def integer(bits: int) -> Any:
        half = 1 << (bits - 1)
        return maybe(random.choice([0, 1, -1, 2, 3, 7, 10, half - 1, -half]))

    def value() -> dict[str, Any]:
        moments = datetime.datetime(2026, 1, 1, tzinfo=_UTC), datetime.datetime(1960, 1, 1, 1, 1, 1, 5, tzinfo=_UTC)
        decimals = ["0", "1.5", "-2.25", "10", "999999999.999", "0.001"]
        return {
            **{name: integer(bits) for name, bits in {"b": 8, "s": 16, "i": 32, "l": 64}.items()},
            "f": maybe(random.choice(_FLOATS)),
            "d": maybe(random.choice(_DOUBLES)),
            "dec": maybe(Decimal(random.choice(decimals))),
            "t": maybe(random.choice(_TEXTS)),
            "bin": maybe(random.choice(_BYTES)),
            "ok": maybe(random.random() < 0.5),
            "day": maybe(random.choice([datetime.date(2026, 1, 1), datetime.date(1960, 2, 3)])),
            "ts": maybe(random.choice(moments)),
            "In": maybe({"x y": maybe(random.choice([1, 2, 3]))}),
        }

    def headers() -> list[dict[str, Any]]:
        names = ["a", "b", "trace"]
        return [
            {"key": random.choice(names), "value": maybe(random.choice(_BYTES))} for _ in range(random.randrange(4))
        ]

    return [
        {
            "key": maybe(random.choice(_BYTES)),
            "value": maybe(value()),
            "topic": random.choice(["orders", "users"]),
            "partition": random.choice([0, 1, 2]),
            "offset": number,
            "timestamp": datetime.datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=_UTC),
            "timestampType": 0,
            "headers": maybe(headers()),
        }
        for number in range(count)
    ]


_COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "=="]
_NUMBERS = ["value.b", "value.s", "value.i", "value.l", "value.f", "value.d", "value.dec", "partition", "offset"]
_NUMBERS += ["value.in.`x y`", "VALUE.I"]
_CONSTANTS = ["0", "1", "-1", "2", "10", "127", "2147483647", "3000000000", "1.5", "-2.25", "0.001", "1e0", "1.5D"]
_CONSTANTS += ["9223372036854775807", "10L", "3Y", "NULL", "1e300", "0.1", "0.10", "1.5BD", "-128Y", "1e2BD"]
_CONSTANTS += ["-2147483648", "-9223372036854775808L"]
_STRINGS = ["value.t", "CAST(key AS STRING)", "topic", "CAST(value.bin AS STRING)", "substring(value.t, 1, 2)"]
_STRINGS += ["substring(CAST(key AS STRING), -2, 2)", "substring(value.t, 2)", "substring(value.t, 0, 3)"]
_STRINGS += ["substring(value.t, -5, 4)", "string(key)"]
_WORDS = ["''", "'a'", "'ab'", "'abc'", "'12'", "X'61'", "X'ff'", "'é€'", '"a"', r"'a\nb'", "'orders'", "NULL"]
_LIKES = ["'a%'", "'%b'", "'a_b'", "'%'", "''", r"'a\\%b'", "'_'", "'%.%'", "'é_'", r"'a\\_b'", r"'%\n%'", "'abc'"]
_LIKES += ["'a!%b' ESCAPE '!'"]
_RLIKES = ["'^a'", "'b$'", "'a.b'", "'^[0-9]+$'", r"'\\d+'", "'a|b'", "'(a|b)c?'", r"'^\\s'", "'[^a]'", "'a{1,2}b'"]
_RLIKES += ["'^$'", "'.'", r"'\\.'", "'c$'", "'[a-c]+$'", r"'\\S'", r"'\\w-\\w'", "'a$'", "'^.$'", r"'[\\s]'"]
_INSIDE = ["h.key = 'a'", "h.value = X'61'", "h.key = 'trace' AND CAST(h.value AS STRING) LIKE 'a%'"]
_INSIDE += ["h.value IS NULL", "h.key = topic OR partition = 1"]
_TRUTHS = ["value.ok", "value.ok IS TRUE", "value.ok IS NOT FALSE", "value.ok = true", "value.ok IS NULL", "TRUE"]
_TRUTHS += ["NOT value.ok", "FALSE", "!value.ok"]
_NULLABLE = ["key", "value", "value.i", "value.in", "headers", "value.t", "value.in.`x y`"]


class Conditions:
    """Makes random conditions.  None of them fails for a row."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._atoms: list[Callable[[], str]] = [
            self._of_numbers,
            self._of_numbers,
            self._of_strings,
            self._of_strings,
            lambda: f"{self._one(_STRINGS)} {self._not()}LIKE {self._one(_LIKES)}",
            lambda: f"{self._one(_STRINGS)} {self._not()}RLIKE {self._one(_RLIKES)}",
            lambda: f"{self._number()} {self._not()}IN ({', '.join(random.sample(_CONSTANTS, 3))})",
            lambda: f"{self._one([*_STRINGS, 'key'])} {self._not()}IN ({', '.join(random.sample(_WORDS, 3))})",
            lambda: f"{self._number()} {self._not()}BETWEEN {self._number()} AND {self._number()}",
            lambda: f"{self._one(_NULLABLE)} IS {self._not()}NULL",
            lambda: f"exists(headers, h -> {self._one(_INSIDE)})",
            lambda: self._one(_TRUTHS),
            self._of_times,
            self._of_small_numbers,
        ]

    def next(self, depth: int = 0) -> str:
        """Return a condition."""
        chance = self._random.random()
        if depth > 3 or chance < 0.45:
            return self._random.choice(self._atoms)()
        if chance < 0.85:
            word = "AND" if chance < 0.65 else "OR"
            return f"({self.next(depth + 1)} {word} {self.next(depth + 1)})"
        return f"NOT ({self.next(depth + 1)})"

    def _one(self, choices: list[str]) -> str:
        return self._random.choice(choices)

    def _not(self) -> str:
        return self._one(["", "NOT "])

    def _number(self) -> str:
        chance = self._random.random()
        if chance < 0.55:
            return self._one(_NUMBERS)
        if chance < 0.75:
            return self._one(_CONSTANTS)
        if chance < 0.85:
            kind = self._one(["TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"])
            return f"try_cast({self._one(_STRINGS)} AS {kind})"
        if chance < 0.92:
            narrow = self._one(["value.b", "value.s", "value.i", "partition"])
            return f"CAST({narrow} AS {self._one(['BIGINT', 'DOUBLE', 'INT'])})"
        left, right = self._one(["value.d", "value.f"]), self._one(["value.d", "2.5D", "partition", "1.5", "offset"])
        return f"({left} {self._one(['+', '-', '*'])} {right})"

    def _of_numbers(self) -> str:
        return f"{self._number()} {self._one(_COMPARISONS)} {self._number()}"

    def _of_strings(self) -> str:
        parts = ["substring(key, 2)", "substring(value.bin, -2)", "substring(key, 2, 1)"]
        left, right = self._one([*_STRINGS, *parts, "key", "value.bin"]), self._one([*_WORDS, *_STRINGS, "key"])
        return f"{left} {self._one(_COMPARISONS)} {right}"

    def _of_times(self) -> str:
        operator = self._one(_COMPARISONS)
        return self._one(
            [
                f"value.day {operator} DATE '2026-01-01'",
                f"value.ts {operator} TIMESTAMP '2026-01-01 00:00:00Z'",
                f"timestamp {operator} TIMESTAMP '2026-01-01T01:00:30+01:00'",
                f"value.ts {operator} timestamp",
            ]
        )

    def _of_small_numbers(self) -> str:
        left = self._one(["partition", "offset % 100", "offset div 7", "-partition", "partition / 2"])
        right = self._one(["2", "CAST(partition AS BIGINT)", "3"])
        return f"({left} {self._one(['+', '-', '*'])} {right}) {self._one(_COMPARISONS)} {self._number()}"


FAILING = (
    "CAST(value.t AS INT) = 12",
    "value.l + 1 > 0",
    "-value.l > 0",
    "value.b * value.b > 0",
    "10 / partition > 1",
    "offset % partition = 0",
    "value.l div -1 > 0",
    "CAST(value.l AS INT) > 0",
    "partition = 0 OR CAST(value.t AS DOUBLE) > 1",
    "CAST(value.t AS INT) / value.i > 1",
    "value.i % CAST(value.t AS INT) > 1",
    "value.i * -2147483648 < 0",
    "exists(headers, h -> CAST(CAST(h.value AS STRING) AS INT) > 200)",
)
"""Conditions that fail for a row."""

SAVED = (
    "partition != 0 AND 10 / partition > 1",
    "partition = 0 OR 10 / partition > 1",
    "offset < 0 AND CAST(topic AS INT) = 1",
    "value.i < 10 AND value.i + 1 > 0 OR value.i > 0",
    "value.i IS NULL AND CAST(topic AS INT) / value.i > 1",
)
"""Conditions that would fail for a row if an earlier part did not decide."""
