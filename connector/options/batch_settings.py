"""What the options of ``spark.read.format("kafka-group")`` say, parsed and checked: :class:`BatchSettings`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_kafka_group.offsets.client_config import value_of
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.range_bounds import AtCommitted, AtTime, Bounds, NamedBounds
from pyspark_kafka_group.offsets.start_inputs import NoMatch
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.batch_parsers import COMMITTED, batch_starting_offsets, check_end, check_start
from pyspark_kafka_group.options.format_settings import Formats, formats_of
from pyspark_kafka_group.options.option import Use
from pyspark_kafka_group.options.parsers import GivenOffsets, MalformedError, StartingOffsets
from pyspark_kafka_group.options.property_checks import check_properties
from pyspark_kafka_group.options.start_options import check_limits, strategy
from pyspark_kafka_group.options.table import OPTIONS
from pyspark_kafka_group.options.values import (
    check_required,
    columns_of,
    given_options,
    min_records_per_task,
    value_of_option,
)

_log = logging.getLogger(__name__)

_READER = "kafka-group-batch"
"""What the readers call themselves where no option says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """All options, parsed and checked.

    Attributes
    ----------
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.  Hidden from ``repr``: there are secrets in it.
    group_id : str or None
        ``kafka.group.id``.
    reader_name : str
        What clients are called that join no group: the group, or ``groupIdPrefix``, or a made-up name.
    topics : tuple of str
        ``subscribe``.
    pattern : str or None
        ``subscribePattern``.
    assigned : tuple of TopicPartition
        ``assign``.
    start, until : Bounds
        What to read.
    start_option, until_option : str
        The options that say so.
    no_match : NoMatch
        ``startingOffsetsByTimestampStrategy``.
    fail_on_data_loss : bool
        ``failOnDataLoss``.
    columns : tuple of str
        ``columns``, and headers if ``includeHeaders``.
    min_records_per_task : int
        ``minRecordsPerTask``.
    min_partitions, max_records_per_partition : int or None
        ``minPartitions`` and ``maxRecordsPerPartition``; None is off.
    poll_timeout_s : float
        ``kafkaConsumer.pollTimeoutMs``, in seconds.
    fetch_attempts : int
        ``fetchOffset.numRetries``.
    fetch_pause_s : float
        ``fetchOffset.retryIntervalMs``, in seconds.
    read_committed : bool
        Whether the readers skip aborted transactions and wait for open ones.
    ignored : tuple of str
        Options that only a stream has, and that change nothing here.
    formats : Formats or None
        What keys and values are, if not bytes.
    """

    properties: Mapping[str, str] = field(repr=False)
    group_id: str | None
    reader_name: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    start: Bounds
    until: Bounds
    start_option: str
    until_option: str
    no_match: NoMatch
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    min_records_per_task: int
    min_partitions: int | None
    max_records_per_partition: int | None
    poll_timeout_s: float
    fetch_attempts: int
    fetch_pause_s: float
    read_committed: bool
    ignored: tuple[str, ...]
    formats: Formats | None = None

    def warn_of_ignored_options(self) -> None:
        """Log which options change nothing."""
        for name in self.ignored:
            _log.warning("Option %r is ignored in batch reads: only a stream has it.", name)


def parse_batch(options: Mapping[str, str]) -> BatchSettings:
    """Parse and check the options of ``spark.read.format("kafka-group")``.

    Parameters
    ----------
    options : mapping of str to str
        As Spark hands them over; case does not matter for keys.

    Raises
    ------
    OptionError
        For the first option that is missing, unknown, malformed or in conflict; it names the option and the remedy.
    """
    given = given_options(options)
    parsers = {"startingOffsets": batch_starting_offsets}
    values = {
        option.name: value_of_option(option, given, parse=parsers.get(option.name), default=option.batch_default)
        for option in OPTIONS
    }
    for option in OPTIONS:
        if option.batch is Use.NO and option.name.lower() in given:
            raise OptionError(option.name, "only a stream has it.", "Remove it, or use spark.readStream.")
    properties = {key.removeprefix("kafka."): value for key, value in given.items() if key.startswith("kafka.")}
    check_properties(properties)
    check_limits(values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"])
    start_option, start = _start(values)
    until_option, until = _until(values)
    read = strategy(values)
    check_required(given)
    group_id: str | None = values["kafka.group.id"]
    _check_committed(start, group_id, given)
    _check_order(start_option, start, until_option, until)
    columns = columns_of(values)
    formats = formats_of(
        values, given=given, columns=columns, topics=read.topics, pattern=read.pattern, partitions=read.partitions
    )
    return BatchSettings(
        properties=properties,
        group_id=group_id,
        reader_name=group_id or values["groupIdPrefix"] or _READER,
        topics=() if read.partitions else read.topics,
        pattern=read.pattern,
        assigned=read.partitions,
        start=start,
        until=until,
        start_option=start_option,
        until_option=until_option,
        no_match=values["startingOffsetsByTimestampStrategy"],
        fail_on_data_loss=values["failOnDataLoss"],
        columns=columns,
        min_records_per_task=min_records_per_task(values, given),
        min_partitions=values["minPartitions"],
        max_records_per_partition=values["maxRecordsPerPartition"],
        poll_timeout_s=values["kafkaConsumer.pollTimeoutMs"] / 1000,
        fetch_attempts=values["fetchOffset.numRetries"],
        fetch_pause_s=values["fetchOffset.retryIntervalMs"] / 1000,
        read_committed=value_of("isolation.level", properties) == "read_committed",
        ignored=tuple(o.name for o in OPTIONS if o.batch is Use.IGNORED and o.name.lower() in given),
        formats=formats,
    )


def _start(values: Mapping[str, Any]) -> tuple[str, Bounds]:
    """Return where to start, and the option that says so: the first that is given, as in Spark's own source."""
    times = _times(values, "startingTimestamp", "startingOffsetsByTimestamp")
    if times is not None:
        return times
    found = values["startingOffsets"]
    if found == COMMITTED:
        return "startingOffsets", AtCommitted(values["startingOffsetsIfNotCommitted"])
    return "startingOffsets", _bounds("startingOffsets", found, check_start)


def _until(values: Mapping[str, Any]) -> tuple[str, Bounds]:
    times = _times(values, "endingTimestamp", "endingOffsetsByTimestamp")
    if times is not None:
        return times
    return "endingOffsets", _bounds("endingOffsets", values["endingOffsets"], check_end)


def _check_committed(start: Bounds, group_id: str | None, given: Mapping[str, str]) -> None:
    """Refuse committed offsets of no group, and a word about them where they are not asked for."""
    if not isinstance(start, AtCommitted):
        if "startingoffsetsifnotcommitted" in given:
            raise OptionError(
                "startingOffsetsIfNotCommitted",
                "it changes nothing without startingOffsets=committed.",
                "Add .option('startingOffsets', 'committed'), or remove it.",
            )
        return
    if group_id is None:
        raise OptionError(
            "startingOffsets",
            "it is committed, and no group is named.",
            "Add .option('kafka.group.id', ...), whose committed offsets to start at.",
        )


def _times(values: Mapping[str, Any], of_all: str, of_each: str) -> tuple[str, Bounds] | None:
    if values[of_all] is not None:
        return of_all, AtTime(values[of_all], of_all)
    if values[of_each] is not None:
        return of_each, NamedBounds({tp: AtTime(ms, of_each) for tp, ms in values[of_each].items()}, {})
    return None


def _bounds(option: str, found: StartingOffsets, check: Callable[[StartingOffsets], None]) -> Bounds:
    # Only here, where they decide: what counts less than a time may say anything, as in Spark's own source.
    try:
        check(found)
    except MalformedError as malformed:
        raise OptionError(option, str(malformed), malformed.remedy) from None
    return NamedBounds(*found) if isinstance(found, GivenOffsets) else found


def _check_order(start_option: str, start: Bounds, until_option: str, until: Bounds) -> None:
    """Refuse what is wrong whatever the logs hold: other partitions at the start than at the end, or a lower end."""
    if not isinstance(start, NamedBounds) or not isinstance(until, NamedBounds):
        return
    if start.topics or until.topics or start_option.endswith("ByTimestamp") != until_option.endswith("ByTimestamp"):
        return  # an offset and a time have nothing to do with each other
    if start.partitions.keys() != until.partitions.keys():
        only = sorted(start.partitions.keys() ^ until.partitions.keys())
        raise OptionError(
            until_option,
            f"it names other topic-partitions than {start_option}: {', '.join(map(str, only))}.",
            "Name the same topic-partitions in both.",
        )
    for tp, low in start.partitions.items():
        high = until.partitions[tp]
        if isinstance(low, AtTime) and isinstance(high, AtTime) and low.time_ms > high.time_ms:
            what = f"the start {low.time_ms} of {tp} is greater than its end {high.time_ms}."
        elif isinstance(low, int) and isinstance(high, int) and low > high:
            what = f"the start offset {low} of {tp} is greater than its end offset {high}."
        else:
            continue
        raise OptionError(start_option, what, "Start lower, or end higher.")
