"""The documents that ``--json`` prints.

Keys are Kafka's words in snake_case.  Scripts depend on them, so never rename one.  Every document has all of
its keys.  A value that is unknown or does not exist is null, never -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import GroupCoordinator
from pyspark_kafka_group.cluster.group_description import GroupMember
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_samples import GroupSample
from pyspark_kafka_group.tools.analysis.group_view import GroupView, PartitionView
from pyspark_kafka_group.tools.analysis.history import Entry
from pyspark_kafka_group.tools.analysis.membership import Owner
from pyspark_kafka_group.tools.analysis.offsets_topic import OFFSETS_TOPIC, group_partition, java_hash
from pyspark_kafka_group.tools.analysis.reset_plan import Change
from pyspark_kafka_group.tools.analysis.rewinds import EndedOffset, Gap, Incident, Rewind

Document = dict[str, Any]


def group_document(view: GroupView) -> Document:
    """Return the document of ``describe``."""
    return {
        "group": view.group,
        "state": view.description.state,
        "protocol": view.description.protocol.value,
        "assignor": view.description.assignor or None,
        "group_epoch": view.description.epoch,
        "coordinator": _coordinator(view.coordinator),
        "lag": view.lag,
        "expired": view.expired,
        "lag_seconds": seconds(view.lag_seconds),
        "catch_up_seconds": seconds(view.catch_up_seconds),
        "status": view.status.name if view.status is not None else None,
        "partitions": [_partition(view.group, part) for part in view.partitions],
        "members": [_member(member) for member in view.description.members],
    }


def listed_group_document(view: GroupView) -> Document:
    """Return the document of one group of ``groups``.

    The lag is unknown if that of one partition is: the list has no place to say so.
    """
    is_known = all(part.status is None for part in view.partitions)  # neither HELDBACK nor BEYOND
    return {
        "group": view.group,
        "state": view.description.state,
        "protocol": view.description.protocol.value,
        "members": len(view.description.members),
        "topics": sorted({part.tp.topic for part in view.partitions}),
        "lag": view.lag if is_known else None,
    }


def sample_document(sample: GroupSample, problem: str | None) -> Document:
    """Return the document of one poll of ``watch``.

    Parameters
    ----------
    sample : GroupSample
        The last poll that was answered.
    problem : str or None
        Why the cluster did not answer this time.
    """
    document = group_document(sample.view)
    for part, shown in zip(sample.view.partitions, document["partitions"], strict=True):
        rates = sample.rates.get(part.tp)
        shown["consumed_per_second"] = seconds(rates.consumed) if rates else None
        shown["produced_per_second"] = seconds(rates.produced) if rates else None
    return {
        "time": moment(sample.time_ms),
        **document,
        "consumed_per_second": seconds(sample.total.consumed),
        "produced_per_second": seconds(sample.total.produced),
        "rebalances": sample.rebalances,
        "error": problem,
    }


def coordinator_document(inspection: Cluster, group: str) -> Document:
    """Ask the cluster which broker coordinates a group, and return the document of ``coordinator``.

    Raises what :class:`~pyspark_kafka_group.cluster.cluster.Cluster` says.
    """
    coordinator = inspection.coordinator(group)  # first: this request makes a new cluster create the topic
    leaders = inspection.leaders(OFFSETS_TOPIC)
    partition = group_partition(group, len(leaders)) if leaders else None
    leader = leaders.get(partition, -1) if partition is not None else -1
    return {
        "group": group,
        "hash": java_hash(group),
        "offsets_topic_partitions": len(leaders) or None,
        "offsets_topic_partition": partition,
        "leader": leader if leader >= 0 else None,
        "coordinator": _coordinator(coordinator),
    }


def entry_document(group: str, entry: Entry) -> Document:
    """Return the document of one step of ``history``."""
    return {
        "group": group,
        "topic": entry.tp.topic,
        "partition": entry.tp.partition,
        "time": moment(entry.time_ms),
        "move": entry.move.value,
        "previous_offset": entry.previous,
        "committed_offset": entry.offset,
        "leader_epoch": entry.leader_epoch,
        "topic_id": entry.topic_id,
        "metadata": entry.metadata,
        "query_id": entry.query_id,
        "reset_by": entry.reset.by if entry.reset else None,
        **_owner(entry.owner),
        "members": entry.member_count,
        "log_offset": entry.log_offset,
    }


def incident_document(group: str, incident: Incident) -> Document:
    """Return the document of one incident of ``rewinds``."""
    entry = incident.entry
    kind, high, low, ended, recovered = "ended", entry.previous, entry.offset, None, None
    match incident:
        case Rewind():
            kind, high, low = "rewind", incident.high, incident.lowest
            recovered = None if incident.recovered_ms is None else moment(incident.recovered_ms)
            ended = incident.ended.value if incident.ended else None
        case Gap():
            kind, high, low = "gap", entry.offset, entry.previous
        case EndedOffset():
            ended = entry.move.value
    of_entry = entry_document(group, entry)
    for key in ("move", "leader_epoch", "topic_id"):
        del of_entry[key]
    return {
        **of_entry,
        "kind": kind,
        "highest_offset": high,
        "lowest_offset": low,
        "ended": ended,
        "recovered": recovered,
        "needs_attention": incident.needs_attention,
    }


def reset_document(group: str, changes: Sequence[Change], *, executed: bool) -> Document:
    """Return the document of ``reset``."""
    return {
        "group": group,
        "executed": executed,
        "partitions": [
            {
                "group": group,
                "topic": change.tp.topic,
                "partition": change.tp.partition,
                "committed_offset": change.previous,
                "requested_offset": change.requested,
                "new_offset": change.offset,
                "log_start_offset": change.log_start,
                "log_end_offset": change.log_end,
                "leader_epoch": change.leader_epoch,
            }
            for change in changes
        ],
    }


def starting_offsets_document(group: str, offsets: Mapping[TopicPartition, int]) -> Document:
    """Return the document of ``export-checkpoint``, with offsets by topic and partition, as Spark takes them."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return {"group": group, "starting_offsets": by_topic}


def _coordinator(found: GroupCoordinator) -> Document:
    return {"node_id": found.node_id, "host": found.address.host, "port": found.address.port}


def _partition(group: str, part: PartitionView) -> Document:
    return {
        "group": group,
        "topic": part.tp.topic,
        "partition": part.tp.partition,
        "committed_offset": part.committed_offset,
        "log_end_offset": part.log_end_offset,
        "lag": part.lag,
        "expired": part.expired,
        "lag_seconds": seconds(part.lag_seconds),
        "catch_up_seconds": seconds(part.catch_up_seconds),
        "leader_epoch": part.leader_epoch,
        "metadata": part.metadata,
        "query_id": part.query_id,
        **_owner(part.owner),
        "status": part.status.name if part.status is not None else None,
        "problem": part.problem,
    }


def _member(member: GroupMember) -> Document:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "member_epoch": member.member_epoch,
        "assignment": [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(member.assignment)],
    }


def _owner(owner: Owner | GroupMember | None) -> Document:
    return {key: getattr(owner, key, None) for key in ("member_id", "client_id", "host")}


def seconds(value: float | None) -> float | None:
    """Return a number of seconds, rounded to the millisecond."""
    return None if value is None else round(value, 3)


def moment(time_ms: int) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; a number that is no time stays a number."""
    try:
        when = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
