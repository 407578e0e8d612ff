"""Plans the ranges and tasks of a batch read.

Runs in the planning process, and in the user's Python for a bookmark.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from pyspark_kafka_group.batch.resolving import Policy, partitions_of_topics, resolve
from pyspark_kafka_group.cluster.cluster_answers import TopicInfo
from pyspark_kafka_group.cluster.dead_letter_topic import require_dead_letter_topic
from pyspark_kafka_group.cluster.range_lookup import GonePartitionsError, RangeLookup
from pyspark_kafka_group.offsets.errors import DataLossError, OptionError
from pyspark_kafka_group.offsets.range_bounds import Bound, Bounds, NamedBounds, Span
from pyspark_kafka_group.offsets.task_ranges import Task, pack
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.batch_settings import BatchSettings

_log = logging.getLogger(__name__)

_SHOWN = 5
"""How many partitions an error names."""


def open_lookup(settings: BatchSettings, *, patience_s: float = 0.0) -> RangeLookup:
    """Return a lookup, which has not connected to the cluster yet.  It repeats questions for at least this time."""
    return RangeLookup(
        settings.properties,
        group_id=settings.group_id or settings.reader_name,
        read_committed=settings.read_committed,
        attempts=settings.fetch_attempts,
        pause_s=settings.fetch_pause_s,
        patience_s=patience_s,
    )


def plan(settings: BatchSettings, lookup: RangeLookup) -> list[Task]:
    """Return the tasks, at least one.

    Parameters
    ----------
    settings : BatchSettings
        The parsed options.
    lookup : RangeLookup
        Sends requests to the cluster.

    Raises
    ------
    OptionError
        If the topic for dead letters does not exist.
    """
    if settings.formats is not None and settings.formats.dead_letter_topic is not None:
        require_dead_letter_topic(settings.properties, settings.formats.dead_letter_topic)
    topics = topics_of(settings, lookup)
    ranges = resolve_existing(settings, topics, spans_of(settings, partitions_of(settings, topics)), lookup)
    # As in Spark's own source, empty ranges do not count.
    return pack({tp: r for tp, r in ranges.items() if r.size}, settings.sizes) or [{}]


def topics_of(settings: BatchSettings, lookup: RangeLookup) -> dict[str, TopicInfo]:
    """Return the topics to read."""
    if settings.pattern is not None:
        return lookup.matching(settings.pattern)
    if settings.assigned:
        return lookup.topics(sorted({tp.topic for tp in settings.assigned}), option="assign")
    return lookup.topics(settings.topics)


def partitions_of(settings: BatchSettings, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """Return the partitions to read.

    Raises
    ------
    OptionError
        If ``assign`` names a partition that does not exist.
    """
    everything = partitions_of_topics(topics)
    if not settings.assigned:
        return everything
    if missing := sorted({*settings.assigned} - {*everything}):
        raise OptionError("assign", f"{_names(missing)} does not exist.", "Remove it, or add partitions to the topic.")
    return list(settings.assigned)


def spans_of(settings: BatchSettings, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Span]:
    """Return the bounds of each partition.

    Raises
    ------
    OptionError
        If the JSON of an option does not name exactly these partitions.
    """
    for option, bounds in ((settings.start_option, settings.start), (settings.until_option, settings.until)):
        _check_named(option, bounds, partitions)
    return {tp: Span(_of(settings.start, tp), _of(settings.until, tp)) for tp in partitions}


def resolve_existing(
    settings: BatchSettings,
    topics: Mapping[str, TopicInfo],
    spans: Mapping[TopicPartition, Span],
    lookup: RangeLookup,
) -> dict[TopicPartition, OffsetRange]:
    """Return the range of each existing partition.  Raise for other ones unless ``failOnDataLoss`` is false."""
    policy = Policy(
        group_id=settings.group_id, no_match=settings.no_match, fail_on_data_loss=settings.fail_on_data_loss
    )
    left = dict(spans)
    while True:
        try:
            return resolve(left, topics, lookup, policy)
        except GonePartitionsError as gone:
            if settings.fail_on_data_loss:
                raise DataLossError.of_deleted(sorted({tp.topic for tp in gone.partitions})) from None
            _log.warning("%s: deleted. Continuing without them, because failOnDataLoss=false.", gone)
            left = {tp: span for tp, span in left.items() if tp not in gone.partitions}


def _of(bounds: Bounds, tp: TopicPartition) -> Bound:
    return bounds.of(tp) if isinstance(bounds, NamedBounds) else bounds


def _check_named(option: str, bounds: Bounds, partitions: Collection[TopicPartition]) -> None:
    if not isinstance(bounds, NamedBounds):
        return
    named = bounds.partitions.keys()
    missing = sorted(tp for tp in partitions if tp not in named and tp.topic not in bounds.topics)
    foreign: list[TopicPartition | str] = [*sorted(named - {*partitions})]
    foreign += sorted(bounds.topics.keys() - {tp.topic for tp in partitions})
    if not missing and not foreign:
        return
    problems = [f"it does not name {_names(missing)}"] if missing else []
    problems += [f"it names {_names(foreign)}, which is not read"] if foreign else []
    raise OptionError(
        option,
        f"{' and '.join(problems)}.",
        "A batch read must name each partition of each topic, and no others. In offsets, -2 means earliest and -1 "
        "latest.",
    )


def _names(partitions: Sequence[TopicPartition | str]) -> str:
    rest = len(partitions) - _SHOWN
    return ", ".join(map(str, partitions[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
