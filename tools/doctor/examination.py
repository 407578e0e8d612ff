"""Asks the cluster for all that the rules judge; changes nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from pyspark_kafka_group.offsets.client_config import Properties
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_description import DEAD
from pyspark_kafka_group.offsets.cluster.group_inspection import DatedOffset, GroupInspection
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.kafka_properties import transactional_id
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.errors import OffsetsTopicUnreadableError
from pyspark_kafka_group.tools.analysis.offsets_topic import read_group
from pyspark_kafka_group.tools.analysis.settings import broker_settings, topic_settings
from pyspark_kafka_group.tools.analysis.time_lag import lag_seconds
from pyspark_kafka_group.tools.doctor.facts import (
    Batch,
    ClusterFacts,
    Facts,
    Lately,
    MemberFacts,
    OpenTransaction,
    PartitionFacts,
)
from pyspark_kafka_group.tools.doctor.recent_records import Gap, Recent, Timeouts, recent
from pyspark_kafka_group.wire.describe_requests import DescribedGroup
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata

_READ = 3
"""The operation's number (KIP-430)."""

_INIT_PRODUCER, _COMMIT_IN_TRANSACTION = 22, 28
"""The numbers of InitProducerId and TxnOffsetCommit."""

_NO_RIGHT = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
_TOPIC_REFUSED = "TOPIC_AUTHORIZATION_FAILED"
_MISSING = ("UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION")


def examine(
    inspection: GroupInspection, properties: Properties, group_id: str, topics: Collection[str] = ()
) -> Facts | None:
    """Return what there is to know; None if there is no such group, and no topics are named.

    Parameters
    ----------
    inspection : GroupInspection
        Asks the cluster.
    properties : mapping
        Properties of the client, as librdkafka names them.
    group_id : str
        The group.
    topics : collection of str
        Topics that its members will read.
    """
    now_ms = int(time.time() * 1000)
    described, protocol = inspection.describe_fully(group_id)
    committed = {tp: found.offset for tp, found in inspection.all_committed(group_id).found.items()}
    if described.state == DEAD and not committed and not topics:
        return None
    owned = {tp for member in described.members for tp in member.assignment}
    subscribed = {topic for member in described.members for topic in member.subscription or ()}
    names = {*topics, *subscribed, *(tp.topic for tp in (*committed, *owned))}
    cluster = inspection.cluster(names)
    visible = {topic.name for topic in cluster.topics if not topic.error}
    ids = {topic.topic_id: topic.name for topic in cluster.topics if topic.topic_id}
    problem, found = None, None
    try:
        found = recent(read_group(properties, group_id), ids, now_ms=now_ms)
    except OffsetsTopicUnreadableError as unreadable:
        problem = unreadable.kafka_error
    timeouts = found.timeouts if found else {}
    return Facts(
        group=group_id,
        state=described.state,
        protocol=protocol,
        assignor=described.assignor,
        members=_members(described, timeouts),
        partitions=_partitions(
            inspection, committed, [tp for tp in (committed.keys() | owned) if tp.topic in visible], now_ms
        ),
        partition_counts={topic.name: len(topic.partitions) for topic in cluster.topics},
        lately=_lately(inspection, found, now_ms) if found else None,
        cluster=replace(_cluster(inspection, properties, described, cluster, group_id), offsets_topic_problem=problem),
    )


def _members(described: DescribedGroup, timeouts: Mapping[str, Timeouts]) -> tuple[MemberFacts, ...]:
    unknown = Timeouts(None, None, None)
    told = {member.member_id: timeouts.get(member.member_id, unknown) for member in described.members}
    return tuple(
        MemberFacts(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.host,
            assignment=member.assignment,
            subscription=member.subscription,
            speaks_classic=member.speaks_classic,
            session_timeout_ms=told[member.member_id].session_ms,
            rebalance_timeout_ms=told[member.member_id].rebalance_ms,
            assignor=told[member.member_id].assignor,
        )
        for member in described.members
    )


def _partitions(
    inspection: GroupInspection,
    committed: Mapping[TopicPartition, int],
    wanted: Collection[TopicPartition],
    now_ms: int,
) -> dict[TopicPartition, PartitionFacts]:
    partitions = sorted(wanted)
    starts = inspection.log_starts(partitions).found
    ends = inspection.log_ends(partitions, read_committed=False).found
    stable = inspection.log_ends(partitions, read_committed=True).found

    def records_at(times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, DatedOffset | None]:
        return inspection.records_at(times_ms).found

    behind = {tp: committed[tp] for tp in partitions if tp in committed and tp in ends and committed[tp] < ends[tp]}
    ages = lag_seconds(behind, records_at, now_ms=now_ms)
    held = {tp: end for tp, end in stable.items() if tp in ends and end < ends[tp]}
    transactions = _open_transactions(inspection, held, lag_seconds(held, records_at, now_ms=now_ms), now_ms)
    return {
        tp: PartitionFacts(
            committed_offset=committed.get(tp),
            log_start=starts.get(tp),
            log_end=ends.get(tp),
            lag_seconds=ages.get(tp),
            open_transaction=transactions.get(tp),
        )
        for tp in partitions
    }


def _open_transactions(
    inspection: GroupInspection,
    held: Mapping[TopicPartition, int],
    ages: Mapping[TopicPartition, float],
    now_ms: int,
) -> dict[TopicPartition, OpenTransaction]:
    """Return what holds readers back: as old as its first record, or at least as its producer has been silent."""
    found = {tp: OpenTransaction(held[tp], seconds, None) for tp, seconds in ages.items()}
    try:
        told = inspection.producers([*held]).found if held else {}
    except (KafkaGroupError, TryAgainError):  # no right, or a broker before 2.8
        return found
    for tp, of_one in told.items():
        for producer in of_one.producers:
            if producer.open_since == held[tp]:
                silent = max(0, now_ms - producer.last_time_ms) / 1000 if producer.last_time_ms >= 0 else 0.0
                seconds = max(silent, ages.get(tp, 0.0))
                found[tp] = OpenTransaction(held[tp], seconds, producer.producer_id)
    return found


def _lately(inspection: GroupInspection, found: Recent, now_ms: int) -> Lately:
    return Lately(
        rebalances=found.rebalances,
        assignors=found.assignors,
        instances=found.instances,
        batches=tuple(_batches(inspection, found.gaps)),
        idle_seconds=None if found.last_used_ms is None else max(0, now_ms - found.last_used_ms) / 1000,
    )


def _batches(inspection: GroupInspection, gaps: Mapping[TopicPartition, list[Gap]]) -> list[Batch]:
    """Return the longest gap of each partition in which there was something to read from its beginning on."""
    left = {tp: [*of_one] for tp, of_one in gaps.items() if of_one}
    batches = []
    while left:
        asked = {tp: of_one.pop(0) for tp, of_one in left.items()}
        ends = inspection.records_at({tp: gap.begin_ms for tp, gap in asked.items()})
        for tp, gap in asked.items():
            record = ends.found.get(tp)
            # None: the log has not grown since, so what was committed after the gap had been there.
            busy = tp in ends.found and (record is None or record.offset > gap.offset)
            if busy:
                batches.append(Batch(tp, gap.seconds, gap.member_id))
            if busy or not left[tp]:
                del left[tp]
    return batches


def _cluster(
    inspection: GroupInspection,
    properties: Properties,
    described: DescribedGroup,
    cluster: ClusterMetadata,
    group_id: str,
) -> ClusterFacts:
    coordinator = inspection.coordinator(group_id)
    offered = inspection.offered_versions(coordinator.address)
    refused = inspection.transaction_coordinator(transactional_id(group_id, "doctor"))
    names = [topic.name for topic in cluster.topics if not topic.error]
    problems = {topic.name: error_name(topic.error) for topic in cluster.topics}
    told = {topic.name: _READ in topic.operations for topic in cluster.topics if topic.operations is not None}
    refusing = {name: False for name, problem in problems.items() if problem == _TOPIC_REFUSED}
    return ClusterFacts(
        servers=properties.get("bootstrap.servers", ""),
        has_consumer_protocol=inspection.has_consumer_protocol(group_id),
        has_transactions=_INIT_PRODUCER in offered and _COMMIT_IN_TRANSACTION in offered,
        has_topic_ids=all(topic.topic_id for topic in cluster.topics if not topic.error),
        transactional_id_problem=refused if refused == _NO_RIGHT else None,
        may_read_group=None if described.operations is None else _READ in described.operations,
        may_read_topics={name: may for name, may in told.items() if problems[name] == NONE} | refusing,
        missing_topics=frozenset(name for name, problem in problems.items() if problem in _MISSING),
        broker=None if coordinator.node_id is None else broker_settings(properties, coordinator.node_id),
        topics=topic_settings(properties, names),
    )
