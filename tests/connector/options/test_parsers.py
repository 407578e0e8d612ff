"""Parsers turn the text of an option into a value.

They accept the texts that Spark's own source accepts, except those that it would misread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyspark_kafka_group.offsets.start_inputs import NoMatch, StartingOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.options import parsers
from pyspark_kafka_group.options.parsers import MalformedError

LONG_MAX = 2**63 - 1
NO_MATCH = parsers.choice(NoMatch, "a strategy", "error or latest").parse


def refusal(parse: Callable[[str], Any], text: str) -> str:
    with pytest.raises(MalformedError) as raised:
        parse(text)
    return f"{raised.value} {raised.value.remedy}"


def test_times() -> None:
    assert parsers.milliseconds_since_1970(" 1577836800000 ") == 1577836800000
    assert parsers.milliseconds_since_1970("0") == 0


@pytest.mark.parametrize("text", ["", "now", "1.5", "2020-01-01", "-1", "-2", str(LONG_MAX + 1)])
def test_what_is_not_a_time(text: str) -> None:
    """The most important ones are -1 and -2, which brokers take for the ends of the log."""
    assert "is not a time in milliseconds since 1970. Write one" in refusal(parsers.milliseconds_since_1970, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", 900_000),
        ("5 minutes", 300_000),
        (" 1 Hour ", 3_600_000),
        ("250", 250),
        ("250ms", 250),
        ("10 sec", 10_000),
        ("2d", 172_800_000),
        ("1500us", 1),
        ("0s", 0),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("1 hour 30 minutes", 5_400_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parsers.duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-5m",
        "5 fortnights",
        "m5",
        "1h30",
        "1e3",
        "nan",
        "²s",
        "9" * 5000,
        "1" * 400 + ".5s",
        str(LONG_MAX + 1),
    ],
)
def test_what_is_not_a_duration(text: str) -> None:
    assert "is not a duration. Write one such as 30s, 15m or 5 minutes" in refusal(parsers.duration, text)


@pytest.mark.parametrize("text", ["0", "0s", "999us"])
def test_a_wait_without_a_length(text: str) -> None:
    assert "is too short. Write one such as 30s" in refusal(parsers.positive_duration, text)


@pytest.mark.parametrize("parse", [parsers.count, parsers.whole_number])
def test_numbers_are_longs_as_in_spark(parse: Callable[[str], int]) -> None:
    assert parse(str(LONG_MAX)) == LONG_MAX
    assert "is not a" in refusal(parse, str(LONG_MAX + 1))


def test_strategies() -> None:
    assert NO_MATCH(" Latest ") is NoMatch.LATEST
    assert NO_MATCH("error") is NoMatch.ERROR
    assert refusal(NO_MATCH, "earliest") == "'earliest' is not a strategy. Write error or latest."


def test_offsets_of_partitions_and_of_whole_topics() -> None:
    given = parsers.starting_offsets('{"a": {"0": 23, "1": -1}, "b-c": {"2": -2}, "d": "eArliest", "e": "latest"}')
    assert isinstance(given, parsers.GivenOffsets)
    assert given.partitions == {
        TopicPartition("a", 0): Offset(23),
        TopicPartition("a", 1): StartingOffset.LATEST,
        TopicPartition("b-c", 2): StartingOffset.EARLIEST,
    }
    assert given.topics == {"d": StartingOffset.EARLIEST, "e": StartingOffset.LATEST}
    assert parsers.starting_offsets("{}") == ({}, {})


def test_times_of_partitions() -> None:
    assert parsers.partition_times('{"a": {"0": 23, "1": 0}}') == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): 0,
    }


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parsers.partition_times, '{"a": {"0": -1}}', "-1 is not a time ('a', 0). Write JSON such as"),
        (parsers.partition_times, '{"a": {"0": "1"}}', "'1' is not a time ('a', 0)."),
        (parsers.partition_times, '{"a": {"x": 1}}', "'x' is not a partition number of topic 'a'."),
        (parsers.partition_times, '{"a": 5}', "the JSON is not an object of objects."),
        (parsers.partition_times, "latest", "it is not JSON (Expecting value"),
        (parsers.starting_offsets, '{"a": {"0": -3}}', "-3 is not an offset ('a', 0)."),
        (parsers.starting_offsets, '{"a": {"0": true}}', "True is not an offset ('a', 0)."),
        (parsers.starting_offsets, f'{{"a": {{"0": {LONG_MAX + 1}}}}}', "is not an offset ('a', 0)."),
        (parsers.starting_offsets, '{"a": {"٣": 1}}', "is not a partition number of topic 'a'."),
        (parsers.starting_offsets, '{"a": {"2147483648": 1}}', "is not a partition number of topic 'a'."),
        (parsers.starting_offsets, "[" * 100_000, "it is neither earliest, latest, nor JSON ("),
        (parsers.starting_offsets, '{"a": "soon"}', "the JSON is not an object of objects."),
        (parsers.starting_offsets, '{"a": "earliest", "a": {"0": 23}}', "it names 'a' twice."),
        (parsers.starting_offsets, '{"a": {"0": 1, "0": 2}}', "it names '0' twice."),
        (parsers.starting_offsets, '{"a": {"0": 1, "00": 2}}', "it names partition 0 of topic 'a' twice."),
        (parsers.starting_offsets, '{"a": "first"}', "the JSON is not an object of objects."),
        (parsers.starting_offsets, '{"a": [0, 1]}', "the JSON is not an object of objects."),
        (parsers.starting_offsets, '{"a": {"0": "earliest"}}', "'earliest' is not an offset ('a', 0)."),
        (parsers.starting_offsets, '"earliest"', "the JSON is not an object of objects."),
        (parsers.starting_offsets, "not json", "it is neither earliest, latest, nor JSON"),
        (parsers.partition_times, '{"a": {"0": 1}, "a": {"1": 1}}', "it names 'a' twice."),
        (parsers.partitions, '{"a": [0], "a": [1]}', "it names 'a' twice."),
        (parsers.partitions, "a:0", "it is not JSON"),
        (parsers.partitions, '{"a": {"0": 1}}', "the JSON is not an object of lists."),
        (parsers.partitions, '["a"]', "the JSON is not an object of lists."),
        (parsers.partitions, '{"a": ["0"]}', "'0' is not a partition number of topic 'a'."),
        (parsers.partitions, '{"a": [-1]}', "-1 is not a partition number of topic 'a'."),
        (parsers.partitions, '{"a": [true]}', "True is not a partition number of topic 'a'."),
        (parsers.partitions, '{"a": []}', "it names no partition."),
        (parsers.partitions, "{}", "it names no partition."),
        # Regression: these ended with errors of Python that name no option.
        (parsers.partitions, '{"\\ud800": [0]}', r"'\ud800' cannot be the name of a topic."),
        (parsers.starting_offsets, '{"\\ud800": {"0": 1}}', r"'\ud800' cannot be the name of a topic."),
        (parsers.starting_offsets, '{"\\ud800": "earliest"}', r"'\ud800' cannot be the name of a topic."),
        (parsers.partition_times, f'{{"a": {{"{"1" * 5000}": 1}}}}', f"'{'1' * 50}' is not a partition number of"),
    ],
)
def test_bad_json(parse: Callable[[str], Any], text: str, expected: str) -> None:
    found = refusal(parse, text)
    assert expected in found
    assert "Write " in found


def test_partitions_are_sorted_and_each_once() -> None:
    assert parsers.partitions('{"b": [1, 0, 1], "a": [10, 9]}') == (
        TopicPartition("a", 9),
        TopicPartition("a", 10),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )
