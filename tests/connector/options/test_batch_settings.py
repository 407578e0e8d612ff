"""The options of batch reads."""

from __future__ import annotations

import logging

import pytest

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.range_bounds import AtCommitted, AtTime, NamedBounds, NotCommitted
from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.batch_settings import BatchSettings, parse_batch, parse_either
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.options.table import OPTIONS

TP = TopicPartition("t", 0)


def parsed(**options: str) -> BatchSettings:
    names = {option.name.replace(".", "_"): option.name for option in OPTIONS}
    given = {names.get(key, key): value for key, value in options.items()}
    subscribed = {"subscribe": "t"} if not {"assign", "subscribe", "subscribePattern"} & given.keys() else {}
    return parse_batch({"kafka.bootstrap.servers": "x:1", **subscribed, **given})


def test_defaults_are_those_of_spark() -> None:
    settings = parsed()
    assert (settings.start, settings.until) == (StartingOffset.EARLIEST, StartingOffset.LATEST)
    assert (settings.fetch_attempts, settings.fetch_pause_s) == (3, 1.0)
    assert settings.group_id is None


def test_names_of_readers() -> None:
    assert parsed(groupIdPrefix="mine").reader_name == "mine"
    assert parsed(kafka_group_id="g", groupIdPrefix="mine").reader_name == "g"


def test_times_count_more_than_offsets() -> None:
    settings = parsed(
        startingTimestamp="5",
        startingOffsetsByTimestamp='{"t": {"0": 6}}',
        startingOffsets="earliest",
        endingOffsetsByTimestamp='{"t": {"0": 7}}',
        endingOffsets="latest",
    )
    assert settings.start == AtTime(5, "startingTimestamp")
    assert settings.until == NamedBounds({TP: AtTime(7, "endingOffsetsByTimestamp")}, {})


@pytest.mark.parametrize("offsets", ["latest", '{"t": {"0": -1}}', '{"t": "latest"}', "committed"])
def test_offsets_that_count_less_than_a_time_may_say_anything(offsets: str) -> None:
    """Spark's own source does the same: it refuses a start at the end only if this option decides."""
    assert parsed(startingTimestamp="5", startingOffsets=offsets).start == AtTime(5, "startingTimestamp")
    by_partition = parsed(startingOffsetsByTimestamp='{"t": {"0": 6}}', startingOffsets=offsets).start
    assert by_partition == NamedBounds({TP: AtTime(6, "startingOffsetsByTimestamp")}, {})
    assert parsed(endingTimestamp="5", endingOffsets="earliest").until == AtTime(5, "endingTimestamp")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, "subscribe"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"subscribe": ""}, "subscribe"),
        ({"subscribe": "t", "subscribePattern": "t.*"}, "subscribePattern"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
        ({"subscribe": "t", "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}, "minOffsetsPerTrigger"),
        ({"subscribe": "t"}, "kafka.bootstrap.servers"),
    ],
)
def test_what_is_given_is_looked_at_before_what_is_missing(options: dict[str, str], wrong: str) -> None:
    """Spark's own test suites pass a bad option alone, without the address of a cluster."""
    with pytest.raises(OptionError) as raised:
        parse_batch(options)
    assert raised.value.option == wrong


def test_starting_where_a_group_has_committed() -> None:
    settings = parsed(startingOffsets="committed", kafka_group_id="g", startingOffsetsIfNotCommitted="fail")
    assert settings.start == AtCommitted(NotCommitted.FAIL)
    assert parsed(startingOffsets="committed", kafka_group_id="g").start == AtCommitted(None)
    with pytest.raises(OptionError, match="it is committed, but there is no group"):
        parsed(startingOffsets="committed")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "latest"}, "the starting offset can't be latest in a batch read"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "the starting offset for t-0 can't be latest"),
        ({"startingOffsets": '{"t": "latest"}'}, "the starting offset for t can't be latest"),
        ({"endingOffsets": "earliest"}, "the ending offset can't be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "the ending offset for t-0 can't be earliest"),
        (
            {"startingOffsets": '{"t": {"0": 1, "1": 1}}', "endingOffsets": '{"t": {"0": 0}}'},
            "'endingOffsets': it names other topic-partitions than startingOffsets: t-1",
        ),
        (
            {"startingOffsets": '{"t": {"0": 1}}', "endingOffsets": '{"t": {"0": 0}}'},
            "the start offset 1 of t-0 is greater than its end offset 0",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 2}}', "endingOffsetsByTimestamp": '{"t": {"0": 1}}'},
            "'startingOffsetsByTimestamp': the start 2 of t-0 is greater than its end 1",
        ),
        ({"commitMode": "plain"}, "'commitMode': only a stream has it. Remove it"),
        ({"onOffsetRewind": "group"}, "'onOffsetRewind': only a stream has it"),
        ({"checkpointLocation": "/x"}, "'checkpointLocation': only a stream has it"),
        ({"endingOffset": "latest"}, "Did you mean 'endingOffsets'?"),
        ({"startingOffsetsIfNotCommitted": "never"}, "'never' is not a policy"),
        ({"startingOffsetsIfNotCommitted": "fail"}, "it changes nothing without startingOffsets=committed. Add"),
        ({"maxOffsetsPerTrigger": "none"}, "'maxOffsetsPerTrigger'"),
        ({"startingOffsets": "first"}, "neither earliest, committed, nor JSON"),
        ({"endingOffsets": "last"}, "it is neither latest nor JSON"),
    ],
)
def test_what_is_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError) as raised:
        parsed(**options)
    assert expected in str(raised.value)


def test_words_and_numbers_may_be_mixed_at_both_ends() -> None:
    assert isinstance(parsed(startingOffsets='{"t": {"0": 5}}', endingOffsets='{"t": {"0": -1}}').until, NamedBounds)
    # A time and an offset cannot be compared.
    parsed(startingOffsetsByTimestamp='{"t": {"0": 5}}', endingOffsets='{"t": {"0": 1}}')


def test_a_warning_for_what_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    settings = parsed(maxOffsetsPerTrigger="5", maxTriggerDelay="5m", drainTimeoutMs="1000")
    with caplog.at_level(logging.WARNING):
        settings.warn_of_ignored_options()
    assert settings.ignored == ("maxOffsetsPerTrigger", "maxTriggerDelay", "drainTimeoutMs")
    assert "Option 'maxOffsetsPerTrigger' is ignored in batch reads" in caplog.text


def test_secrets_are_not_shown() -> None:
    settings = parse_batch(
        {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "kafka.sasl.password": "s3cret"},
    )
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"t": {"0": 5}}')
    with pytest.raises(OptionError, match="not supported with streaming"):
        parse({"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g", "subscribe": "t", name: value})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kafka.group.id": "g", "startingOffsets": "nowhere"}, "startingOffsets"),
        ({"kafka.group.id": "g", "drainTimeoutMs": "400000"}, "drainTimeoutMs"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"kafka.group.id": "g", "startingOffsets": "committed", "endingOffsets": "earliest"}, "endingOffsets"),
        ({"maxOffsetPerTrigger": "5"}, "Did you mean"),
    ],
)
def test_before_it_is_known_how_it_reads(options: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        parse_either({"kafka.bootstrap.servers": "x:1", "subscribe": "t", **options})


def test_a_stream_that_lacks_only_its_group_is_told_so_beside_what_a_batch_read_lacks() -> None:
    stream = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "startingOffsets": "latest"}
    with pytest.raises(OptionError, match=r"can't be latest.* In a stream: Option 'kafka\.group\.id'") as told:
        parse_either(stream)
    assert told.value.option == "startingOffsets"
    with pytest.raises(OptionError, match="can't be latest") as told:
        parse_either({**stream, "endingOffsets": "latest"})
    assert "In a stream" not in str(told.value)


def test_what_either_takes_passes() -> None:
    base = {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}
    assert parse_either(base).columns == parse_either({**base, "kafka.group.id": "g"}).columns
    assert "headers" in parse_either({**base, "includeHeaders": "true"}).columns
    parse_either({**base, "maxOffsetsPerTrigger": "5"})
    parse_either({**base, "kafka.group.id": "g", "onOffsetRewind": "group", "startingOffsets": "latest"})
