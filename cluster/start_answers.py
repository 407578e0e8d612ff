"""The answers of the cluster, put together to what decides where partitions start.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset, LogInfo, TopicInfo
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.notes import BookmarkNote, ResetNote, read
from pyspark_kafka_group.offsets.start_inputs import PartitionInfo
from pyspark_kafka_group.offsets.types import LeaderEpoch, TopicPartition

LeaderEpochs = Mapping[TopicPartition, Collection[LeaderEpoch]]
"""The leader epochs under which the query knows offsets of each partition."""


class StartAnswers(NamedTuple):
    """The answers of the cluster for some partitions.

    Attributes
    ----------
    info : dict of TopicPartition to PartitionInfo
        The facts that decide the start of each partition.  Partitions with open questions are left out.
    missing : frozenset of TopicPartition
        The partitions that the broker that answered does not know.
    reason : str
        Why some partitions are left out.
    failed : mapping of TopicPartition to str
        The reason for each of them, if there is one.
    """

    info: dict[TopicPartition, PartitionInfo]
    missing: frozenset[TopicPartition]
    reason: str
    failed: Mapping[TopicPartition, str] = {}


class Looks(NamedTuple):
    """The existing topics in the answers of a broker, before the other questions and after them."""

    before: Mapping[str, TopicInfo]
    after: Mapping[str, TopicInfo]


def put_together(
    wanted: LeaderEpochs,
    looks: Looks,
    committed: Answers[CommittedOffset],
    of_topics: Mapping[TopicPartition, CommittedOffset],
    logs: Answers[LogInfo],
) -> StartAnswers:
    """Combine the answers.  Partitions whose answers do not fit together are left out.

    Parameters
    ----------
    wanted : mapping of TopicPartition to collection of LeaderEpoch
        The partitions, and the leader epochs under which the query knows offsets of them.
    looks : Looks
        The topics, before and after.
    committed : Answers of CommittedOffset
        Stable committed offsets of the wanted partitions.
    of_topics : mapping of TopicPartition to CommittedOffset
        Committed offsets of all partitions of these topics, stable or not.
    logs : Answers of LogInfo
        The answers of the leaders.
    """
    topics, after = looks
    missing = frozenset(
        tp for tp in wanted if tp.topic not in topics or tp.partition not in topics[tp.topic].leader_epochs
    )
    failed = {**committed.failed, **logs.failed}
    by_topic: dict[str, dict[TopicPartition, CommittedOffset]] = {name: {} for name in topics}
    for tp, found in of_topics.items():
        by_topic[tp.topic][tp] = found
    initial_counts = {name: _initial_partition_count(topics[name], of_one) for name, of_one in by_topic.items()}
    info: dict[TopicPartition, PartitionInfo] = {}
    for tp, log in logs.found.items():
        topic = topics[tp.topic]
        if after.get(tp.topic) is None or not _same_log(topic, after[tp.topic], tp.partition):
            failed[tp] = "its leader has changed just now"  # the answers may be of two logs, or of two leaders
            continue
        stored = committed.found.get(tp)
        note = None if stored is None else read(stored.metadata, tp, topic.cluster_id)
        info[tp] = PartitionInfo(
            committed=None if stored is None else stored.offset,
            note=note if isinstance(note, CommitNote) else None,
            reset=note if isinstance(note, ResetNote) else None,
            bookmark=note if isinstance(note, BookmarkNote) else None,
            committed_leader_epoch=None if stored is None else known_epoch(stored.leader_epoch),
            log_start=log.start,
            log_end=log.end,
            high_watermark=log.high_watermark,
            topic_partitions=len(topic.leader_epochs),
            topic_started=initial_counts[tp.topic] is not None,
            initial_partition_count=initial_counts[tp.topic],
            topic_id=topic.topic_id,
            cluster_id=topic.cluster_id,
            leader_epoch=known_epoch(topic.leader_epochs[tp.partition]),
            epoch_ends=log.epoch_ends,
            at_time=log.at_time,
        )
    failed |= {
        tp: "its topic has fewer partitions" if tp.topic in topics else "the brokers do not know its topic"
        for tp in missing
    }
    reason = next(iter(failed.values()), "no answer")
    if absent := sorted({tp.topic for tp in missing} - topics.keys()):
        reason = f"the broker that answered does not know {', '.join(absent)}"
    return StartAnswers(info, missing, reason, failed)


def known_epoch(leader_epoch: int | None) -> LeaderEpoch | None:
    """Return a leader epoch; None for a number that means an unknown one."""
    return None if leader_epoch is None or leader_epoch < 0 else LeaderEpoch(leader_epoch)


def _same_log(before: TopicInfo, after: TopicInfo, partition: int) -> bool:
    """Return whether a partition had one log and one leader all the time."""
    epoch = before.leader_epochs[partition]
    return before.topic_id == after.topic_id and after.leader_epochs.get(partition) == epoch


def _initial_partition_count(topic: TopicInfo, committed: Mapping[TopicPartition, CommittedOffset]) -> int | None:
    """Return how many partitions the topic had when the group started it; None if the group has not.

    The notes of its commits contain the number. 0 overrides other numbers: partitions without an offset then start at
    their beginning.  Without notes, another program has committed, and has started the partitions that have an
    offset.
    """
    counts, last = [], None
    for tp, stored in committed.items():
        note = read(stored.metadata, tp, topic.cluster_id)
        if isinstance(note, CommitNote | BookmarkNote) and differ(note.topic_id, topic.topic_id):
            continue  # a late commit to a topic that was created again
        last = max(tp.partition, -1 if last is None else last)
        if isinstance(note, CommitNote):
            counts.append(note.initial_partition_count)
    if counts:
        return 0 if 0 in counts else max(counts)
    return None if last is None else last + 1
