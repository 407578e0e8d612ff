"""Errors for records that Kafka has not accepted, with a table of remedies, and the errors of the commit of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark_kafka_group.cluster.properties.clients import client_text
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    DeliveryError,
    KafkaGroupError,
    SinkTransactionError,
)
from pyspark_kafka_group.offsets.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_SIZE = (
    "It is larger than kafka.max.request.size, kafka.buffer.memory or the topic's max.message.bytes allows: raise "
    "them, or write smaller values. The topic's limit is for a batch of records. The sink makes smaller "
    "batches if the user may describe the topic's settings (DESCRIBE_CONFIGS). Otherwise set kafka.batch.size (1000000 "
    "by default) below it."
)
_FENCED = (
    "Another attempt of this task has begun, or its transaction was open for longer than "
    "kafka.transaction.timeout.ms. If this repeats, raise that property. Or the same checkpoint is in use twice: stop "
    "one of the queries."
)
_NO_TOPIC = (
    "The topic does not exist, and the cluster does not create topics automatically. Or the user of this query may not "
    "describe it. Create it, correct the name, or grant DESCRIBE and WRITE."
)
_REMEDIES = {
    "MSG_SIZE_TOO_LARGE": _SIZE,
    "RECORD_LIST_TOO_LARGE": _SIZE,
    "_MSG_TIMED_OUT": "The cluster did not accept it within kafka.delivery.timeout.ms. Check kafka.bootstrap.servers, "
    "that the executors can reach the brokers, and that enough replicas are in sync.",
    "_UNKNOWN_TOPIC": _NO_TOPIC,
    "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
    "_UNKNOWN_PARTITION": "The topic has no such partition. Correct the column partition, or leave it null.",
    "TOPIC_EXCEPTION": "Kafka does not allow this name. Use up to 249 letters, digits, '.', '_' and '-'.",
    "INVALID_RECORD": "The topic refuses it. A topic with cleanup.policy=compact accepts only records with a key.",
    "INVALID_REPLICATION_FACTOR": "The cluster cannot create the topic automatically. Create it yourself.",
    "NOT_ENOUGH_REPLICAS": "Fewer replicas are in sync than the topic's min.insync.replicas. Check the brokers.",
    "INVALID_TRANSACTION_TIMEOUT": "Lower kafka.transaction.timeout.ms, or raise transaction.max.timeout.ms on the "
    "brokers.",
    "_FENCED": _FENCED,
    "PRODUCER_FENCED": _FENCED,
    "INVALID_PRODUCER_EPOCH": _FENCED,
}
_REFUSED = {
    "TOPIC_AUTHORIZATION_FAILED": "Grant the user of this query WRITE and DESCRIBE on the topic.",
    "CLUSTER_AUTHORIZATION_FAILED": "Grant the user of this query IDEMPOTENT_WRITE, or set "
    "kafka.enable.idempotence=false.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Grant the user of this query WRITE and DESCRIBE on transactional ids "
    "that begin with 'kafka-group-sink-', or with the value of the option transactionalIdPrefix.",
    "_AUTHENTICATION": "Check kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.username and "
    "kafka.sasl.password.",
}
_LATE = frozenset({"_MSG_TIMED_OUT", "_TIMED_OUT", "_UNKNOWN_TOPIC"})
_ELSE = "Spark may repeat the task. Look up this error in Kafka's documentation."


def delivery_error(
    error: KafkaError, topic: str, partition: int, properties: Mapping[str, str], last_error: str = ""
) -> KafkaGroupError:
    """Return the error for a record that Kafka has not accepted.

    Parameters
    ----------
    error : KafkaError
        The reason.
    topic, partition : str, int
        The destination; empty and -1 if unknown.
    properties : mapping of str to str
        The producer's configuration.  The error does not show its secrets.
    last_error : str
        The last error of the client's connections.
    """
    name = error.name()
    text = client_text(error.str(), properties)
    if name in _REFUSED:
        where = f"{topic}: " if topic else ""
        return AuthenticationError(f"{where}a record could not be written: {name} ({text}). {_REFUSED[name]}")
    remedy = _REMEDIES.get(name, _ELSE)
    if name in _LATE and last_error:
        remedy += f" The client's last error: {client_text(last_error, properties)}."
    return DeliveryError(topic=topic, partition=partition, code=name, text=text, remedy=remedy)


FENCED_CODES = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"})
"""Another producer has taken over the transactional id."""

DELETED = "UNKNOWN_TOPIC_OR_PARTITION"
"""A topic that was deleted meanwhile."""


def accept(batch: int) -> str:
    """Return how to accept a batch as it is in Kafka."""
    return (
        f"To accept the rows in Kafka as batch {batch} and continue, start the query with the option "
        f"acceptBatch={batch}."
    )


def twice(batch: int) -> SinkTransactionError:
    """Return the error if another run commits the same batch."""
    return SinkTransactionError(
        f"Another run of this query has committed batch {batch}, or is committing it, while this run wrote it. The "
        f"same checkpoint is in use twice: stop one of the queries. No row of the batch is committed twice."
    )


def named(batch: int | None) -> str:
    """Return the name of a batch in errors; None is the write of a batch job."""
    return "The write" if batch is None else f"Batch {batch}"


def unanswered(problem: Exception) -> BrokerError:
    """Return the error if no broker answers."""
    return BrokerError(f"The cluster does not answer: {problem}. Check kafka.bootstrap.servers and the brokers.")


def no_right(batch: int, problem: str, topics: Sequence[str], group: str) -> AuthenticationError:
    """Return the error if the user may not store the decision."""
    return AuthenticationError(
        f"{named(batch)}: the decision to commit it cannot be stored: {problem}. Nothing of the batch can be read "
        f"in Kafka. The user of this query needs READ on the topic {', '.join(map(repr, topics))} and on the group "
        f"{group!r}."
    )


def decision_refused(
    refused: Mapping[TopicPartition, str], topics: Sequence[str], batch: int, group: str
) -> KafkaGroupError:
    """Return the error if the decision cannot be stored for some topics, whose errors are ``refused``."""
    tp, name = min(refused.items(), key=lambda one: one[1] == DELETED)  # report another error than this first
    if name in FENCED_CODES:
        return twice(batch)
    if name.endswith("AUTHORIZATION_FAILED"):
        denied = sorted(tp.topic for tp, name in refused.items() if name.endswith("AUTHORIZATION_FAILED"))
        return no_right(batch, name, denied or topics, group)
    return SinkTransactionError(
        f"{named(batch)}: the decision to commit it cannot be stored for {tp}: {name}. Nothing of the batch can be "
        f"read in Kafka. "
        + (
            "The topic was deleted: create it."
            if name == DELETED
            else "Write with fewer tasks, or set offset.metadata.max.bytes on the brokers to 4096 or more."
        )
    )
