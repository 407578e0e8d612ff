"""JSON: the values that each type accepts, and equal results of the fast and the plain decoder."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.formats.ddl import struct_type
from pyspark_kafka_group.formats.decoder import TOO_LARGE, Decoded, MalformedValueError, decode_each
from pyspark_kafka_group.formats.json_decoder import JsonDecoder
from pyspark_kafka_group.formats.json_values import document
from tests.packaging.packages import ROOT

SCHEMA = (
    "a BIGINT, b DOUBLE, c STRING, d BOOLEAN, e DATE, f TIMESTAMP, g DECIMAL(5,2), h ARRAY<INT>, "
    "i STRUCT<x: TIMESTAMP_NTZ, y: TINYINT>, j FLOAT"
)


def decoder(schema: str) -> JsonDecoder:
    wanted = struct_type(schema)
    return JsonDecoder(wanted, to_arrow_type(wanted, timezone="UTC"))


def decode(schema: str, *values: bytes | None) -> Decoded:
    return decoder(schema).decode(pa.array(values, pa.binary()))


def one(kind: str, text: str) -> Any:
    """Return the value of a field of this type, or why the record is malformed."""
    found = decode(f"a {kind}", f'{{"a": {text}}}'.encode())
    if found.malformed:
        return found.malformed[0]
    return found.column[0].as_py()["a"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("BIGINT", "null", None),
        ("DOUBLE", "5", 5.0),
        ("DOUBLE", "1e400", float("inf")),
        ("DOUBLE", '"-Infinity"', float("-inf")),
        ("STRING", "1.10", "1.10"),
        ("STRING", "true", "true"),
        ("STRING", '{"b": [1, "x"]}', '{"b":[1,"x"]}'),
        ("STRING", '"a\\u0000\\n"', "a\0\n"),
        ("BINARY", '"aGk="', b"hi"),
        ("DATE", '"2024-02-29"', date(2024, 2, 29)),
        ("DECIMAL(5,2)", "1.255", Decimal("1.26")),
        ("DECIMAL(5,2)", '"-1.2"', Decimal("-1.20")),
        ("TIMESTAMP", '"2024-05-01T14:00:00.123456789+02:00"', datetime(2024, 5, 1, 12, 0, 0, 123456, UTC)),
        ("TIMESTAMP", '"2024-05-01 12:00"', datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("TIMESTAMP", "1714564800", datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("TIMESTAMP", '"1969-12-31T23:59:59.5Z"', datetime(1969, 12, 31, 23, 59, 59, 500000, UTC)),
        ("TIMESTAMP_NTZ", '"2024-05-01T12:00:00"', datetime(2024, 5, 1, 12)),
        ("MAP<STRING,INT>", '{"k": 1, "l": null}', [("k", 1), ("l", None)]),
        ("ARRAY<STRUCT<x: INT>>", '[{"x": 1, "z": 2}, null, {}]', [{"x": 1}, None, {"x": None}]),
    ],
)
def test_a_value_of_a_type(kind: str, text: str, value: object) -> None:
    assert one(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("BIGINT", "9223372036854775808", "a is a number, and not bigint"),
        ("TINYINT", "128", "a is a number, and not tinyint"),
        ("INT", "1.0", "a is a number, and not int"),
        ("INT", '"1"', "a is a string, and not int"),
        ("INT", "1" * 5000, "a is a number, and not int"),
        ("BOOLEAN", "1", "a is a number, and not boolean"),
        ("DECIMAL(5,2)", "1000", "a is a number, and not decimal(5,2)"),
        ("DECIMAL(5,2)", '"NaN"', "a is a string, and not decimal(5,2)"),
        ("DECIMAL(5,2)", '"1_0"', "a is a string, and not decimal(5,2)"),
        ("DECIMAL(5,2)", '"\u0661"', "a is a string, and not decimal(5,2)"),
        ("DECIMAL(5,2)", "NaN", "a is a number, and not decimal(5,2)"),
        ("STRING", "[" * 900 + "]" * 900, "a is nested too deeply"),
        ("DOUBLE", "Inf", "it is not JSON: Expecting value at character 6"),
        ("DOUBLE", "-NaN", "it is not JSON: Expecting value at character 6"),
        ("ARRAY<DOUBLE>", "[1, -Inf]", "it is not JSON: Expecting value at character 10"),
        ("DATE", '"2023-02-29"', "a is a string, and not date"),
        ("TIMESTAMP", '"2024-05-01T12:00:00 Europe/Paris"', "a is a string, and not timestamp"),
        ("TIMESTAMP_NTZ", '"2024-05-01T12:00:00Z"', "a is a string, and not timestamp_ntz"),
        ("BINARY", '"%"', "a is a string, and not binary"),
        ("ARRAY<INT>", '[1, "x"]', "a[] is a string, and not int"),
        ("MAP<STRING,INT>", "[]", "a is an array, and not map<string,int>"),
        ("STRUCT<x: INT>", '{"x": {}}', "a.x is an object, and not int"),
        ("STRING", '"\\ud800"', "it does not fit into the column (UnicodeEncodeError)"),
    ],
)
def test_a_malformed_value_is_told_without_its_content(kind: str, text: str, problem: str) -> None:
    assert one(kind, text) == problem


def test_a_bad_record_does_not_fail_good_ones() -> None:
    good = [f'{{"a": {n}}}'.encode() for n in range(1000)]
    values: list[bytes | None] = [*good]
    values[500] = b'{"a": 1} {"a": 2}'
    values[501] = b""
    values[502] = None
    values[503] = b'{\n"a": 7\n}\n'
    values[504] = b'{"a": "\xff"}'
    values[505] = b"[1]"
    values[506] = b"null"

    found = decode("a BIGINT", *values)

    assert set(found.malformed) == {500, 501, 504, 505}
    assert "it is not UTF-8 at byte 7" in found.malformed[504]
    expected: list[Any] = [{"a": n} for n in range(1000)]
    expected[500:507] = [None, None, None, {"a": 7}, None, None, None]
    assert found.column.to_pylist() == expected


@pytest.mark.parametrize(("kind", "text"), [("DATE", "0000-12-31"), ("TIMESTAMP_NTZ", "0000-12-31T00:00:00")])
def test_the_year_0_is_malformed_whatever_stands_beside_it(kind: str, text: str) -> None:
    alone = decode(f"a {kind}", b'{"a": "%s"}' % text.encode())
    beside = decode(f"a {kind}", b'{"a": "%s"}' % text.encode(), b"{")

    assert set(alone.malformed) == {0}
    assert beside.malformed[0] == alone.malformed[0]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_column_of_nulls_takes_the_fast_way(kind: str) -> None:
    fast = decoder(f"a {kind}")

    found = fast._at_once(pa.array([b'{"a": null}', b"{}"], pa.binary()))

    assert found is not None
    assert found.to_pylist() == [{"a": None}] * 2


def test_what_confluents_serializer_writes_is_read_without_its_head() -> None:
    assert decode("a INT", b'\0\0\0\0\x07{"a": 1}', b'{"a": 2}').column.to_pylist() == [{"a": 1}, {"a": 2}]


def test_the_last_of_equal_names_counts() -> None:
    assert one("INT", '1, "a": 2') == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1.00000005960464477540", 1 + 2**-23),
        (b"1.000000059604644775390625", 1.0),
        (b"1.000000059604644775390624999", 1.0),
        (b"-1.00000005960464477540", -1 - 2**-23),
        (b"1e39", float("inf")),
    ],
)
def test_a_float_is_the_nearest_one_in_one_line_and_in_more(text: bytes, value: float) -> None:
    found = decode("a FLOAT", b'{"a": %s}' % text, b'{"a":\n%s}' % text)

    assert found.malformed == {}
    assert found.column.to_pylist() == [{"a": value}] * 2


EXPONENTS = [
    "1e-999999999",
    "0e-999999999",
    '"1e-10000000"',
    "1e999999999",
    "0." + "0" * 40 + "1e-9",
    "-1E-99",
    "15e-1",
]


def test_exponents_of_decimals_do_not_end_the_process() -> None:
    """Regression: Arrow's reader reads beyond a table (apache/arrow#50964), so one record ended each worker."""
    texts = [f'{{"a": {text}}}' for text in EXPONENTS]
    program = f"""
from tests.connector.formats.test_json import decode
for text in {texts!r}:
    found = decode("a DECIMAL(10,2)", text.encode(), b'{{"a": 1}}')
    print(found.malformed.get(0) or found.column[0]["a"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    refused = "a is a number, and not decimal(10,2)"
    assert done.stdout.splitlines() == ["0.00", "0.00", "0.00", refused, "0.00", "0.00", "1.50"]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from(
        ["2024-05-01", "2024-05-01T12:00:00Z", "2024-05-01 12:00:00.5", "2024-02-30T00:00:00Z", "2024-05-01T24:00:00Z",
         "2024-05-01T12:00:60Z", "0000-01-01", "0001-01-01T00:00:00+14:00", "1.255", "2024-05-01T12:00:00+25:00",
         "2024-05-01T12:00:00+01:99"]
    ),
)  # fmt: skip
FIELDS = st.dictionaries(
    st.sampled_from([*"abcdefghij", "more"]),
    st.one_of(SCALARS, st.lists(st.integers(0, 3), max_size=3), st.dictionaries(st.sampled_from("xyz"), SCALARS)),
)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=20),
    FIELDS.map(lambda found: json.dumps(found).encode()),
    FIELDS.map(lambda found: json.dumps(found, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [
            b'{"a":1}{"a":2}',
            b'{"a":1} ',
            b"\0\0",
            b"{}",
            b'{"b":-0.0,"a":-0}',
            b'{"d":true,"d":1}',
            b"{}}",
            b'{"b":Infinity}',
            b'{"b":Inf}',
            b'{"more":-Inf}',
            b'{"more":[-NaN]}',
            b'{"c":": Inf"}',
            b'{"g":"1_0"}',
        ]
    ),
)


@given(st.lists(VALUES, max_size=80))
def test_the_fast_way_gives_what_the_plain_one_gives(values: list[bytes | None]) -> None:
    fast = decoder(SCHEMA)
    bare = [None if value is None else value[5:] if value[:1] == b"\0" else value for value in values]

    found = fast.decode(pa.array(values, pa.binary()))
    plain = decode_each(bare, fast._one, fast._type)

    assert found.malformed == plain.malformed
    assert found.column.equals(plain.column)


def test_signs_within_strings_are_not_parts() -> None:
    """The second text has no end.  Each of its quotes could begin a string: to try them all would take hours."""
    text = "1,[" * 3_000_000
    assert one("STRING", json.dumps(text)) == text
    assert one("STRING", '"' + '\\",' * 3_000_000).startswith("it is not JSON: Unterminated string")
    assert one("STRING", f'"",\n"b": "{text}", "c": [{text}') == TOO_LARGE


def test_a_document_of_many_texts_has_few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is not a part: the sign before it is."""
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 182_000)
    assert document(b"[" + b",".join([b'",,"'] * 1000) + b"]") == [",,"] * 1000
    with pytest.raises(MalformedValueError, match=TOO_LARGE):
        document(b"[" + b",".join([b'",,"'] * 2000) + b"]")
