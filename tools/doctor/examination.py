"""Examines a group: asks the cluster for everything that the rules judge, and changes nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import DatedOffset
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import DEAD, GroupProtocol
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.cluster.properties.kafka_properties import transactional_id
from pyspark_kafka_group.offsets.errors import KafkaGroupError, OptionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_view import GONE, OtherGroupKindError, UnknownGroupError
from pyspark_kafka_group.tools.analysis.lag_judgement import judge
from pyspark_kafka_group.tools.analysis.offsets_topic import (
    OFFSETS_TOPIC,
    OffsetsTopicHeldBackError,
    OffsetsTopicUnreadableError,
    read_group,
)
from pyspark_kafka_group.tools.analysis.time_lag import lag_seconds
from pyspark_kafka_group.tools.doctor import cluster_rules, member_rules, offset_rules
from pyspark_kafka_group.tools.doctor.facts import (
    ClusterFacts,
    Finding,
    GroupFacts,
    OpenTransaction,
    PartitionFacts,
    Severity,
    SlowBatch,
)
from pyspark_kafka_group.tools.doctor.recent_records import CommitInterval, RecentRecords, recent
from pyspark_kafka_group.wire.describe_requests import DescribedGroup
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata

RULES = (*member_rules.RULES, *offset_rules.RULES, *cluster_rules.RULES)

_READ = 3
"""Number of the operation Read (KIP-430)."""

_INIT_PRODUCER, _COMMIT_IN_TRANSACTION = 22, 28
"""Numbers of InitProducerId and TxnOffsetCommit."""

_NO_RIGHT = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
_TOPIC_REFUSED = "TOPIC_AUTHORIZATION_FAILED"
_MISSING = ("UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION")


def diagnose(facts: GroupFacts) -> list[Finding]:
    """Return the findings, the worst first."""
    findings = [finding for rule in RULES for finding in rule(facts)]
    return sorted(findings, key=lambda finding: -finding.severity)


def diagnosis_document(facts: GroupFacts, findings: list[Finding]) -> dict[str, Any]:
    """Return the document of ``doctor``."""
    return {
        "group": facts.group,
        "state": facts.state,
        "healthy": all(finding.severity is Severity.NOTE for finding in findings),
        "members": len(facts.members),
        "partitions": len(facts.partitions),
        "findings": [finding.document() for finding in findings],
    }


def examine(inspection: Cluster, properties: Properties, group_id: str, topics: Collection[str] = ()) -> GroupFacts:
    """Return the facts about a group.

    Parameters
    ----------
    inspection : Cluster
        Asks the cluster.
    properties : mapping
        Properties of the connection.  The names are librdkafka's.
    group_id : str
        The group.
    topics : collection of str
        Topics that its members will read.  With topics the group need not exist.

    Raises
    ------
    UnknownGroupError
        If the group does not exist, and no topics are named.
    """
    now_ms = int(time.time() * 1000)
    described, protocol = inspection.describe_fully(group_id)
    if described.is_other_kind:
        raise OtherGroupKindError(group_id)
    committed = {tp: found.offset for tp, found in inspection.all_committed(group_id).found.items()}
    if described.state == DEAD and not committed and not topics:
        raise UnknownGroupError(group_id)
    owned = {tp for member in described.members for tp in member.assignment}
    subscribed = {topic for member in described.members for topic in member.subscription or ()}
    cluster = inspection.brokers_and_topics({*topics, *subscribed, *(tp.topic for tp in (*committed, *owned))})
    visible = {topic.name for topic in cluster.topics if not topic.error}
    ids = {topic.topic_id: topic.name for topic in cluster.topics if topic.topic_id}
    problem, held, found = None, None, None
    try:
        found = recent(read_group(properties, group_id), ids, now_ms=now_ms)
    except OffsetsTopicUnreadableError as unreadable:
        problem = unreadable.kafka_error
    except OffsetsTopicHeldBackError as behind:
        held = TopicPartition(OFFSETS_TOPIC, behind.partition), behind.since
    except OptionError as refused:  # librdkafka reads this topic, and may be built without Kerberos
        problem = str(refused)
    partitions = sorted(tp for tp in (committed.keys() | owned) if tp.topic in visible)
    features = _cluster(inspection, properties, described, cluster, group_id)
    return GroupFacts(
        group=group_id,
        state=described.state,
        protocol=protocol,
        assignor=described.assignor,
        members=described.members,
        partitions=_partitions(inspection, committed, partitions, found, now_ms),
        partition_counts={topic.name: len(topic.partitions) for topic in cluster.topics},
        recent=found,
        batches=tuple(_batches(inspection, found.intervals)) if found else (),
        settings=inspection.group_settings(group_id) if protocol is GroupProtocol.CONSUMER else None,
        cluster=replace(features, offsets_topic_problem=problem, offsets_topic_held=held),
    )


def _partitions(
    inspection: Cluster,
    committed: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
    found: RecentRecords | None,
    now_ms: int,
) -> dict[TopicPartition, PartitionFacts]:
    starts = inspection.log_starts(partitions).found
    ends, failed = inspection.log_ends(partitions, read_committed=False)
    stable = inspection.log_ends(partitions, read_committed=True).found

    def records_at(times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, DatedOffset | None]:
        return inspection.records_at(times_ms).found

    behind = {tp: committed[tp] for tp in partitions if tp in committed and tp in ends and committed[tp] < ends[tp]}
    ages = lag_seconds(behind, records_at, now_ms=now_ms)
    held = {tp: end for tp, end in stable.items() if tp in ends and end < ends[tp]}
    transactions = _open_transactions(inspection, held, lag_seconds(held, records_at, now_ms=now_ms), now_ms)
    verdicts = (
        judge(committed, ends, found.windows, lambda times: inspection.at_times(times).found, now_ms=now_ms)
        if found
        else {}
    )
    return {
        tp: PartitionFacts(
            committed_offset=committed.get(tp),
            log_start=starts.get(tp),
            log_end=ends.get(tp),
            lag_seconds=ages.get(tp),
            status=verdicts[tp].status if tp in verdicts else None,
            problem=None if failed.get(tp) in GONE else failed.get(tp),
            open_transaction=transactions.get(tp),
        )
        for tp in partitions
    }


def _open_transactions(
    inspection: Cluster,
    held: Mapping[TopicPartition, int],
    ages: Mapping[TopicPartition, float],
    now_ms: int,
) -> dict[TopicPartition, OpenTransaction]:
    """Return the open transactions.  Each is at least as old as its first record, or as its producer's silence."""
    found = {tp: OpenTransaction(held[tp], seconds, None) for tp, seconds in ages.items()}
    try:
        answers = inspection.producers([*held]).found if held else {}
    except (KafkaGroupError, TryAgainError):  # a missing right, or a broker before 2.8
        return found
    for tp, of_one in answers.items():
        for producer in of_one.producers:
            if producer.open_since == held[tp]:
                silent = max(0, now_ms - producer.last_time_ms) / 1000 if producer.last_time_ms >= 0 else 0.0
                seconds = max(silent, ages.get(tp, 0.0))
                found[tp] = OpenTransaction(held[tp], seconds, producer.producer_id)
    return found


def _batches(inspection: Cluster, intervals: Mapping[TopicPartition, list[CommitInterval]]) -> list[SlowBatch]:
    """Return the longest interval of each partition that had records to read from its beginning on."""
    left = {tp: [*of_one] for tp, of_one in intervals.items() if of_one}
    batches = []
    while left:
        asked = {tp: of_one.pop(0) for tp, of_one in left.items()}
        ends = inspection.records_at({tp: interval.begin_ms for tp, interval in asked.items()})
        for tp, interval in asked.items():
            record = ends.found.get(tp)
            # None: the log has not grown since, so the records that were committed after the interval existed before.
            busy = tp in ends.found and (record is None or record.offset > interval.offset)
            if busy:
                batches.append(SlowBatch(tp, interval.seconds, interval.member_id))
            if busy or not left[tp]:
                del left[tp]
    return batches


def _cluster(
    inspection: Cluster,
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
    known = {topic.name: _READ in topic.operations for topic in cluster.topics if topic.operations is not None}
    refusing = {name: False for name, problem in problems.items() if problem == _TOPIC_REFUSED}
    return ClusterFacts(
        servers=properties.get("bootstrap.servers", ""),
        has_consumer_protocol=inspection.has_consumer_protocol(group_id),
        has_transactions=_INIT_PRODUCER in offered and _COMMIT_IN_TRANSACTION in offered,
        has_topic_ids=all(topic.topic_id for topic in cluster.topics if not topic.error),
        transactional_id_problem=refused if refused == _NO_RIGHT else None,
        may_read_group=None if described.operations is None else _READ in described.operations,
        may_read_topics={name: may for name, may in known.items() if problems[name] == NONE} | refusing,
        missing_topics=frozenset(name for name, problem in problems.items() if problem in _MISSING),
        broker=inspection.broker_settings(*coordinator),
        topics=inspection.topic_settings(names),
    )
