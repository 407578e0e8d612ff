"""Exports a group's offsets for Spark's own Kafka source."""

from __future__ import annotations

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.offsets.bookmark_note import BookmarkNote
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice
from pyspark_kafka_group.tools.analysis.group_checks import check_exist, named, offsets_at_rest, stable_offsets

BEGINNING = -2
"""The beginning of the log in Spark's ``startingOffsets``."""


def starting_offsets(inspection: Cluster, group_id: str, wanted: PartitionChoice) -> dict[TopicPartition, int]:
    """Return where Spark's own Kafka source continues after a group: the value of its option ``startingOffsets``.

    Parameters
    ----------
    inspection : Cluster
        Asks the cluster.
    group_id : str
        The group.
    wanted : PartitionChoice
        The partitions; by default all of the topics that the group has committed.

    Returns
    -------
    dict of TopicPartition to int
        The committed offset of each partition; ``BEGINNING`` without one.

    Raises
    ------
    UnknownGroupError, GroupInUseError
        If the group does not exist, or has members.
    ConfigurationError
        If a topic does not exist, was created again since the commit, or has no offset in this group.
    GroupError
        If an open transaction commits offsets of these partitions.
    """
    known = {tp.topic for tp in offsets_at_rest(inspection, group_id)}
    wanted = wanted or dict.fromkeys(known)
    topics = check_exist(inspection, wanted)
    if not known or wanted.keys() - known:
        of = f" of {named(sorted(wanted.keys() - known))}" if known else ""
        raise ConfigurationError(f"The group {group_id!r} has never committed offsets{of}. Check the names.")
    partitions = sorted(
        TopicPartition(name, number)
        for name, numbers in wanted.items()
        for number in (topics[name].leader_epochs if numbers is None else numbers)
    )
    committed = stable_offsets(inspection, group_id, partitions)
    for tp in partitions:
        metadata = committed[tp].metadata if tp in committed else None
        note = CommitNote.decode(metadata) or BookmarkNote.decode(metadata)
        if note is not None and differ(note.topic_id, topics[tp.topic].topic_id):
            raise ConfigurationError(
                f"The topic {tp.topic!r} was created again since the group committed {tp}. Leave it out with --topics, "
                f"or set its offsets with 'kafka-group reset'."
            )
    return {tp: committed[tp].offset if tp in committed else BEGINNING for tp in partitions}
