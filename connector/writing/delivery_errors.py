"""What to tell users of a record that Kafka did not take; a table of remedies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.errors import AuthenticationError, DeliveryError, KafkaGroupError
from pyspark_kafka_group.offsets.redaction import redact

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_SIZE = (
    "It is larger than kafka.max.request.size, kafka.buffer.memory or the topic's max.message.bytes allows: raise "
    "them, or write smaller values."
)
_FENCED = (
    "Another attempt of this task has begun since, or its transaction was open for longer than "
    "kafka.transaction.timeout.ms. If that goes on, raise it, or the same checkpoint is in use twice: stop one of the "
    "queries."
)
_NO_TOPIC = (
    "The topic does not exist, and the cluster does not create topics by itself, or the user may not describe it. "
    "Create it, correct the name, or grant DESCRIBE and WRITE."
)
_REMEDIES = {
    "MSG_SIZE_TOO_LARGE": _SIZE,
    "RECORD_LIST_TOO_LARGE": _SIZE,
    "_MSG_TIMED_OUT": "The cluster did not take it in kafka.delivery.timeout.ms. Check kafka.bootstrap.servers, that "
    "the brokers can be reached from the executors, and that enough replicas are in sync.",
    "_UNKNOWN_TOPIC": _NO_TOPIC,
    "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
    "_UNKNOWN_PARTITION": "The topic has no such partition. Correct the column partition, or leave it null.",
    "TOPIC_EXCEPTION": "Kafka does not allow such a name of a topic: letters, digits, '.', '_' and '-', 249 at most.",
    "INVALID_RECORD": "The topic refuses it: one with cleanup.policy=compact takes no record without a key.",
    "INVALID_REPLICATION_FACTOR": "The topic cannot be created by itself. Create it before.",
    "NOT_ENOUGH_REPLICAS": "Fewer replicas are in sync than the topic's min.insync.replicas.",
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
    "that begin with 'kafka-group-sink-', or with what the option transactionalIdPrefix says.",
    "_AUTHENTICATION": "Check kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.username and "
    "kafka.sasl.password.",
}
_ELSE = "Spark may try the task again; see what Kafka says of the error."


def delivery_error(
    error: KafkaError, topic: str, partition: int, properties: Mapping[str, str], last_error: str = ""
) -> KafkaGroupError:
    """Return the error for a record that was not taken.

    Parameters
    ----------
    error : KafkaError
        Why not.
    topic, partition : str, int
        Where it was to go; empty and -1 where that is not known.
    properties : mapping of str to str
        The producer's configuration, whose secrets must not be shown.
    last_error : str
        What the client has reported of its connections before.
    """
    name = error.name()
    text = redact(error.str(), properties)
    if name in _REFUSED:
        where = f"{topic}: " if topic else ""
        return AuthenticationError(f"{where}a record could not be written: {name} ({text}). {_REFUSED[name]}")
    remedy = _REMEDIES.get(name, _ELSE)
    if name == "_MSG_TIMED_OUT" and last_error:
        remedy += f" The client's last error: {redact(last_error, properties)}."
    return DeliveryError(topic=topic, partition=partition, code=name, text=text, remedy=remedy)
