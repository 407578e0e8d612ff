"""Rules for records and offsets: losses, coming losses, and transactions that hold readers back."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_checks import listed, named
from pyspark_kafka_group.tools.analysis.lag_judgement import Status
from pyspark_kafka_group.tools.doctor.facts import Finding, GroupFacts, Severity
from pyspark_kafka_group.tools.doctor.member_rules import client

_HELD_BACK_S = 120.0
"""By default a producer's transaction ends after 60 s at most (``transaction.timeout.ms``)."""

_LEFT_ALONE_S = 60.0
"""Age of an unread record from which a group without members is a fault.  A restart takes less."""

_CLOSE = 0.7
"""A lag of this share of the retention leaves little time."""

_SHORT_RETENTION_S = 24 * 3600.0
"""Offsets with a retention of less than a day do not outlast a night's outage."""


def lag_status(facts: GroupFacts) -> Iterator[Finding]:
    """Find a lag that is a problem, by the same verdict as in ``describe``."""
    active = f"its members: {named([client(member) for member in facts.members])}"
    members = active if facts.members else "the group has no members"
    for status, code, evidence, remedy in (
        (
            Status.STOP,
            "COMMITS_STOPPED",
            f"there are records to read, and the group has stopped committing ({members})",
            "Look at the logs of the members" if facts.members else "Start a member",
        ),
        (
            Status.STALL,
            "OFFSET_STALLED",
            f"the group commits the same offset again and again while records wait ({members})",
            "Look at the logs of the members: a batch may fail again and again",
        ),
        (
            Status.REWIND,
            "OFFSET_REWOUND",
            "the committed offset went back, and the group has not reached the old offset again",
            "'kafka-group rewinds' shows who has committed it",
        ),
    ):
        affected = [tp for tp, part in facts.partitions.items() if part.status is status]
        if affected:
            yield Finding(Severity.ERROR, code, listed(affected), f"STATUS {status.name}: {evidence}", remedy)
    problems = {tp: part.problem for tp, part in facts.partitions.items() if part.problem is not None}
    if problems:
        yield Finding(
            Severity.ERROR,
            "NO_LEADER",
            listed(problems),
            f"STATUS HELDBACK: no leader answers ({', '.join(sorted({*problems.values()}))}), so nothing can be read",
            "Find out why the brokers that lead these partitions are down",
        )


def no_members(facts: GroupFacts) -> Iterator[Finding]:
    """Find records that wait for a group without members, before the lag's status shows it."""
    waiting = {
        tp: part
        for tp, part in facts.partitions.items()
        if part.committed_offset is not None and part.log_end is not None and part.committed_offset < part.log_end
    }
    if facts.members or not waiting or any(part.status is Status.STOP for part in waiting.values()):
        return
    age_s = max((part.lag_seconds or 0.0 for part in waiting.values()), default=0.0)
    yield Finding(
        Severity.WARNING if age_s > _LEFT_ALONE_S and not _is_scheduled(facts) else Severity.NOTE,
        "NO_MEMBERS",
        f"group {facts.group}",
        f"the group has no members, and records of {listed(waiting)} wait. The oldest one is {age_s:.0f} s old",
        "Start a member. A group of a scheduled job has members only while the job runs",
    )


def _is_scheduled(facts: GroupFacts) -> bool:
    """Tell whether a bookmark has committed: its group has no members, ever."""
    return facts.recent is not None and facts.recent.own_expiry


def records_gone(facts: GroupFacts) -> Iterator[Finding]:
    """Find records that retention deleted before the group read them."""
    for tp, part in facts.partitions.items():
        if part.committed_offset is not None and part.log_start is not None and part.committed_offset < part.log_start:
            yield Finding(
                Severity.ERROR,
                "RECORDS_DELETED",
                str(tp),
                f"the group is at offset {part.committed_offset}, and the log starts at {part.log_start}. "
                f"{part.log_start - part.committed_offset} offsets were deleted before the group read them",
                f"Start with failOnDataLoss=false, or run 'kafka-group reset --to start {_only(tp)}'. Raise the "
                f"topic's retention.ms",
            )


def beyond_the_end(facts: GroupFacts) -> Iterator[Finding]:
    """Find logs that are shorter than what the group has read."""
    for tp, part in facts.partitions.items():
        if part.committed_offset is not None and part.log_end is not None and part.committed_offset > part.log_end:
            yield Finding(
                Severity.ERROR,
                "OFFSET_BEYOND_END",
                str(tp),
                f"the group is at offset {part.committed_offset}, and the log ends at {part.log_end}. The topic was "
                f"created again, or an unclean leader election has truncated it",
                f"Find out which. Run 'kafka-group reset {_only(tp)}', for a new topic with '--to start', for a "
                f"truncated one with '--to end'",
            )


def records_go_soon(facts: GroupFacts) -> Iterator[Finding]:
    """Find partitions where retention catches up with the group."""
    for tp, part in facts.partitions.items():
        retention_s = _retention_s(facts, tp.topic)
        if retention_s is None or part.lag_seconds is None or part.lag_seconds <= _CLOSE * retention_s:
            continue
        yield Finding(
            Severity.WARNING,
            "RETENTION_CLOSE",
            str(tp),
            f"the record at the group's offset is {_hours(part.lag_seconds)} old, and the topic keeps records for "
            f"{_hours(retention_s)}",
            "Raise the topic's retention.ms until the group has caught up, and add members to the group",
        )


def open_transactions(facts: GroupFacts) -> Iterator[Finding]:
    """Find open transactions whose end readers wait for."""
    for tp, part in facts.partitions.items():
        held = part.open_transaction
        if held is None or held.seconds < _HELD_BACK_S:
            continue
        producer = "" if held.producer_id is None else f" of producer {held.producer_id}"
        count = 0 if part.log_end is None else part.log_end - held.since
        behind = f", {count} offset{'' if count == 1 else 's'} before the end of the log" if count else ""
        yield Finding(
            Severity.ERROR,
            "OPEN_TRANSACTION",
            str(tp),
            f"a transaction{producer} has been open since offset {held.since}, for at least {held.seconds:.0f} s. "
            f"Readers with read_committed wait there{behind}",
            _end_transaction(tp, held.since),
        )


def commits_held_back(facts: GroupFacts) -> Iterator[Finding]:
    """Find an open transaction, of any group, that hides the newest commits of this one."""
    if facts.cluster.offsets_topic_held is not None:
        tp, since = facts.cluster.offsets_topic_held
        yield Finding(
            Severity.ERROR,
            "OPEN_TRANSACTION",
            str(tp),
            f"a transaction of this or another group has been open since offset {since} and hides later commits. The "
            f"lag status, rebalances, instance ids, session timeouts and batches of the last hour were not checked",
            _end_transaction(tp, since),
        )


def _end_transaction(tp: TopicPartition, since: int) -> str:
    return (
        "Stop its producer, or let it finish. If the producer does not exist any more, run 'kafka-transactions "
        f"abort --start-offset {since} --topic {tp.topic} --partition {tp.partition}'"
    )


def offsets_go_soon(facts: GroupFacts) -> Iterator[Finding]:
    """Find a stopped group that may lose its offsets."""
    minutes = (facts.cluster.broker or {}).get("offsets.retention.minutes", "")
    if not minutes.isdecimal():
        return
    idle = facts.recent.idle_seconds if facts.recent and not facts.recent.own_expiry else None
    if facts.state == "Empty" and idle is not None and idle > _CLOSE * int(minutes) * 60:
        yield Finding(
            Severity.WARNING,
            "OFFSETS_EXPIRE_SOON",
            f"group {facts.group}",
            f"it has been unused for {_hours(idle)}, and the brokers keep its offsets for {_hours(int(minutes) * 60)} "
            f"(offsets.retention.minutes)",
            "Start a member, or raise offsets.retention.minutes",
        )
    if int(minutes) * 60 < _SHORT_RETENTION_S:
        yield Finding(
            Severity.WARNING,
            "OFFSETS_RETENTION_SHORT",
            "offsets.retention.minutes",
            f"it is {minutes}. A group that is stopped for longer loses its offsets",
            "Raise it to 10080 (7 days, Kafka's default). Queries of this project have checkpoints, other consumers "
            "do not",
        )


def _only(tp: TopicPartition) -> str:
    """Return the option that keeps a reset from all other partitions of the group."""
    return f"--topics {tp.topic}:{tp.partition}"


def _retention_s(facts: GroupFacts, topic: str) -> float | None:
    settings = facts.cluster.topics.get(topic, {})
    text = settings.get("retention.ms", "")
    deletes = "delete" in settings.get("cleanup.policy", "delete")
    return int(text) / 1000 if deletes and text.isdecimal() and int(text) else None


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


RULES = (
    *(lag_status, no_members, records_gone, beyond_the_end, records_go_soon),
    *(open_transactions, commits_held_back, offsets_go_soon),
)
"""In the order of findings."""
