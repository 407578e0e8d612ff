"""What members do to each other: needless rebalances, and partitions that stand still."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark_kafka_group.offsets.cluster.group_description import GroupProtocol
from pyspark_kafka_group.tools.doctor.facts import Facts
from pyspark_kafka_group.tools.doctor.finding import Finding, error, warning

_COOPERATIVE = "cooperative"

_USUAL_HEARTBEAT_MS = 3000
"""``heartbeat.interval.ms`` of Java's client and of librdkafka: a member tells nobody how often it sends one."""

_HEARTBEATS = 3
"""So many heartbeats belong into a session timeout, by Kafka's own advice: one that is late is no death."""

_OFTEN = 10
"""Rebalances in an hour; a rolling restart of five members takes ten."""

_MARGIN = 2
"""A batch that takes more than one half of the poll interval is one slow sink away from a rebalance."""

_RETURNS = 2
"""So often somebody gets an instance id back from another: once may be a deployment that was undone."""

_NAMED = 4


def eager_assignor(facts: Facts) -> Iterator[Finding]:
    """Everybody gives everything back in each rebalance."""
    classic = facts.protocol is GroupProtocol.CLASSIC and facts.assignor
    if classic and len(facts.members) > 1 and not facts.assignor.startswith(_COOPERATIVE):
        yield warning(
            "EAGER_ASSIGNOR",
            f"group {facts.group}",
            f"its {len(facts.members)} members have agreed on the assignor {facts.assignor!r}, which takes all "
            f"partitions from all of them whenever one comes or goes",
            "Set partition.assignment.strategy=cooperative-sticky in all members, without any other (Java's default "
            "names range first); from Kafka 4.0 on also group.protocol=consumer",
        )


def mixed_assignors(facts: Facts) -> Iterator[Finding]:
    """Members ask for different ways to share."""
    asked = {member.assignor for member in facts.members if member.assignor}
    had = facts.lately.assignors if facts.lately else frozenset[str]()
    if facts.protocol is GroupProtocol.CLASSIC and len(had) > 1:
        evidence = f"within an hour it was assigned by {_texts(had)}: members name different assignors"
    elif facts.protocol is GroupProtocol.CONSUMER and len(asked) > 1:
        evidence = f"its members ask for the assignors {_texts(asked)}; most votes win, and change with who is there"
    else:
        return
    yield warning(
        "MIXED_ASSIGNORS", f"group {facts.group}", evidence, "Give all members of the group the same assignor"
    )


def mixed_protocols(facts: Facts) -> Iterator[Finding]:
    """A migration to KIP-848 that has stopped half-way."""
    classic = [member for member in facts.members if member.speaks_classic]
    if facts.protocol is GroupProtocol.CONSUMER and classic:
        yield warning(
            "MIXED_PROTOCOLS",
            f"group {facts.group}",
            f"{len(classic)} of {len(facts.members)} members speak the classic protocol in a group of KIP-848 "
            f"({_texts(str(member) for member in classic)}): they wait for each other, and for the others",
            "Set group.protocol=consumer in all members; in queries of this project kafka.group.protocol",
        )


def subscriptions(facts: Facts) -> Iterator[Finding]:
    """Members read different topics, or have nothing in common at all."""
    known = {member: member.subscription for member in facts.members if member.subscription}
    if len({*known.values()}) < 2:
        return
    parts: list[tuple[set[str], list[str]]] = []
    for member, topics in known.items():
        joined, names = {*topics}, [str(member)]
        for part in [part for part in parts if part[0] & joined]:
            parts.remove(part)
            joined, names = joined | part[0], part[1] + names
        parts.append((joined, names))
    if len(parts) > 1:
        who = "; ".join(f"{_texts(names)} read {_texts(topics)}" for topics, names in parts[:_NAMED])
        yield warning(
            "GROUP_USED_TWICE",
            f"group {facts.group}",
            f"its members have no topic in common: {who}. Each one that comes or goes stops the others for nothing, "
            f"and offsets of a topic that one of them gives up may expire",
            "Give each application a group.id of its own",
        )
        return
    sets = sorted({_texts(topics) for topics in known.values()})
    yield warning(
        "DIFFERENT_SUBSCRIPTIONS",
        f"group {facts.group}",
        f"its members have subscribed to different topics: {'; '.join(sets[:_NAMED])}. Partitions are shared unevenly, "
        f"and members wait for rebalances of topics that are not theirs",
        "Subscribe all members to the same topics, or give each application a group.id of its own",
    )


def idle_members(facts: Facts) -> Iterator[Finding]:
    """There is nothing left for some."""
    topics = {topic for member in facts.members for topic in member.subscription or ()}
    if not topics or any(not member.subscription for member in facts.members):
        return
    partitions = sum(facts.partition_counts.get(topic, 0) for topic in topics)
    idle = [member for member in facts.members if not member.assignment]
    if facts.state == "Stable" and idle and partitions and len(facts.members) > partitions:
        yield warning(
            "MORE_MEMBERS_THAN_PARTITIONS",
            f"group {facts.group}",
            f"it has {len(facts.members)} members for {partitions} partitions: {len(idle)} have nothing to do "
            f"({_texts(str(member) for member in idle)})",
            "Stop some of them, or add partitions",
        )


def instance_ids(facts: Facts) -> Iterator[Finding]:
    """Two processes with one instance id throw each other out in turn."""
    for instance_id, bearers in facts.lately.instances.items() if facts.lately else ():
        returns = sum(bearer in bearers[:at] for at, bearer in enumerate(bearers))
        if returns >= _RETURNS:
            yield error(
                "DUPLICATE_INSTANCE_ID",
                f"group.instance.id {instance_id}",
                f"{_texts({*bearers})} have taken it from each other {len(bearers) - 1} times within an hour",
                "Give each process a group.instance.id of its own, and no restart loop a common one",
            )


def session_timeouts(facts: Facts) -> Iterator[Finding]:
    """One late heartbeat is taken for a death."""
    least = _HEARTBEATS * _USUAL_HEARTBEAT_MS
    short = [m for m in facts.members if m.session_timeout_ms is not None and m.session_timeout_ms < least]
    if short:
        timeouts = {member.session_timeout_ms for member in short}
        yield warning(
            "SESSION_TIMEOUT_SHORT",
            f"member {_texts(short)}",
            f"its session.timeout.ms is {_texts(timeouts)}; with the usual heartbeat.interval.ms of "
            f"{_USUAL_HEARTBEAT_MS} that is less than {_HEARTBEATS} heartbeats, so a pause of the process or of the "
            f"network is a rebalance",
            f"Raise session.timeout.ms to {least} or more (45000 is usual), or lower heartbeat.interval.ms to a third "
            f"of it at most",
        )


def poll_intervals(facts: Facts) -> Iterator[Finding]:
    """Batches nearly take longer than the group waits for; told of the one that comes closest."""
    members = {member.member_id: member for member in facts.members}
    close = []
    for batch in facts.lately.batches if facts.lately else ():
        member = members.get(batch.member_id)
        timeout = member.rebalance_timeout_ms if member else None
        if member and timeout and batch.seconds * 1000 * _MARGIN > timeout:
            close.append((batch.seconds * 1000 / timeout, batch, member, timeout))
    if close:
        _, batch, member, timeout = max(close, key=lambda found: found[0])
        others = len({found[2].member_id for found in close}) - 1
        yield warning(
            "POLL_INTERVAL_SHORT",
            f"member {member}" + (f" and {others} more" if others else ""),
            f"a batch of {batch.tp} took {batch.seconds:.0f} s, and max.poll.interval.ms is {timeout}: one that takes "
            f"longer throws the member out",
            f"Raise max.poll.interval.ms to {int(batch.seconds * 1000) * 3} or more, or make batches smaller "
            f"(maxOffsetsPerTrigger, max.poll.records)",
        )


def rebalances(facts: Facts) -> Iterator[Finding]:
    """The group does little else."""
    count = facts.lately.rebalances if facts.lately else 0
    if count > _OFTEN:
        yield warning(
            "REBALANCES_OFTEN",
            f"group {facts.group}",
            f"it was assigned anew {count} times within an hour",
            "Look who comes and goes: 'kafka-group watch', and the logs of its members. Members that are restarted "
            "keep their partitions with a group.instance.id",
        )


def _texts(items: Iterable[object]) -> str:
    names = sorted(str(item) for item in items)
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


RULES = (
    eager_assignor,
    mixed_assignors,
    mixed_protocols,
    subscriptions,
    idle_members,
    instance_ids,
    session_timeouts,
    poll_intervals,
    rebalances,
)
"""In the order of findings."""
