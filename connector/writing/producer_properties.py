"""The ``kafka.*`` properties of the sink's producers: one table with refusals, defaults and docs.

`direct_settings` reads the result.  Other properties go to librdkafka unchanged, which refuses unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafka_group.cluster.properties.client_config import check_refusal, check_security, connecting
from pyspark_kafka_group.cluster.properties.kafka_properties import Refusal
from pyspark_kafka_group.offsets.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerProperty:
    """One property.

    Attributes
    ----------
    key : str
        The name without ``kafka.``.
    usual : str or None
        The default of this sink; None if librdkafka's default holds.
    forced : str or None
        The value that users cannot change.
    called : str
        The name in librdkafka, if Kafka's Java client has another name.
    divisor : int
        The quotient of the units of librdkafka and the Java client.
    exactly_once : tuple of str
        The values that ``delivery=exactly-once`` supports; empty if all.
    refusal : Refusal or None
        Why users cannot set it.
    doc : str
        The text for users.
    """

    key: str
    usual: str | None = None
    forced: str | None = None
    called: str = ""
    divisor: int = 1
    exactly_once: tuple[str, ...] = ()
    refusal: Refusal | None = None
    doc: str = ""


def _java(key: str, instead: str) -> ProducerProperty:
    why = "it belongs to the Java client."
    return ProducerProperty(key=key, refusal=Refusal(why=why, instead=instead))


_BYTES = "key and value are sent as the bytes of their columns."
_CAST = "Remove it, and cast the column, to STRING or BINARY."

PROPERTIES: tuple[ProducerProperty, ...] = (
    ProducerProperty(
        key="partitioner",
        # The default of Java's producer, and so of Spark's own sink: co-partitioned topics stay co-partitioned.
        usual="murmur2_random",
        doc="Chooses the partition of records that have none. The default is that of Java's producer: the murmur2 hash "
        "of the key decides. Records without a key go to a random partition with a leader, which changes after some "
        "16 kB.",
    ),
    ProducerProperty(
        key="enable.idempotence",
        usual="true",
        exactly_once=("true",),
        doc="Prevents that a producer's own retries repeat or reorder records.",
    ),
    ProducerProperty(
        key="acks",
        usual="all",
        exactly_once=("all", "-1"),
        doc="The number of replicas that must have a record before it counts as written. Less than `all` turns "
        "kafka.enable.idempotence off, unless you set that property.",
    ),
    ProducerProperty(
        key="delivery.timeout.ms",
        called="message.timeout.ms",
        # The default of Java's producer; librdkafka's own default is 5 minutes.
        usual="120000",
        doc="The longest time to write a batch of records, from the first attempt on, with all retries; after that its "
        "task fails. If the cluster is not reachable, the error comes after this time. 0 waits for ever. With "
        "`delivery=exactly-once` at most kafka.transaction.timeout.ms, and not 0.",
    ),
    ProducerProperty(
        key="max.block.ms",
        called="topic.metadata.propagation.max.ms",
        # Less than in Java's client (60 s) and librdkafka (30 s): a topic that is missing is an error in seconds.
        # Clusters that create topics take about one second.
        usual="5000",
        doc="How long the producer waits for a topic that the cluster does not know; after that the task fails. The "
        "cluster may create it meanwhile.",
    ),
    ProducerProperty(
        key="buffer.memory",
        called="queue.buffering.max.kbytes",
        divisor=1024,
        usual=str(64 * 1024 * 1024),
        doc="The size of a producer's buffer of records that are not written yet, in bytes. A task waits while the "
        "buffer is full. Each running task has one producer.",
    ),
    ProducerProperty(
        key="max.request.size",
        called="message.max.bytes",
        usual="1048576",  # the default of Java's client; librdkafka's own is less
        doc="The size of the largest record, in bytes. Less than the default also limits requests with several "
        "batches, which otherwise have up to 4 MB: Azure Event Hubs needs 1000000. The topic's `max.message.bytes` "
        "must also allow the record. That limit is for a batch of records. If it is less than 1000000, and the user "
        "may not describe the topic's settings (DESCRIBE_CONFIGS), set kafka.batch.size below it.",
    ),
    ProducerProperty(
        key="transaction.timeout.ms",
        # The broker's default of transaction.max.timeout.ms.
        usual="900000",
        doc="With `delivery=exactly-once`: how long a task's transaction may stay open, from its first record until "
        "Spark has committed the batch. Brokers allow 15 minutes, unless you change transaction.max.timeout.ms.",
    ),
    ProducerProperty(
        key="linger.ms",
        usual="5",
        doc="Only for librdkafka's producer. The direct one sends a batch when it is full, or at the end of the task.",
    ),
    ProducerProperty(
        key="client.id",
        usual="kafka-group-sink",
        doc="The name of the producers in the brokers' logs, metrics and quotas.",
    ),
    ProducerProperty(
        key="enable.metrics.push",
        usual="false",
        doc="Only for librdkafka's producer: whether it sends its own metrics to brokers that ask for them (KIP-714).",
    ),
    # Deliberate: each report would be a Python object.
    ProducerProperty(
        key="delivery.report.only.error",
        forced="true",
        refusal=Refusal(
            why="the sink handles only reports of failed records.", instead="Remove it.", allowed=("true",)
        ),
    ),
    *(
        ProducerProperty(
            key=key, refusal=Refusal(why=f"Kafka option {key!r} is not supported: {_BYTES}", instead=_CAST)
        )
        for key in ("key.serializer", "value.serializer")
    ),
    ProducerProperty(
        key="transactional.id",
        refusal=Refusal(
            why="the sink gives each task its own transactional id.",
            instead="Remove it, and set delivery=exactly-once for transactions. Their ids begin with the option "
            "transactionalIdPrefix.",
        ),
    ),
    _java("partitioner.class", "Use kafka.partitioner with a partitioner of librdkafka, or a column partition."),
    _java("interceptor.classes", "Remove it."),
)

_ROWS = {row.key: row for row in PROPERTIES}


def check_producer_properties(properties: Mapping[str, str], *, exactly_once: bool) -> None:
    """Refuse properties that would break the guarantees of the sink.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.
    exactly_once : bool
        Whether ``delivery`` is exactly-once.

    Raises
    ------
    OptionError
        If a property is refused.  The error names the property, the reason and the remedy.
    """
    check_security(properties, decided=_ROWS.keys())
    for row in PROPERTIES:
        if row.key not in properties:
            continue
        option, value = f"kafka.{row.key}", properties[row.key].strip()
        check_refusal(option, value, row.refusal)
        if exactly_once and row.exactly_once and value.lower() not in row.exactly_once:
            raise OptionError(
                option,
                f"delivery=exactly-once does not work with {value!r}.",
                "Remove it, or use delivery=at-least-once.",
            )
        if row.called and not value.isdecimal():
            raise OptionError(option, f"{value!r} is not a whole number.", "Write a number such as 60000.")
        if row.called in properties:
            raise OptionError(option, f"it means the same as kafka.{row.called}, which is also set.", "Remove one.")
    if exactly_once:
        _check_delivery_timeout(properties)


def _check_delivery_timeout(properties: Mapping[str, str]) -> None:
    """Refuse to wait longer for a record than its transaction may stay open."""
    limit_ms = transaction_timeout_ms(properties)
    for key in ("delivery.timeout.ms", "message.timeout.ms"):
        given = properties.get(key, "").strip()
        if given.isdecimal() and not 0 < int(given) <= limit_ms:
            raise OptionError(
                f"kafka.{key}",
                f"{f'{given} ms' if int(given) else 'no limit'} is more than kafka.transaction.timeout.ms "
                f"({limit_ms} ms), after which the broker aborts the transaction of the record.",
                "Lower it, or raise kafka.transaction.timeout.ms.",
            )


def transaction_timeout_ms(properties: Mapping[str, str]) -> int:
    """Return how long a transaction may stay open, in milliseconds."""
    key = "transaction.timeout.ms"
    given = properties.get(key, "").strip()
    return int(given) if given.isdecimal() else int(_ROWS[key].usual or 0)  # librdkafka refuses other texts


def producer_config(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of a producer: the user's properties with defaults and forced values.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.

    Raises
    ------
    OptionError
        If this process cannot resolve a reference in a property.
    """
    properties = connecting(properties)
    config = {_librdkafka(row): _value(row, row.usual) for row in PROPERTIES if row.usual is not None}
    limit = properties.get("transaction.timeout.ms", "").strip()
    if limit.isdecimal():  # librdkafka refuses a larger message.timeout.ms, a property that the user has not set
        config["message.timeout.ms"] = str(min(int(config["message.timeout.ms"]), int(limit)))
    relaxed = properties.get("acks", "all").strip().lower() not in ("all", "-1")
    if relaxed and "enable.idempotence" not in properties:
        config["enable.idempotence"] = "false"  # like Java's producer
    for key, value in properties.items():
        row = _ROWS.get(key, ProducerProperty(key=key))
        config[_librdkafka(row)] = _value(row, value)
    return config | {row.key: row.forced for row in PROPERTIES if row.forced is not None}


def _librdkafka(row: ProducerProperty) -> str:
    return row.called or row.key


def _value(row: ProducerProperty, value: str) -> str:
    return value if row.divisor == 1 else str(max(1, int(value) // row.divisor))
