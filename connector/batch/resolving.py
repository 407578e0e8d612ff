"""Resolves bounds to offsets in the current logs.

Pure, except for its requests to the lookup.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark_kafka_group.batch.committed_starts import Committed, committed_starts
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, TopicInfo
from pyspark_kafka_group.offsets.errors import DataLossError, NoOffsetAtTimeError, OptionError
from pyspark_kafka_group.offsets.range_bounds import AtCommitted, AtTime, Bound, Span
from pyspark_kafka_group.offsets.start_inputs import NoMatch, StartingOffset
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, Offset]


class Lookup(Protocol):
    """The requests to the cluster; see :class:`~pyspark_kafka_group.cluster.range_lookup.RangeLookup`."""

    def log_starts(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the log start offsets."""

    def log_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the log end offsets."""

    def log_ends_reaching(self, wanted: Offsets, *, open_transactions: bool) -> Offsets:
        """Return the log end offsets, with or without open transactions.  Wait a while until they reach ``wanted``."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """Return where leader epochs end in the logs, without unknown epochs."""

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        """Return the offsets of the first records with these timestamps or later ones, if there are any."""

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets that exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options that apply if a bound cannot be found.

    Attributes
    ----------
    group_id : str or None
        The group of the committed offsets, for errors.
    no_match : NoMatch
        The option ``startingOffsetsByTimestampStrategy``.
    fail_on_data_loss : bool
        The option ``failOnDataLoss``.
    """

    group_id: str | None
    no_match: NoMatch
    fail_on_data_loss: bool


def resolve(
    spans: Mapping[TopicPartition, Span], topics: Mapping[str, TopicInfo], lookup: Lookup, policy: Policy
) -> dict[TopicPartition, OffsetRange]:
    """Return the range of each partition.

    Parameters
    ----------
    spans : mapping of TopicPartition to Span
        The bounds of each partition.
    topics : mapping of str to TopicInfo
        The metadata of their topics.
    lookup : Lookup
        Sends requests to the cluster.
    policy : Policy
        The options that apply if a bound cannot be found.

    Raises
    ------
    OptionError
        If a range begins above its end.
    NoOffsetAtTimeError
        If no record has the starting timestamp or a later one.
    DataLossError
        If a log was truncated below the group's committed offset, or the topic was created again.
    ConfigurationError
        If there is no committed offset, but there should be one.
    """
    starts: dict[TopicPartition, Bound] = {tp: span.start for tp, span in spans.items()}
    at_committed = {tp: span.start.otherwise for tp, span in spans.items() if isinstance(span.start, AtCommitted)}
    committed: Offsets = {}
    epochs: dict[TopicPartition, int] = {}
    if at_committed:
        stored = _committed_of_topics({tp.topic for tp in at_committed}, topics, lookup)
        found_starts = committed_starts(
            at_committed,
            stored,
            topics,
            group_id=policy.group_id,
            fail_on_data_loss=policy.fail_on_data_loss,
        )
        starts.update(found_starts)
        committed = {tp: start for tp, start in found_starts.items() if not isinstance(start, StartingOffset)}
        epochs = {tp: epoch for tp in committed if (epoch := stored[tp].leader_epoch) is not None}
    log_starts = lookup.log_starts([tp for tp, start in starts.items() if start is StartingOffset.EARLIEST])
    # After the offsets above, so that no range begins above its end.
    log_ends = lookup.log_ends([*spans])
    behind = {tp: s.until for tp, s in spans.items() if isinstance(s.until, int) and s.until > log_ends[tp]}
    log_ends.update(lookup.log_ends_reaching(behind, open_transactions=False))
    # After the log ends, so that later records do not count.  The ends first, for the same reason.
    at_end = lookup.offsets_at({tp: span.until.time_ms for tp, span in spans.items() if isinstance(span.until, AtTime)})
    found = lookup.offsets_at({tp: start.time_ms for tp, start in starts.items() if isinstance(start, AtTime)})
    found.update(log_starts)
    # A group that reads uncommitted records may have committed behind the first open transaction.
    ahead = {tp: offset for tp, offset in committed.items() if offset > log_ends[tp]}
    tops = lookup.log_ends_reaching(ahead, open_transactions=True)
    # A log that was truncated may have grown past the committed offset again.
    epoch_ends = lookup.epoch_ends(epochs)
    for tp, offset in committed.items():
        top = min(tops.get(tp, offset), epoch_ends.get(tp, offset))
        if top < offset:
            starts[tp] = _truncated(tp, offset, log_ends[tp], top, policy)
    ranges = {}
    for tp, span in spans.items():
        start = _start(tp, starts[tp], found.get(tp), log_ends[tp], policy)
        until = _until(span.until, at_end.get(tp), log_ends[tp])
        if start > until:
            ranges[tp] = _backwards(tp, OffsetRange(until, start), span)
        elif until > log_ends[tp]:
            ranges[tp] = _behind_the_log(tp, OffsetRange(start, until), log_ends[tp], policy)
        else:
            ranges[tp] = OffsetRange(start, until)
    return ranges


def _committed_of_topics(names: Collection[str], topics: Mapping[str, TopicInfo], lookup: Lookup) -> Committed:
    """Return the group's offsets for all partitions of these topics, including partitions that are not read."""
    return lookup.committed(partitions_of_topics({name: topics[name] for name in sorted(names)}))


def partitions_of_topics(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """Return the partitions of these topics, also those that are not read."""
    return [TopicPartition(name, number) for name, info in topics.items() for number in sorted(info.leader_epochs)]


def _start(tp: TopicPartition, start: Bound, found: Offset | None, log_end: Offset, policy: Policy) -> Offset:
    """Return the offset of a starting bound; ``found`` is the answer of the cluster, if one was necessary."""
    if isinstance(start, int):
        return start
    if start is StartingOffset.EARLIEST:
        assert found is not None
        return found
    if start is StartingOffset.LATEST:
        return log_end
    assert isinstance(start, AtTime)
    if found is not None and found < log_end:
        return found
    if policy.no_match is NoMatch.LATEST:
        return log_end
    raise NoOffsetAtTimeError(topic=tp.topic, partition=tp.partition, time_ms=start.time_ms, option=start.option)


def _until(until: Bound, at_time: Offset | None, log_end: Offset) -> Offset:
    """Return the offset of an ending bound."""
    if isinstance(until, AtTime):
        # Records of open transactions are behind the log end.  They do not exist yet for this reader.
        return log_end if at_time is None else min(at_time, log_end)
    return until if isinstance(until, int) else log_end


def _behind_the_log(tp: TopicPartition, wanted: OffsetRange, log_end: Offset, policy: Policy) -> OffsetRange:
    """Return the existing part of a range that ends behind the log, or raise."""
    if policy.fail_on_data_loss:
        raise OptionError(
            "endingOffsets",
            f"{wanted.until} is behind the end of {tp}, {log_end}. Either these records were never written, or they "
            f"were lost, or they belong to an open transaction.",
            "Write -1 for the end of the log, or set failOnDataLoss=false to read the existing records.",
        )
    _log.warning("%s: the log ends at %d. Reading only up to there, because failOnDataLoss=false.", tp, log_end)
    return OffsetRange(wanted.start, max(wanted.start, log_end))


def _truncated(tp: TopicPartition, committed: Offset, log_end: Offset, top: Offset, policy: Policy) -> Offset:
    """Return where to continue in a log that was truncated at ``top``, below the committed offset, or raise."""
    if policy.fail_on_data_loss:
        raise DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            lost_from=top,
            lost_until=committed,
            log_start=0,
            log_end=max(top, log_end),
        )
    start = min(top, log_end)
    _log.warning(
        "%s: the log was truncated at %d, below the committed offset %d. Continuing at %d, because "
        "failOnDataLoss=false.",
        tp,
        top,
        committed,
        start,
    )
    return start


def _backwards(tp: TopicPartition, between: OffsetRange, span: Span) -> OffsetRange:
    """Return an empty range in place of one that begins above its end, or raise."""
    until, start = between
    if isinstance(span.start, AtCommitted):
        return OffsetRange(start, start)  # the group has already read everything
    option = span.start.option if isinstance(span.start, AtTime) else "startingOffsets"
    raise OptionError(
        option,
        f"the resolved start offset {start} of {tp} is greater than its resolved end offset {until}.",
        "Start lower, or end higher.",
    )
