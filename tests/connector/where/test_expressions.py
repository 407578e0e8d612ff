"""What conditions mean for single values, as in Spark.  integration/test_where.py compares random ones with Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafka_group.columns.schema import arrow_schema
from pyspark_kafka_group.offsets.errors import MalformedRecordError, OptionError
from pyspark_kafka_group.where.filtering import row_filter
from pyspark_kafka_group.where.parsing import parse_condition
from tests.connector.where.test_filtering import BAD, read
from tests.connector.where.test_parsing import TYPED, TYPES, results

NAN = float("nan")
KEY = "CAST(key AS STRING)"
FLAT = {**TYPES, "ok": pa.bool_(), "f": pa.float32(), "d": pa.float64(), "small": pa.int8()}
FLAT |= {"big": pa.decimal128(38, 0), "exact": pa.decimal128(12, 2)}


@pytest.mark.parametrize(
    ("condition", "column", "values", "expected"),
    [
        ("key <=> 'a'", "key", [b"a", b"b", None], [True, False, False]),
        ("key <=> NULL", "key", [b"a", None], [False, True]),
        ("key IS DISTINCT FROM 'a'", "key", [b"a", b"b", None], [False, True, True]),
        ("d < d", "d", [NAN, 1.0], [False, False]),
        ("d < 'NaN'::double", "d", [NAN, 1.0], [False, True]),
        ("d >= 1e0", "d", [NAN, 1.0, 0.5], [True, True, False]),
        ("f = 16777217", "f", [16777216.0], [False]),
        ("offset = 2147483648", "offset", [2**31, -(2**31), 5], [True, False, False]),
        ("offset BETWEEN 1 AND 3", "offset", [0, 1, 3, 4, None], [False, True, True, False, None]),
        ("offset NOT BETWEEN 1 AND 3", "offset", [0, 1, 3, 4], [True, False, False, True]),
        ("ok IS TRUE", "ok", [True, False, None], [True, False, False]),
        ("ok IS NOT FALSE", "ok", [True, False, None], [True, False, True]),
        ("partition div -1 = 2147483648", "partition", [-(2**31)], [True]),
        ("offset % -1 = 0", "offset", [-(2**63), 7], [True, True]),
        ("offset % 3 = -1", "offset", [-7, 7], [True, False]),
        ("CAST(offset AS INT) = -2147483648", "offset", [-(2**31)], [True]),
        ("CAST(offset AS INT) = 2147483647", "offset", [2**31 - 1], [True]),
        (f"TRY_CAST({KEY} AS BIGINT) = 9223372036854775807", "key", [b"%d" % (2**63 - 1)], [True]),
        (f"TRY_CAST({KEY} AS DOUBLE) = 'NaN'::double", "key", [b"NaN", b"nan", b"x"], [True, True, None]),
        ("key = X'fff'", "key", [b"\x0f\xff"], [True]),
        ("topic NOT LIKE 'a%'", "topic", ["ab", "ba", None], [False, True, None]),
        ("topic LIKE 'b%'", "topic", ["ab", "ba"], [False, True]),
        ("topic LIKE '%b'", "topic", ["ab", "ba"], [True, False]),
        ("topic LIKE 'a_b'", "topic", ["a\nb", "ab", "a€b"], [True, False, True]),
        ("topic LIKE 'a%b'", "topic", ["a\n\nb"], [True]),
        (f"{KEY} LIKE 'a_'", "key", [b"a\xff"], [True]),
        ("topic RLIKE 'a.b'", "topic", ["axb", "a\rb", "a\nb", "a\u2028b"], [True, False, False, False]),
        ("topic RLIKE 'a$'", "topic", ["a", "a\n", "a\r\n", "a\nb", "ab"], [True, True, True, False, False]),
        ("substring(topic, 2, 3) = 'rde'", "topic", ["orders"], [True]),
        ("substring(topic, 0, 3) = 'ord'", "topic", ["orders"], [True]),
        ("substring(topic, -2, 2) = 'rs'", "topic", ["orders", "s"], [True, False]),
        ("substring(topic, -3, 2) = 'er'", "topic", ["orders"], [True]),
        ("substring(topic, -2, 9) = 'rs'", "topic", ["orders"], [True]),
        ("substring(topic, 2, 0) = ''", "topic", ["orders"], [True]),
        ("substring(topic, -2, -1) = ''", "topic", ["orders"], [True]),
        (f"substring({KEY}, 3, 1) = 'a'", "key", [b"\xff" + "😀a".encode(), b"\xff\xc3\xa9a"], [True, True]),
        ("substring(key, 2, 1) = X'ff'", "key", [b"\x00\xff\x01"], [True]),
        ("substring(key, 2) = 'bc'", "key", [b"abc", b"xyz", b"", b"a"], [True, False, False, False]),
        ("substring(key, -2) = 'bc'", "key", [b"abc", b"bc"], [True, True]),
        (f"TRY_CAST({KEY} AS FLOAT) = 1", "key", [b"1.00000005960464477539062500001", b" 1e0f"], [False, True]),
        (f"{KEY} RLIKE '^.A$'", "key", [b"\xed\xa0A", b"\xed\xa0\x80A"], [True, True]),
        ("small = -128Y", "small", [-128, 1], [True, False]),
        ("offset = -9223372036854775808L", "offset", [-(2**63)], [True]),
        ("offset > 1e2BD", "offset", [100, 101], [False, True]),
        ("big > 7", "big", [Decimal(7), Decimal(8)], [False, True]),
        ("exact IN (1, 1.50)", "exact", [Decimal("1.50"), Decimal("1.00"), Decimal("1.51")], [True, True, False]),
        (
            "exists(headers, h -> h.key = 'n' AND CAST(CAST(h.value AS STRING) AS INT) > 0)",
            "headers",
            [[{"key": "n", "value": b"1"}, {"key": "n", "value": b"x"}], [{"key": "m", "value": b"x"}]],
            [True, False],
        ),
        (
            "exists(headers, h -> h.value = 'a')",
            "headers",
            [[{"key": "x", "value": None}, {"key": "x", "value": b"a"}], [{"key": "x", "value": None}]],
            [True, None],
        ),
    ],
)
def test_a_condition_has_the_results_of_spark(
    condition: str, column: str, values: list[Any], expected: list[bool | None]
) -> None:
    assert results(condition, FLAT, **{column: values}) == expected


@pytest.mark.parametrize(
    ("condition", "columns", "fails"),
    [
        # A comparison with null needs no other side.
        (f"TRY_CAST({KEY} AS INT) > 10 / partition", {"key": [None, b"1"], "partition": [0, 0]}, [False, True]),
        ("10 / partition IN (1D, 2D)", {"partition": [0, 5]}, [True, False]),
        ("10 / partition NOT IN (1D)", {"partition": [0, 5]}, [True, False]),
        ("offset / partition > 1", {"offset": [None, 1], "partition": [0, 0]}, [False, True]),
        ("offset div -1 > 0", {"offset": [-(2**63), 1]}, [True, False]),
        ("small * small > 0", {"small": [100, 3, None]}, [True, False, False]),
        ("small + small > 0", {"small": [100, 3, -128]}, [True, False, True]),
        ("partition = 0 OR 10 / partition > 1", {"partition": [0, 5]}, [False, False]),
        ("10 / partition > 1 OR partition = 0", {"partition": [0, 5]}, [True, False]),
        # Spark looks at the divisor first.
        (f"CAST({KEY} AS INT) / partition > 1", {"key": [b"x", b"x"], "partition": [None, 1]}, [False, True]),
        (f"partition / CAST({KEY} AS INT) > 1", {"partition": [None, 1], "key": [b"x", b"1"]}, [True, False]),
        (f"partition % CAST({KEY} AS INT) > 1", {"partition": [None, 1], "key": [b"x", b"1"]}, [True, False]),
        ("partition * -2147483648 < 0", {"partition": [2, 1]}, [True, False]),
        (
            "exists(headers, h -> CAST(CAST(h.value AS STRING) AS INT) > 0)",
            {
                "headers": [
                    [{"key": "n", "value": value} for value in values] for values in ([b"1", b"x"], [b"x", b"1"])
                ]
            },
            [False, True],
        ),
        (
            f"exists(headers, h -> CAST(CAST(h.value AS STRING) AS INT) > 0) AND {KEY} = 'a'",
            {"headers": [[{"key": "x", "value": b"x"}], [{"key": "x", "value": b"1"}]], "key": [b"a", b"a"]},
            [True, False],
        ),
    ],
)
def test_a_condition_fails_for_the_rows_for_which_spark_fails(
    condition: str, columns: dict[str, list[Any]], fails: list[bool]
) -> None:
    arrays = {name: pa.array(values, FLAT[name]) for name, values in columns.items()}
    found = parse_condition(condition, FLAT).evaluate(arrays, len(fails))
    assert found.failed is not None
    assert found.failed.to_pylist() == fails


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("offset BETWEEN SYMMETRIC 3 AND 1", "is not supported"),
        ("value.NAME = 'a'", "is ambiguous"),
        ("topic RLIKE '[a&&b]'", "'&' inside"),
        ("CAST(topic AS STRING COLLATE UTF8_LCASE) LIKE 'O%'", "COLLATE UTF8_LCASE is not supported"),
        ("topic = '${name}'", "put in a variable"),
        ("value.big = 1.5", r"DECIMAL\(38, 0\) with DECIMAL\(2, 1\)"),
        ("value.big IN (1, 1.5)", r"DECIMAL\(38, 0\) with DECIMAL\(2, 1\)"),
        ("offset < 1e400", "too large"),
        ("offset = 1E", "not a number"),
        ("offset = 1e40BD", "38 digits"),
        ("offset = 1e999999999BD", "38 digits"),
        ("offset = CAST('1.567' AS DECIMAL(10,1))", r"a cast to DECIMAL\(10, 1\) is not supported"),
        ("offset = TRY_CAST('500' AS DECIMAL(2,0))", r"a cast to DECIMAL\(2, 0\) is not supported"),
        ("offset = CAST('NaN' AS DECIMAL(3,0))", "NaN is not a number"),
        ("offset = CAST('1_0' AS DECIMAL(2,0))", "1_0 is not a number"),
        ("timestamp > TIMESTAMP '20260131T120000Z'", "is not a TIMESTAMP"),
        ("timestamp > TIMESTAMP '2026-01-31 12:00:00,5Z'", "is not a TIMESTAMP"),
        ("value.day = DATE '20260131'", "is not a DATE"),
    ],
)
def test_what_would_mean_something_else_is_refused(condition: str, part: str) -> None:
    fields = [("name", pa.string()), ("Name", pa.string()), ("big", pa.decimal128(38, 0)), ("day", pa.date32())]
    with pytest.raises(OptionError, match=part):
        parse_condition(condition, {**TYPED, "value": pa.struct(fields)})


@pytest.mark.parametrize(
    ("kind", "text"),
    [("DOUBLE", b"1" * 10**6 + b"x"), ("DOUBLE", b"0x" + b"f" * 10**6), ("BIGINT", b"0" * 10**6 + b"x")],
)
def test_a_long_text_that_is_no_number_takes_no_long_time(kind: str, text: bytes) -> None:
    """Regression: the regular expressions tried all ways to split it.  This text would have taken hours."""
    assert results(f"TRY_CAST({KEY} AS {kind}) > 1", key=[text]) == [None]


def test_the_origin_of_a_record_is_read_if_one_part_may_fail() -> None:
    wanted = row_filter(f"key IS NOT NULL AND CAST({KEY} AS INT) > 0", arrow_schema(("key",)))
    assert wanted.columns_to_read(("key",)) == ("key", "topic", "partition", "offset")


def test_a_malformed_value_is_no_failure_of_the_condition() -> None:
    where = f"value.id = 1 OR CAST({KEY} AS INT) > 0"
    with pytest.raises(MalformedRecordError, match="offset 100"):
        read([b"x"], [BAD], where)
