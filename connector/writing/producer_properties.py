"""The ``kafka.*`` properties of the sink's producers: one table, from which refusals, defaults and docs come.

A property that is not in it goes to librdkafka as the user has written it, and librdkafka refuses unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafka_group.cluster.properties.client_config import connecting
from pyspark_kafka_group.cluster.properties.kafka_properties import Refusal
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.property_checks import check_refusal, check_security


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerProperty:
    """One property.

    Attributes
    ----------
    key : str
        Its name without ``kafka.``.
    usual : str or None
        The default that producers get; None if they get none.
    forced : str or None
        The value that producers get in any case.
    called : str
        What librdkafka calls it, where Kafka's Java client has another name.
    divisor : int
        What the value is divided by for librdkafka, where the units differ.
    exactly_once : tuple of str
        The values that ``delivery=exactly-once`` can work with; empty if all.
    refusal : Refusal or None
        Why users cannot set it.
    doc : str
        What users should know of it.
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
    why = "it belongs to the Java client, and this sink uses librdkafka."
    return ProducerProperty(key=key, refusal=Refusal(why=why, instead=instead))


_BYTES = "key and value are sent as the bytes of their columns."
_CAST = "Remove it, and cast the column, to STRING or BINARY."

PROPERTIES: tuple[ProducerProperty, ...] = (
    ProducerProperty(
        key="partitioner",
        # As Java's producer, and so Spark's own sink: topics that were co-partitioned stay so.
        usual="murmur2_random",
        doc="Where a record without a partition goes. The default is that of Java's producer: by the key's murmur2 "
        "hash; without a key at random, some milliseconds the same.",
    ),
    ProducerProperty(
        key="enable.idempotence",
        usual="true",
        exactly_once=("true",),
        doc="Whether a producer's own retries can neither repeat nor reorder records.",
    ),
    ProducerProperty(
        key="acks",
        usual="all",
        exactly_once=("all", "-1"),
        doc="How many replicas have a record before it counts as written. Less than `all` turns "
        "kafka.enable.idempotence off, unless that is set.",
    ),
    ProducerProperty(
        key="delivery.timeout.ms",
        called="message.timeout.ms",
        # As Java's producer; librdkafka's own default is 5 minutes.
        usual="120000",
        doc="How long a record may take to be written, all retries included, before its task fails. An unreachable "
        "cluster is an error after this long. At most kafka.transaction.timeout.ms; 0 waits "
        "for ever.",
    ),
    ProducerProperty(
        key="max.block.ms",
        called="topic.metadata.propagation.max.ms",
        usual="30000",
        doc="How long a topic that the cluster does not know may take to appear before the task fails.",
    ),
    ProducerProperty(
        key="buffer.memory",
        called="queue.buffering.max.kbytes",
        divisor=1024,
        usual=str(64 * 1024 * 1024),
        doc="How many bytes of records a producer holds that are not written yet; a task that is faster waits. There "
        "is one producer for each running task.",
    ),
    ProducerProperty(
        key="max.request.size",
        called="message.max.bytes",
        usual="1048576",  # as in Java's client; librdkafka's own is less
        doc="The largest record. The topic's `max.message.bytes` has to allow it, too.",
    ),
    ProducerProperty(
        key="transaction.timeout.ms",
        # The most that brokers allow unless told otherwise (transaction.max.timeout.ms).
        usual="900000",
        doc="With `delivery=exactly-once`: how long a task's transaction may stay open, from its first record until "
        "Spark has committed the batch. Brokers allow 15 minutes unless transaction.max.timeout.ms says otherwise.",
    ),
    # Each takes some 300 bytes besides its own: with small ones as much as buffer.memory.
    ProducerProperty(
        key="queue.buffering.max.messages",
        usual="200000",
        doc="How many records a producer holds at most. It holds fewer, 10000 at first, for as long as more would not "
        "leave faster: that takes less CPU time.",
    ),
    ProducerProperty(key="linger.ms", usual="5"),
    ProducerProperty(key="client.id", usual="kafka-group-sink"),
    ProducerProperty(key="enable.metrics.push", usual="false"),
    # Deliberate: a report for each record would become a Python object for each.
    ProducerProperty(
        key="delivery.report.only.error",
        forced="true",
        refusal=Refusal(
            why="only failed records are of interest to the sink.", instead="Remove it.", allowed=("true",)
        ),
    ),
    ProducerProperty(
        key="key.serializer",
        refusal=Refusal(why=f"Kafka option 'key.serializer' is not supported: {_BYTES}", instead=_CAST),
    ),
    ProducerProperty(
        key="value.serializer",
        refusal=Refusal(why=f"Kafka option 'value.serializer' is not supported: {_BYTES}", instead=_CAST),
    ),
    ProducerProperty(
        key="transactional.id",
        refusal=Refusal(
            why="each task has transactions of its own.",
            instead="Remove it, and set delivery=exactly-once for transactions; their ids begin with the option "
            "transactionalIdPrefix.",
        ),
    ),
    _java("partitioner.class", "Use kafka.partitioner with one of librdkafka's, or a column partition."),
    _java("interceptor.classes", "Remove it."),
)

_ROWS = {row.key: row for row in PROPERTIES}


def check_producer_properties(properties: Mapping[str, str], *, exactly_once: bool) -> None:
    """Refuse what would break the contract of the sink.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.
    exactly_once : bool
        Whether ``delivery`` is that.

    Raises
    ------
    OptionError
        Naming the property, the reason and the remedy.
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
            raise OptionError(option, f"it is given together with kafka.{row.called}, the same.", "Remove one.")


def transaction_timeout_ms(properties: Mapping[str, str]) -> int:
    """Return how long a transaction of the user may stay open, in milliseconds."""
    key = "transaction.timeout.ms"
    given = properties.get(key, "").strip()
    return int(given) if given.isdecimal() else int(_ROWS[key].usual or 0)  # librdkafka refuses what is no number


def producer_config(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of a producer: the user's properties, over the defaults, under what is forced.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.

    Raises
    ------
    OptionError
        If a reference leads nowhere in this process.
    """
    properties = connecting(properties)
    config = {_librdkafka(row): _value(row, row.usual) for row in PROPERTIES if row.usual is not None}
    limit = properties.get("transaction.timeout.ms", "").strip()
    if limit.isdecimal():  # else librdkafka refuses it, naming a property that the user has not set
        config["message.timeout.ms"] = str(min(int(config["message.timeout.ms"]), int(limit)))
    relaxed = properties.get("acks", "all").strip().lower() not in ("all", "-1")
    if relaxed and "enable.idempotence" not in properties:
        config["enable.idempotence"] = "false"  # as Java's producer does
    for key, value in properties.items():
        row = _ROWS.get(key)
        if row is None:
            config[key] = value
        else:
            config[_librdkafka(row)] = _value(row, value)
    return config | {row.key: row.forced for row in PROPERTIES if row.forced is not None}


def _librdkafka(row: ProducerProperty) -> str:
    return row.called or row.key


def _value(row: ProducerProperty, value: str) -> str:
    return value if row.divisor == 1 else str(max(1, int(value) // row.divisor))
