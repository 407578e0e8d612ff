"""What ``--json`` prints.  The keys are Kafka's words in snake_case, and scripts depend on them: add, never rename.

Every object has all of its keys; what is not known, or does not exist, is null, never -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark_kafka_group.offsets.cluster.group_description import Member
from pyspark_kafka_group.offsets.cluster.group_inspection import Coordinator
from pyspark_kafka_group.tools.analysis.group_samples import Sample
from pyspark_kafka_group.tools.analysis.group_view import CoordinatorView, GroupView, PartitionView
from pyspark_kafka_group.tools.analysis.history import Entry
from pyspark_kafka_group.tools.analysis.membership import Owner
from pyspark_kafka_group.tools.analysis.reset_plan import Change
from pyspark_kafka_group.tools.analysis.rewinds import Ended, Finding, Gap, Rewind

Document = dict[str, Any]


def group_document(view: GroupView) -> Document:
    """Return what ``describe`` prints."""
    return {
        "group": view.group,
        "state": view.description.state,
        "protocol": view.description.protocol.value,
        "group_epoch": view.description.epoch,
        "coordinator": _coordinator(view.coordinator),
        "lag": view.lag,
        "lag_seconds": seconds(view.lag_seconds),
        "drain_seconds": seconds(view.drain_seconds),
        "status": view.status.name if view.status is not None else None,
        "partitions": [_partition(view.group, part) for part in view.partitions],
        "members": [_member(member) for member in view.description.members],
    }


def coordinator_document(view: CoordinatorView) -> Document:
    """Return what ``coordinator`` prints."""
    return {
        "group": view.group,
        "hash": view.java_hash,
        "offsets_topic_partitions": view.partition_count,
        "offsets_topic_partition": view.partition,
        "leader": view.leader,
        "coordinator": _coordinator(view.coordinator),
    }


def entry_document(group: str, entry: Entry) -> Document:
    """Return what ``history`` prints of one step."""
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


def finding_document(group: str, finding: Finding) -> Document:
    """Return what ``rewinds`` prints of one finding."""
    entry = finding.entry
    kind, high, low, recovered_ms, ended = "rewind", entry.previous, entry.offset, None, None
    match finding:
        case Rewind():
            high, low, recovered_ms = finding.high, finding.lowest, finding.recovered_ms
            ended = finding.ended.value if finding.ended else None
        case Gap():
            kind, high, low = "gap", entry.offset, entry.previous
        case Ended():
            kind, ended = "ended", entry.move.value
    return {
        "group": group,
        "kind": kind,
        "topic": entry.tp.topic,
        "partition": entry.tp.partition,
        "time": moment(entry.time_ms),
        "committed_offset": entry.offset,
        "previous_offset": entry.previous,
        "highest_offset": high,
        "lowest_offset": low,
        "ended": ended,
        "recovered": None if recovered_ms is None else moment(recovered_ms),
        "metadata": entry.metadata,
        "query_id": entry.query_id,
        "reset_by": entry.reset.by if entry.reset else None,
        **_owner(entry.owner),
        "members": entry.member_count,
        "log_offset": entry.log_offset,
    }


def seconds(value: float | None) -> float | None:
    """Return a number of seconds as it is printed, to the millisecond."""
    return None if value is None else round(value, 3)


def reset_document(group: str, changes: Sequence[Change], *, executed: bool) -> Document:
    """Return what ``reset`` prints."""
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


def sample_document(sample: Sample, problem: str | None) -> Document:
    """Return what ``watch`` prints of one look.

    Parameters
    ----------
    sample : Sample
        The last look that was answered.
    problem : str or None
        Why the cluster did not answer this time.
    """
    document = group_document(sample.view)
    for part, printed in zip(sample.view.partitions, document["partitions"], strict=True):
        rates = sample.rates.get(part.tp)
        printed["consumed_per_second"] = seconds(rates.consumed) if rates else None
        printed["produced_per_second"] = seconds(rates.produced) if rates else None
    return {
        "time": moment(sample.time_ms),
        **document,
        "consumed_per_second": seconds(sample.total.consumed),
        "produced_per_second": seconds(sample.total.produced),
        "rebalances": sample.rebalances,
        "error": problem,
    }


def _coordinator(found: Coordinator) -> Document:
    return {"node_id": found.node_id, "host": found.address.host, "port": found.address.port}


def _partition(group: str, part: PartitionView) -> Document:
    owner = part.owner
    return {
        "group": group,
        "topic": part.tp.topic,
        "partition": part.tp.partition,
        "committed_offset": part.committed_offset,
        "log_end_offset": part.log_end_offset,
        "lag": part.lag,
        "lag_seconds": seconds(part.lag_seconds),
        "drain_seconds": seconds(part.drain_seconds),
        "leader_epoch": part.leader_epoch,
        "metadata": part.metadata,
        "query_id": part.query_id,
        "member_id": owner.member_id if owner else None,
        "client_id": owner.client_id if owner else None,
        "host": owner.host if owner else None,
        "status": part.status.name if part.status is not None else None,
        "problem": part.problem,
    }


def _member(member: Member) -> Document:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "member_epoch": member.member_epoch,
        "assignment": [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(member.assignment)],
    }


def _owner(owner: Owner | None) -> Document:
    return {
        "member_id": owner.member_id if owner else None,
        "client_id": owner.client_id if owner else None,
        "host": owner.host if owner else None,
    }


def moment(time_ms: int, *, short: bool = False) -> str:
    """Return a time as UTC in the form of ISO 8601; a number of milliseconds that is no time stays a number.

    Parameters
    ----------
    time_ms : int
        Milliseconds since 1970.
    short : bool
        Without milliseconds, for tables.
    """
    try:
        when = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    if short:
        return when.strftime("%Y-%m-%d %H:%M:%S")
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
