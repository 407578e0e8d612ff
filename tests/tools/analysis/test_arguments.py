"""The grammar of ``--to`` and of files of offsets."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.arguments import (
    Target,
    TargetKind,
    choice_of,
    is_chosen,
    parse_offsets,
    parse_target,
    parse_time,
    without,
)

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("start", TargetKind.START, 0),
        ("start+10", TargetKind.START, 10),
        ("end", TargetKind.END, 0),
        ("end-10", TargetKind.END, -10),
        ("0", TargetKind.OFFSET, 0),
        ("9223372036854775807", TargetKind.OFFSET, 2**63 - 1),
        ("+10", TargetKind.COMMITTED, 10),
        ("-10", TargetKind.COMMITTED, -10),
        ("+0", TargetKind.COMMITTED, 0),
        ("@-1h", TargetKind.TIME, NOW - HOUR),
        ("@-1.5h", TargetKind.TIME, NOW - HOUR * 3 // 2),
        ("@-2d12h30m", TargetKind.TIME, NOW - 60 * HOUR - HOUR // 2),
        ("@-90s", TargetKind.TIME, NOW - 90_000),
        ("@-5ms", TargetKind.TIME, NOW - 5),
        ("@2026-01-31", TargetKind.TIME, NOW + 30 * 24 * HOUR),
        ("@2026-01-01T01:00:00Z", TargetKind.TIME, NOW + HOUR),
        ("@2026-01-01t01:00:00z", TargetKind.TIME, NOW + HOUR),
        ("@2026-01-01T01:00:00.250+01:00", TargetKind.TIME, NOW + 250),
        ("@2026-01-01T01:00", TargetKind.TIME, NOW + HOUR),
        ("@1767225600", TargetKind.TIME, NOW),
        ("@1767225600123", TargetKind.TIME, NOW + 123),
        ("@1767225600123456789", TargetKind.TIME, NOW + 123),
    ],
)
def test_targets_are_those_of_kcl(text: str, kind: TargetKind, value: int) -> None:
    assert parse_target(text, now_ms=NOW) == Target(kind, value)


@pytest.mark.parametrize(
    "text",
    [
        *["", "@", "begin", "START", "start-1", "end+1", "1:5", ":end", "--1", "+-1", "1.5", "²", " 1", "1 "],
        *["9223372036854775808", "-9223372036854775809", "99999999999999999999"],
        *["@now", "@1h", "@+1h", "@-1", "@-h", "@-1w", "@-1h1", "@-99999d", "@12", "@176722560012"],
        *["@2026-13-01", "@2026-02-30", "@2026-1-1", "@2026-01-01T25:00", "@1960-01-01", "@2026-W01", "@20260101"],
    ],
)
def test_anything_else_is_refused_with_what_may_be_written(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not valid\. Write start, end"):
        parse_target(text, now_ms=NOW)


def test_times_may_have_a_fraction_of_a_second() -> None:
    assert parse_time("1767225600.5", now_ms=NOW) == NOW + 500
    assert parse_time("1767225600123.5", now_ms=NOW) is None


def test_partitions_are_chosen_by_topic_and_number() -> None:
    assert is_chosen({}, "orders", 3)
    assert is_chosen({"orders": None}, "orders", 3)
    assert is_chosen({"orders": frozenset({3})}, "orders", 3)
    assert not is_chosen({"orders": frozenset({0}), "clicks": frozenset({3})}, "orders", 3)
    assert not is_chosen({"clicks": None}, "orders", 3)


@given(st.text())
def test_rubbish_is_no_traceback(text: str) -> None:
    for read in (lambda: parse_target(text, now_ms=NOW), lambda: parse_offsets(text, source="f")):
        with suppress(ConfigurationError):
            read()


def test_a_file_has_kcls_form() -> None:
    file = json.dumps(
        [{"topic": "a", "partition": 0, "offset": 5}, {"topic": "b", "partition": 3, "offset": 0, "x": 1}]
    )
    assert parse_offsets(file, source="f") == {TopicPartition("a", 0): 5, TopicPartition("b", 3): 0}


GOOD = {"topic": "a", "partition": 0, "offset": 5}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("nonsense", "it is not a JSON list"),
        ("{}", "it is not a JSON list"),
        ("[]", "it contains no offset"),
        (json.dumps([GOOD, GOOD]), "it names a-0 twice"),
        *[
            (json.dumps([GOOD, {**GOOD, **wrong}]), "is not an offset")
            for wrong in (
                {"topic": ""},
                {"topic": None},
                {"topic": "\ud800"},
                {"partition": -1},
                {"partition": "0"},
                {"partition": True},
                {"partition": 2**31},
                {"offset": -1},
                {"offset": 2.0},
                {"offset": 2**63},
            )
        ],
        (json.dumps([5]), "is not an offset"),
        ("[" * 100_000, "it is not a JSON list"),
    ],
)
def test_a_file_of_another_form_is_refused_as_a_whole(document: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^f: .*{said}"):
        parse_offsets(document, source="f")


def test_what_is_left_of_a_choice_is_what_nothing_is_known_of() -> None:
    known = {TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("returns", 1)}
    assert choice_of(known) == {"orders": frozenset({0, 2}), "returns": frozenset({1})}
    chosen = {"orders": frozenset({0, 1}), "returns": None, "payments": None, "refunds": frozenset({3})}
    assert without(chosen, known) == {"orders": frozenset({1}), "payments": None, "refunds": frozenset({3})}
    assert without(chosen, ()) == chosen
    assert without({}, known) == {}
