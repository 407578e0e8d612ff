"""Rules for members: needless rebalances, and partitions that stand still."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark_kafka_group.cluster.group_description import GroupProtocol
from pyspark_kafka_group.tools.analysis.group_checks import listed
from pyspark_kafka_group.tools.doctor.facts import Finding, GroupFacts, Severity
from pyspark_kafka_group.wire.describe_requests import DescribedMember

_DEFAULT_HEARTBEAT_MS = 3000
"""Default of ``heartbeat.interval.ms`` in Java's client and in librdkafka.  No member reports its own."""

_EAGER = ("range", "roundrobin", "sticky")
"""The eager assignors of Java's client and of librdkafka.  Kafka Streams and Connect bring their own."""

_HEARTBEATS = 3
"""Minimum number of heartbeats in a session timeout, by Kafka's own advice: one late heartbeat is no death."""

_OFTEN = 10
"""Rebalances in an hour.  A rolling restart of five members takes ten."""

_MARGIN = 2
"""A batch that takes more than half of the poll interval is close to a rebalance."""

_RETURNS = 2
"""How often a client takes an instance id back.  Once may be a deployment that was undone."""

_NAMED = 4


def eager_assignor(facts: GroupFacts) -> Iterator[Finding]:
    """Find an assignor with which each rebalance revokes all partitions of all members."""
    eager = facts.protocol is GroupProtocol.CLASSIC and facts.assignor in _EAGER
    if eager and len(facts.members) == 1:
        yield Finding(
            Severity.NOTE,
            "EAGER_ASSIGNOR",
            f"group {facts.group}",
            f"its only member, {client(facts.members[0])}, uses the assignor {facts.assignor!r}. Queries of this "
            f"project are refused while it is a member, because they use cooperative-sticky",
            "Stop it before you start a query of this group, give the query another kafka.group.id, or set "
            "partition.assignment.strategy=cooperative-sticky in this member",
        )
    elif eager and facts.members:
        yield Finding(
            Severity.WARNING,
            "EAGER_ASSIGNOR",
            f"group {facts.group}",
            f"its {len(facts.members)} members use the assignor {facts.assignor!r}, which revokes all partitions of "
            f"all members in each rebalance",
            "Set partition.assignment.strategy=cooperative-sticky, and nothing else, in all members (Java's default "
            "names range first). With Kafka 4.0 or newer you can set group.protocol=consumer instead",
        )


def mixed_assignors(facts: GroupFacts) -> Iterator[Finding]:
    """Find members that ask for different assignors."""
    asked = {assignor for member in facts.members if (assignor := facts.timeouts(member).assignor)}
    used = facts.recent.assignors if facts.recent else frozenset[str]()
    if facts.protocol is GroupProtocol.CLASSIC and len(used) > 1:
        evidence = f"within an hour it used the assignors {_texts(used)}: members name different ones"
    elif facts.protocol is GroupProtocol.CONSUMER and len(asked) > 1:
        evidence = (
            f"its members ask for the assignors {_texts(asked)}. The majority decides, so the assignor may change"
        )
    else:
        return
    yield Finding(
        Severity.WARNING,
        "MIXED_ASSIGNORS",
        f"group {facts.group}",
        evidence,
        "Set the same assignor in all members of the group",
    )


def mixed_protocols(facts: GroupFacts) -> Iterator[Finding]:
    """Find a migration to KIP-848 that stopped half-way."""
    classic = [member for member in facts.members if member.speaks_classic]
    if facts.protocol is GroupProtocol.CONSUMER and classic:
        yield Finding(
            Severity.WARNING,
            "MIXED_PROTOCOLS",
            f"group {facts.group}",
            f"{len(classic)} of {len(facts.members)} members use the classic protocol in a group of KIP-848 "
            f"({_texts(map(client, classic))}). In a rebalance they wait for each other, and the others for them",
            "Set group.protocol=consumer in all members. In queries of this project that is kafka.group.protocol",
        )


def subscriptions(facts: GroupFacts) -> Iterator[Finding]:
    """Find members that read different topics, or have no topic in common."""
    known = {member: member.subscription for member in facts.members if member.subscription}
    if len({*known.values()}) < 2:
        return
    parts: list[tuple[set[str], list[str]]] = []
    for member, topics in known.items():
        joined, names = {*topics}, [client(member)]
        for part in [part for part in parts if part[0] & joined]:
            parts.remove(part)
            joined, names = joined | part[0], part[1] + names
        parts.append((joined, names))
    if len(parts) > 1:
        who = "; ".join(f"{_texts(names)} read {_texts(topics)}" for topics, names in parts[:_NAMED])
        yield Finding(
            Severity.WARNING,
            "GROUP_USED_TWICE",
            f"group {facts.group}",
            f"its members have no topic in common: {who}. Each member that joins or leaves stops the others for "
            f"nothing. If one application drops a topic, its offsets may expire",
            "Give each application its own group.id",
        )
        return
    sets = sorted({_texts(topics) for topics in known.values()})
    yield Finding(
        Severity.WARNING,
        "DIFFERENT_SUBSCRIPTIONS",
        f"group {facts.group}",
        f"its members subscribe to different topics: {'; '.join(sets[:_NAMED])}. Partitions are shared unevenly, and "
        f"members wait for rebalances of topics that they do not read",
        "Subscribe all members to the same topics, or give each application its own group.id",
    )


def idle_members(facts: GroupFacts) -> Iterator[Finding]:
    """Find members without a partition."""
    topics = {topic for member in facts.members for topic in member.subscription or ()}
    if not topics or any(not member.subscription for member in facts.members):
        return
    partitions = sum(facts.partition_counts.get(topic, 0) for topic in topics)
    idle = [member for member in facts.members if not member.assignment]
    if facts.state == "Stable" and idle and partitions and len(facts.members) > partitions:
        yield Finding(
            Severity.WARNING,
            "MORE_MEMBERS_THAN_PARTITIONS",
            f"group {facts.group}",
            f"it has {len(facts.members)} members for {partitions} partitions. {len(idle)} have no partition "
            f"({_texts(map(client, idle))})",
            "Stop some of them, or add partitions",
        )


def instance_ids(facts: GroupFacts) -> Iterator[Finding]:
    """Find two processes with one instance id, which fence each other in turn."""
    for instance_id, clients in facts.recent.instances.items() if facts.recent else ():
        returns = sum(client in clients[:at] for at, client in enumerate(clients))
        if returns >= _RETURNS:
            yield Finding(
                Severity.ERROR,
                "DUPLICATE_INSTANCE_ID",
                f"group.instance.id {instance_id}",
                f"{_texts({*clients})} have taken it from each other {len(clients) - 1} times within an hour",
                "Give each process its own group.instance.id",
            )


def partitions_gone(facts: GroupFacts) -> Iterator[Finding]:
    """Find members that have partitions which do not exist: their topic was created again with fewer."""
    gone = {
        tp: member
        for member in facts.members
        for tp in member.assignment
        if tp.topic not in facts.cluster.missing_topics
        and tp.partition >= facts.partition_counts.get(tp.topic, tp.partition + 1)
    }
    if gone:
        yield Finding(
            Severity.ERROR,
            "PARTITIONS_GONE",
            listed(gone),
            f"{_texts({client(member) for member in gone.values()})} has them, and the topic no longer does: it was "
            f"created again with fewer partitions. The group has not noticed, so members may not read the new topic",
            "Start the members of the group again",
        )


def session_timeouts(facts: GroupFacts) -> Iterator[Finding]:
    """Find session timeouts so short that one late heartbeat counts as a death."""
    least = _HEARTBEATS * _DEFAULT_HEARTBEAT_MS
    known = {member: facts.timeouts(member).session_ms for member in facts.members}
    short = {member: timeout for member, timeout in known.items() if timeout is not None and timeout < least}
    if short:
        yield Finding(
            Severity.WARNING,
            "SESSION_TIMEOUT_SHORT",
            f"member {_texts(map(client, short))}",
            f"its session.timeout.ms is {_texts({*short.values()})}. With the default heartbeat.interval.ms of "
            f"{_DEFAULT_HEARTBEAT_MS} that is less than {_HEARTBEATS} heartbeats, so a short pause of the process or "
            f"the network causes a rebalance",
            f"Raise session.timeout.ms to {least} or more (45000 is the default), or lower heartbeat.interval.ms to a "
            f"third of it",
        )


def poll_intervals(facts: GroupFacts) -> Iterator[Finding]:
    """Find batches that take nearly as long as the group waits.  Name the member that comes closest."""
    members = {member.member_id: member for member in facts.members}
    close = []
    for batch in facts.batches:
        member = members.get(batch.member_id)
        timeout = facts.timeouts(member).rebalance_ms if member else None
        if member and timeout and batch.seconds * 1000 * _MARGIN > timeout:
            close.append((batch.seconds * 1000 / timeout, batch, member, timeout))
    if close:
        _, batch, member, timeout = max(close, key=lambda found: found[0])
        others = len({found[2].member_id for found in close}) - 1
        yield Finding(
            Severity.WARNING,
            "POLL_INTERVAL_SHORT",
            f"member {client(member)}" + (f" and {others} more" if others else ""),
            f"a batch of {batch.tp} took {batch.seconds:.0f} s, and max.poll.interval.ms is {timeout}. A batch that "
            f"takes longer removes the member from the group",
            f"Raise max.poll.interval.ms to {int(batch.seconds * 1000) * 3} or more, or make batches smaller "
            f"(maxOffsetsPerTrigger, max.poll.records)",
        )


def rebalances(facts: GroupFacts) -> Iterator[Finding]:
    """Find a group that rebalances too often."""
    count = facts.recent.rebalances if facts.recent else 0
    if count > _OFTEN:
        yield Finding(
            Severity.WARNING,
            "REBALANCES_OFTEN",
            f"group {facts.group}",
            f"it had {count} rebalances within an hour",
            "Find out which members join and leave: 'kafka-group watch' and the logs of the members show it. With a "
            "group.instance.id a member keeps its partitions over a restart",
        )


def client(member: DescribedMember) -> str:
    """Return the text that names a member."""
    return f"{member.client_id} at {member.host}"


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
    partitions_gone,
    session_timeouts,
    poll_intervals,
    rebalances,
)
"""In the order of findings."""
