"""Conditions of the option where: what is accepted, what is refused, and with which text."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafka_group.columns.schema import COLUMNS, arrow_schema
from pyspark_kafka_group.offsets.errors import MissingDependencyError, OptionError
from pyspark_kafka_group.where.parsing import MAX_LENGTH, parse_condition

TYPES: dict[str, pa.DataType] = {field.name: field.type for field in arrow_schema(COLUMNS)}
VALUE = pa.struct({"amount": pa.int64(), "price": pa.float64(), "name": pa.string(), "at": pa.struct({"x": pa.int8()})})
TYPED = {**TYPES, "value": VALUE}
NOT_SUPPORTED = "Use comparisons, AND, OR, NOT"


def results(condition: str, types: dict[str, pa.DataType] = TYPES, **columns: list[Any]) -> list[bool | None]:
    """Return the values of a condition that fails for no row."""
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items()}
    found = parse_condition(condition, types).evaluate(arrays, len(next(iter(columns.values()))))
    assert found.failed is None or not any(found.failed.to_pylist())
    answers: list[bool | None] = found.values.to_pylist()
    return answers


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("upper(topic) = 'A'", "UPPER(topic)"),
        ("topic ILIKE 'a'", "ILIKE"),
        ("offset IN (SELECT 1)", "SELECT 1"),
        ("(SELECT count(*) FROM t) = 1", "COUNT"),
        ("CASE WHEN offset = 1 THEN true END", "CASE"),
        ("offset = :p", ":p"),
        ("offset & 1 = 1", "offset & 1"),
        ("key = 1", "compares BINARY with INT"),
        ("timestamp > '2026-01-01'", "compares TIMESTAMP with STRING"),
        ("timestamp > TIMESTAMP '2026-01-01 00:00:00'", "no time zone"),
        ("timestamp > TIMESTAMP 'today'", "is not a TIMESTAMP"),
        ("CAST(key AS INT) = 1", "AS STRING) AS INT"),
        ("CAST(offset AS DATE) > 1", "DATE"),
        ("offset", "is BIGINT, not a condition"),
        ("nosuch = 1", "nosuch does not exist"),
        ("value.nosuch = 1", "value.nosuch does not exist"),
        ("partition IN (offset)", "is not a constant"),
        ("topic LIKE topic", "is not a constant text"),
        (r"topic LIKE 'a\\b'", "escape character"),
        ("topic RLIKE '(?i)a'", "(?i"),
        (r"topic RLIKE '\\p{L}'", r"\\p"),
        ("topic RLIKE 'a++'", "+"),
        ("topic RLIKE '(a){900}{900}'", "{900}"),
        ("substring(topic, partition) = 'a'", "constant positions"),
        ("exists(headers, topic -> topic.key = 'a')", "topic is a column"),
        ("offset * 1.5 > 2", "1.5D"),
        ("1234567890123456789012345678901234567890 = offset", "38 digits"),
        ("topic = 'a' = TRUE < TRUE", "without parentheses"),
        ("TRUE <=> offset < 5", "without parentheses"),
        ("concat(topic, 'x') = 'ax'", "is not supported"),
        ("offset = 1 = (partition = 1)", "without parentheses"),
        ("headers = headers", "compares ARRAY with ARRAY"),
        ("topic = 'O''Brien'", r"a quote in it as \'"),
        (r"topic RLIKE 'a$\\s'", "behind a $"),
        ("topic RLIKE '(a$|b)c'", "behind a $"),
        ("topic RLIKE '(a|$)+'", "behind a $"),
    ],
)
def test_a_part_that_is_not_supported_is_named(condition: str, part: str) -> None:
    with pytest.raises(OptionError, match=r"^Option 'where': ") as refused:
        parse_condition(condition, TYPES)

    assert part in str(refused.value)
    assert NOT_SUPPORTED in str(refused.value)


@pytest.mark.parametrize(
    "condition",
    [
        *("key = ", "a b c", "key = 'a", "SELECT", "key = 1; DROP TABLE t", ""),
        *("(" * 5000 + "true" + ")" * 4000, "NOT " * 2400 + "true", "x" * (MAX_LENGTH + 1)),  # too deep or too long
    ],
)
def test_what_is_no_condition_is_an_error_of_the_option(condition: str) -> None:
    with pytest.raises(OptionError, match="where"):
        parse_condition(condition, TYPES)


def test_bytes_are_compared_with_text_and_with_bytes() -> None:
    assert results("key = 'é' OR key = X'ff'", key=["é".encode(), b"\xff", b"e", None]) == [True, True, False, None]


def test_names_are_found_in_any_case() -> None:
    assert results("VALUE.Amount > 1", TYPED, value=[{"amount": 2}, {"amount": None}, None]) == [True, None, None]


def test_nan_is_equal_to_itself_and_greater_than_any_number() -> None:
    rows = [{"price": float("nan")}, {"price": float("inf")}]
    assert results("value.price = value.price", TYPED, value=rows) == [True, True]
    assert results("value.price > 1e300", TYPED, value=rows) == [True, True]
    assert results("value.price < 1e300", TYPED, value=rows) == [False, False]
    assert results("value.price <= value.price", TYPED, value=rows) == [True, True]


def test_both_zeros_are_in_a_list() -> None:
    rows = [{"price": 0.0}, {"price": -0.0}, {"price": 1.0}]
    assert results("value.price IN (0, 7)", TYPED, value=rows) == [True, True, False]
    assert results("value.price IN (-0.0D)", TYPED, value=rows) == [True, True, False]


def test_a_time_without_a_zone_is_not_compared_with_a_timestamp() -> None:
    with pytest.raises(OptionError, match="compares TIMESTAMP_NTZ with TIMESTAMP"):
        parse_condition("at < timestamp", {**TYPES, "at": pa.timestamp("us")})


def test_nulls_are_compared() -> None:
    assert results("NULL = NULL", partition=[1]) == [None]
    assert results("NULL <=> NULL", partition=[1]) == [True]


def test_a_dollar_may_end_each_alternative() -> None:
    text = [b"a", b"b\n", b"ax", b"c"]
    assert results("CAST(key AS STRING) RLIKE '^((a|b)$|c$)'", key=text) == [True, True, False, True]


def test_bytes_of_a_surrogate_are_one_character_as_in_java() -> None:
    assert results("CAST(key AS STRING) LIKE '_'", key=[b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xff"]) == [True] * 3


@pytest.mark.parametrize("operator", [" OR partition = 1", " + partition"])
def test_a_condition_that_is_too_deep_for_executors_is_refused(operator: str) -> None:
    with pytest.raises(OptionError, match="nested too deeply"):
        parse_condition("partition = 1" + operator * 320, TYPES)
    parse_condition("partition = 1" + operator * 200, TYPES)


def test_a_list_with_null_is_never_false() -> None:
    assert results("partition IN (1, NULL)", partition=[1, 2, None]) == [True, None, None]
    assert results("partition NOT IN (1, 2)", partition=[1, 3, None]) == [False, True, None]


def test_a_header_is_found_by_its_name() -> None:
    headers = [
        [{"key": "kind", "value": b"a"}, {"key": "x", "value": b"b"}],
        [{"key": "kind", "value": None}],
        [],
        None,
    ]
    condition = "exists(headers, h -> h.key = 'kind' AND h.value = 'a')"
    assert results(condition, headers=headers) == [True, None, False, None]


def test_a_number_in_text_is_read_as_spark_does() -> None:
    text = [b"12", b" 12\n", b"+12", b"0012", b"1.5", b"x", b"", b"99999999999", b"0" * 50 + b"12", None]
    found = results("TRY_CAST(CAST(key AS STRING) AS INT) = 12", key=text)
    assert found == [True, True, True, True, None, None, None, None, True, None]
    text = [b"1.5", b"15e-1", b"1.5d", b"inf", b"NaN", b"-NaN", b"-nan", b"nan\x7f", b"1_0", b"0x1p3", None]
    found = results("TRY_CAST(CAST(key AS STRING) AS DOUBLE) >= 1.5", key=text)
    assert found == [True, True, True, True, True, True, None, None, None, True, None]
    text = [b"0x1p3", b"-0X.8p1D", b"0x1p9999", b"-0x1p9999", b"0x1", b"0x"]
    assert results("TRY_CAST(CAST(key AS STRING) AS DOUBLE) >= 8", key=text) == [True, False, True, False, None, None]


def test_the_right_side_does_not_fail_where_the_left_side_decides() -> None:
    found = parse_condition("partition != 0 AND 10 / partition > 1", TYPES).evaluate(
        {"partition": pa.array([0, 5, None], pa.int32())}, 3
    )
    assert found.values.to_pylist() == [False, True, None]
    assert found.failed is not None
    assert found.failed.to_pylist() == [False, False, False]


@pytest.mark.parametrize(
    ("condition", "fails"),
    [
        ("10 / partition > 1", [False, True, False]),
        ("10 % partition > 1", [False, True, False]),
        ("offset + 1 > 0", [True, False, False]),
        ("-offset > 0", [False, False, False]),
        ("CAST(CAST(key AS STRING) AS INT) > 0", [True, False, False]),
        ("CAST(offset AS INT) > 0", [True, False, False]),
        ("1 = 1 OR 10 / partition > 1", [False, False, False]),
    ],
)
def test_a_row_that_fails_is_marked(condition: str, fails: list[bool]) -> None:
    columns = {
        "partition": pa.array([1, 0, None], pa.int32()),
        "offset": pa.array([2**63 - 1, 5, None], pa.int64()),
        "key": pa.array([b"x", b"1", None], pa.binary()),
    }
    failed = parse_condition(condition, TYPES).evaluate(columns, 3).failed
    assert (failed.to_pylist() if failed is not None else [False] * 3) == fails


def test_a_missing_parser_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(MissingDependencyError, match=r"pyspark-kafka-group\[where\]"):
        parse_condition("true", TYPES)


def test_a_sqlglot_that_reads_texts_otherwise_than_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: before 30.22, sqlglot kept the backslash of an escape that it did not know."""
    import sqlglot

    assert results(r"topic = 'O\"B\141'", topic=['O"Ba']) == [True]
    monkeypatch.setattr(sqlglot, "parse_one", lambda text, read: sqlglot.exp.Literal.string(text[1:-1]))
    with pytest.raises(OptionError, match=r"^Option 'where': the installed sqlglot is too old.*30\.22"):
        parse_condition("topic = 'a'", TYPES)
