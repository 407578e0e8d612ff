"""What becomes of records and offsets: what is gone, what goes soon, and what holds readers back."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_kafka_group.tools.doctor.facts import Facts
from pyspark_kafka_group.tools.doctor.finding import Finding, error, warning

_HELD_BACK_S = 120.0
"""Producers' transactions end after 60 s at most, unless they are told otherwise (``transaction.timeout.ms``)."""

_CLOSE = 0.7
"""A lag of so much of the retention leaves little time."""

_SHORT_RETENTION_S = 24 * 3600.0
"""Offsets that are kept for less than a day do not outlast a night's outage."""


def records_gone(facts: Facts) -> Iterator[Finding]:
    """Retention was faster than the group."""
    for tp, part in facts.partitions.items():
        if part.committed_offset is not None and part.log_start is not None and part.committed_offset < part.log_start:
            yield error(
                "RECORDS_DELETED",
                tp,
                f"the group is at offset {part.committed_offset}, and its log begins at {part.log_start}: "
                f"{part.log_start - part.committed_offset} offsets were deleted before they were read",
                "Start with failOnDataLoss=false, or 'kafka-group reset --to start'; raise the topic's retention.ms",
            )


def beyond_the_end(facts: Facts) -> Iterator[Finding]:
    """The log is shorter than what the group has read."""
    for tp, part in facts.partitions.items():
        if part.committed_offset is not None and part.log_end is not None and part.committed_offset > part.log_end:
            yield error(
                "OFFSET_BEYOND_END",
                tp,
                f"the group is at offset {part.committed_offset}, and its log ends at {part.log_end}: the topic was "
                f"created again, or truncated after an unclean election of a leader",
                "Find out which; then 'kafka-group reset --to start' for a new topic, '--to end' for a truncated one",
            )


def records_go_soon(facts: Facts) -> Iterator[Finding]:
    """Retention catches up with the group."""
    for tp, part in facts.partitions.items():
        retention_s = _retention_s(facts, tp.topic)
        if retention_s is None or part.lag_seconds is None or part.lag_seconds <= _CLOSE * retention_s:
            continue
        yield warning(
            "RETENTION_CLOSE",
            tp,
            f"the record at the group's offset is {_hours(part.lag_seconds)} old, and the topic keeps records for "
            f"{_hours(retention_s)}",
            "Raise the topic's retention.ms until the group has caught up, and give it more members",
        )


def open_transactions(facts: Facts) -> Iterator[Finding]:
    """What comes after an open transaction is not read."""
    for tp, part in facts.partitions.items():
        held = part.open_transaction
        if held is None or held.seconds < _HELD_BACK_S:
            continue
        who = "" if held.producer_id is None else f" of the producer {held.producer_id}"
        count = 0 if part.log_end is None else part.log_end - held.since
        behind = f", {count} offset{'' if count == 1 else 's'} before the end of the log" if count else ""
        yield error(
            "OPEN_TRANSACTION",
            tp,
            f"a transaction{who} is open since offset {held.since}, for {held.seconds:.0f} s at least; readers with "
            f"read_committed wait there{behind}",
            "Stop or finish its producer; if there is none any more, 'kafka-transactions abort --start-offset "
            f"{held.since} --topic {tp.topic} --partition {tp.partition}'",
        )


def offsets_go_soon(facts: Facts) -> Iterator[Finding]:
    """A stop of the group may lose its place."""
    minutes = (facts.cluster.broker or {}).get("offsets.retention.minutes", "")
    if not minutes.isdecimal():
        return
    idle = facts.lately.idle_seconds if facts.lately else None
    if facts.state == "Empty" and idle is not None and idle > _CLOSE * int(minutes) * 60:
        yield warning(
            "OFFSETS_EXPIRE_SOON",
            f"group {facts.group}",
            f"nobody has used it for {_hours(idle)}, and the brokers keep its offsets for {_hours(int(minutes) * 60)} "
            f"(offsets.retention.minutes)",
            "Start a member; 'kafka-group reset --to +0 --execute' keeps the offsets for as long again",
        )
    if int(minutes) * 60 < _SHORT_RETENTION_S:
        yield warning(
            "OFFSETS_RETENTION_SHORT",
            "offsets.retention.minutes",
            f"it is {minutes}: a group that is stopped for longer loses its offsets, and starts anew",
            "Raise it to 10080 (7 days, Kafka's default); checkpoints of this project's queries do not help others",
        )


def _retention_s(facts: Facts, topic: str) -> float | None:
    settings = facts.cluster.topics.get(topic, {})
    text = settings.get("retention.ms", "")
    deletes = "delete" in settings.get("cleanup.policy", "delete")
    return int(text) / 1000 if deletes and text.isdecimal() and int(text) else None


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


RULES = (records_gone, beyond_the_end, records_go_soon, open_transactions, offsets_go_soon)
"""In the order of findings."""
