"""Errors for records that Kafka has not accepted, with a table of remedies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_kafka_group.cluster.properties.client_login import client_text
from pyspark_kafka_group.offsets.errors import AuthenticationError, DeliveryError, KafkaGroupError

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
