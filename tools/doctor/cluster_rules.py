"""Rules for the cluster: missing rights, settings that are too strict, and missing features."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_kafka_group.cluster.committer import TRANSACTION_TIMEOUT_S
from pyspark_kafka_group.cluster.group_description import GroupProtocol
from pyspark_kafka_group.cluster.properties.kafka_properties import default_of, transactional_id
from pyspark_kafka_group.tools.doctor.facts import Finding, GroupFacts, Severity

_HEARTBEATS = 3

_QUICK_HEARTBEAT_MS = 1000

_SERVICES = {
    ".servicebus.windows.net": "Azure Event Hubs",
    ".confluent.cloud": "Confluent Cloud",
    ".kafka-serverless.": "Amazon MSK Serverless",
    ".kafka.": "Amazon MSK",
}
_AMAZON = ".amazonaws.com"


def rights(facts: GroupFacts) -> Iterator[Finding]:
    """Find rights that members need and the user of this connection lacks."""
    cluster = facts.cluster
    if cluster.may_read_group is False:
        yield Finding(
            Severity.ERROR,
            "NO_RIGHT",
            f"group {facts.group}",
            "this user may describe it, but not read it, so its consumers can neither join nor commit",
            f"Give it the right Read on the group {facts.group}",
        )
    for topic, may in sorted(cluster.may_read_topics.items()):
        if not may:
            yield Finding(
                Severity.ERROR,
                "NO_RIGHT",
                f"topic {topic}",
                "this user may not read it",
                f"Give it the right Read on the topic {topic}",
            )
    if cluster.has_transactions and cluster.transactional_id_problem is not None:
        prefix = transactional_id(facts.group, "")
        yield Finding(
            Severity.ERROR,
            "NO_RIGHT",
            f"transactional ids {prefix}*",
            f"this user may not use them ({cluster.transactional_id_problem}), so queries of this project cannot "
            f"commit in transactions",
            f"Give it the right Write on transactional ids with the prefix {prefix}, or set commitMode=plain",
        )


def missing_topics(facts: GroupFacts) -> Iterator[Finding]:
    """Find topics that do not exist."""
    for topic in sorted(facts.cluster.missing_topics):
        yield Finding(
            Severity.WARNING,
            "UNKNOWN_TOPIC",
            f"topic {topic}",
            "it does not exist, and a member subscribes to it or --topics names it",
            "Check its name, or create the topic",
        )


def transaction_timeout(facts: GroupFacts) -> Iterator[Finding]:
    """Find brokers that refuse the transactions of this project."""
    text = (facts.cluster.broker or {}).get("transaction.max.timeout.ms", "")
    if text.isdecimal() and int(text) < TRANSACTION_TIMEOUT_S * 1000:
        yield Finding(
            Severity.ERROR,
            "TRANSACTION_TIMEOUT",
            "transaction.max.timeout.ms",
            f"it is {text}, and queries of this project commit in transactions of "
            f"{TRANSACTION_TIMEOUT_S * 1000:.0f} ms",
            f"Raise it to {TRANSACTION_TIMEOUT_S * 1000:.0f} or more, or set commitMode=plain",
        )


def broker_sessions(facts: GroupFacts) -> Iterator[Finding]:
    """Find unsuitable session timeouts of the brokers (under KIP-848 the brokers set them)."""
    settings = facts.cluster.broker or {}
    timeout = settings.get("group.consumer.session.timeout.ms", "")
    heartbeat = settings.get("group.consumer.heartbeat.interval.ms", "")
    if timeout.isdecimal() and heartbeat.isdecimal() and int(timeout) < _HEARTBEATS * int(heartbeat):
        yield Finding(
            Severity.WARNING,
            "SESSION_TIMEOUT_SHORT",
            "group.consumer.session.timeout.ms",
            f"it is {timeout}. That is less than {_HEARTBEATS} heartbeats of {heartbeat} ms "
            f"(group.consumer.heartbeat.interval.ms)",
            f"Raise it to {_HEARTBEATS * int(heartbeat)} or more; 45000 is Kafka's default",
        )


def heartbeats(facts: GroupFacts) -> Iterator[Finding]:
    """Find groups of KIP-848 whose members learn late of their partitions, and the least that the brokers accept."""
    group, broker = facts.settings or {}, facts.cluster.broker or {}

    def setting(name: str) -> str:
        return group.get(name) or broker.get(f"group.{name}", "")

    if facts.protocol is not GroupProtocol.CONSUMER:
        return
    interval, pause = setting("consumer.heartbeat.interval.ms"), setting("consumer.assignment.interval.ms")
    least = broker.get("group.consumer.min.heartbeat.interval.ms", "")
    if not (interval.isdecimal() and least.isdecimal() and int(interval) > _QUICK_HEARTBEAT_MS):
        return
    waits = f", and its coordinator waits {pause} ms between two assignments" if pause not in ("", "0") else ""
    lower = f"Set it to {least} for this group" if int(interval) > int(least) else f"It cannot be below {least}"
    yield Finding(
        Severity.NOTE,
        "HEARTBEATS_RARE",
        "consumer.heartbeat.interval.ms",
        f"it is {interval}: a partition that moves can stand still for so long before its new owner asks for it"
        f"{waits}. Queries of this project ask every {default_of('heartbeat.interval.ms')} ms by themselves, but "
        f"members of other programs do not",
        f"{lower} (group.consumer.min.heartbeat.interval.ms of the brokers). Lower that minimum for quicker ones"
        + (". Set consumer.assignment.interval.ms=0 for this group" if waits else ""),
    )


def lacks(facts: GroupFacts) -> Iterator[Finding]:
    """Find features that an old cluster or a managed service lacks."""
    cluster, where = facts.cluster, _service(facts.cluster.servers)
    if not cluster.has_transactions:
        yield Finding(
            Severity.NOTE,
            "NO_TRANSACTIONS",
            where,
            "it has no transactions, and queries of this project commit in transactions by default",
            "Set commitMode=plain",
        )
    if not cluster.has_consumer_protocol:
        yield Finding(
            Severity.NOTE,
            "NO_CONSUMER_PROTOCOL",
            where,
            "it does not have the group protocol of KIP-848 (Kafka 4.0 or newer)",
            "Leave kafka.group.protocol at classic, the default",
        )
    if not cluster.has_topic_ids:
        yield Finding(
            Severity.NOTE,
            "NO_TOPIC_IDS",
            where,
            "it has no topic ids (Kafka 2.8 or newer). A topic that was deleted and created again is noticed only if "
            "its log is shorter",
            "After you create a topic again, start with a new checkpoint, or run "
            "'kafka-group reset --to start --topics TOPIC'",
        )
    if cluster.offsets_topic_problem is not None:
        yield Finding(
            Severity.NOTE,
            "OFFSETS_TOPIC_UNREADABLE",
            where,
            f"__consumer_offsets cannot be read ({cluster.offsets_topic_problem}). The lag status, rebalances, "
            f"instance ids, session timeouts and batches of the last hour were not checked",
            "Give this user the right Read on that topic, if it exists. 'history --poll' works without it",
        )
    if cluster.broker is None:
        yield Finding(
            Severity.NOTE,
            "SETTINGS_UNREADABLE",
            where,
            "this user may not see the settings of brokers, so timeouts and the retention of offsets were not checked",
            "Give this user the right DescribeConfigs on the cluster, if the service has it",
        )


def _service(servers: str) -> str:
    for mark, name in _SERVICES.items():
        if mark in servers and (not name.startswith("Amazon") or _AMAZON in servers):
            return f"cluster ({name})"
    return "cluster"


RULES = (rights, missing_topics, transaction_timeout, broker_sessions, heartbeats, lacks)
"""In the order of findings."""
