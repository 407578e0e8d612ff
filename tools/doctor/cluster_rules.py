"""What the user may not do, what brokers forbid, what the cluster lacks, and which options go with that."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_kafka_group.offsets.cluster.committer import TRANSACTION_TIMEOUT_S
from pyspark_kafka_group.offsets.kafka_properties import transactional_id
from pyspark_kafka_group.tools.doctor.facts import Facts
from pyspark_kafka_group.tools.doctor.finding import Finding, error, note, warning

_HEARTBEATS = 3

_SERVICES = {
    ".servicebus.windows.net": "Azure Event Hubs",
    ".confluent.cloud": "Confluent Cloud",
    ".kafka-serverless.": "Amazon MSK Serverless",
    ".kafka.": "Amazon MSK",
}
_AMAZON = ".amazonaws.com"


def rights(facts: Facts) -> Iterator[Finding]:
    """The user of this connection lacks what a member needs."""
    cluster = facts.cluster
    if cluster.may_read_group is False:
        yield error(
            "NO_RIGHT",
            f"group {facts.group}",
            "this user may describe it, but not read it: it can neither join nor commit",
            f"Give it the right Read on the group {facts.group}",
        )
    for topic, may in sorted(cluster.may_read_topics.items()):
        if not may:
            yield error(
                "NO_RIGHT",
                f"topic {topic}",
                "this user may not read it",
                f"Give it the right Read on the topic {topic}",
            )
    if cluster.has_transactions and cluster.transactional_id_problem is not None:
        prefix = transactional_id(facts.group, "")
        yield error(
            "NO_RIGHT",
            f"transactional ids {prefix}*",
            f"this user may not use them ({cluster.transactional_id_problem}): queries of this project cannot commit "
            f"in transactions",
            f"Give it the right Write on transactional ids with the prefix {prefix}, or set commitMode=plain",
        )


def missing_topics(facts: Facts) -> Iterator[Finding]:
    """Somebody waits for a topic that there is not."""
    for topic in sorted(facts.cluster.missing_topics):
        yield warning(
            "UNKNOWN_TOPIC",
            f"topic {topic}",
            "it does not exist, and members of the group, or you, name it",
            "Check its name, or create it",
        )


def transaction_timeout(facts: Facts) -> Iterator[Finding]:
    """The brokers refuse our transactions."""
    text = (facts.cluster.broker or {}).get("transaction.max.timeout.ms", "")
    if text.isdecimal() and int(text) < TRANSACTION_TIMEOUT_S * 1000:
        yield error(
            "TRANSACTION_TIMEOUT",
            "transaction.max.timeout.ms",
            f"it is {text}, and queries of this project commit in transactions of "
            f"{TRANSACTION_TIMEOUT_S * 1000:.0f} ms",
            f"Raise it to {TRANSACTION_TIMEOUT_S * 1000:.0f} or more, or set commitMode=plain",
        )


def broker_sessions(facts: Facts) -> Iterator[Finding]:
    """Under KIP-848 the brokers decide how soon a member is taken for dead."""
    settings = facts.cluster.broker or {}
    timeout = settings.get("group.consumer.session.timeout.ms", "")
    heartbeat = settings.get("group.consumer.heartbeat.interval.ms", "")
    if timeout.isdecimal() and heartbeat.isdecimal() and int(timeout) < _HEARTBEATS * int(heartbeat):
        yield warning(
            "SESSION_TIMEOUT_SHORT",
            "group.consumer.session.timeout.ms",
            f"it is {timeout}, less than {_HEARTBEATS} of the heartbeats that come every {heartbeat} ms "
            f"(group.consumer.heartbeat.interval.ms)",
            f"Raise it to {_HEARTBEATS * int(heartbeat)} or more; 45000 is Kafka's default",
        )


def lacks(facts: Facts) -> Iterator[Finding]:
    """The cluster is old, or a service that leaves something out."""
    cluster, where = facts.cluster, _service(facts.cluster.servers)
    if not cluster.has_transactions:
        yield note(
            "NO_TRANSACTIONS",
            where,
            "it offers no transactions, in which queries of this project commit unless they are told otherwise",
            "Set commitMode=plain",
        )
    if not cluster.has_consumer_protocol:
        yield note(
            "NO_CONSUMER_PROTOCOL",
            where,
            "it does not offer the group protocol of KIP-848 (Kafka has it from 4.0 on)",
            "Leave kafka.group.protocol at classic, the default",
        )
    if not cluster.has_topic_ids:
        yield note(
            "NO_TOPIC_IDS",
            where,
            "it tells no topic ids (Kafka does from 2.8 on): a topic that is deleted and created again is noticed only "
            "if its log is shorter then",
            "After creating a topic again, start with a new checkpoint, or 'kafka-group reset --to start'",
        )
    if cluster.offsets_topic_problem is not None:
        yield note(
            "OFFSETS_TOPIC_UNREADABLE",
            where,
            f"__consumer_offsets cannot be read ({cluster.offsets_topic_problem}): rebalances, instance ids, session "
            f"timeouts and batches of the last hour were not looked at",
            "Give this user the right Read on that topic if there is one; 'history --poll' needs none",
        )
    if cluster.broker is None:
        yield note(
            "SETTINGS_UNREADABLE",
            where,
            "the brokers do not tell their settings: timeouts and the retention of offsets were not looked at",
            "Give this user the right DescribeConfigs on the cluster, if it has one",
        )


def _service(servers: str) -> str:
    for mark, name in _SERVICES.items():
        if mark in servers and (not name.startswith("Amazon") or _AMAZON in servers):
            return f"cluster ({name})"
    return "cluster"


RULES = (rights, missing_topics, transaction_timeout, broker_sessions, lacks)
"""In the order of findings."""
