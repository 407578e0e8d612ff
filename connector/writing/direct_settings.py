"""Which configurations the direct producer supports, and its settings.

librdkafka checks all other configurations, because `producer.MessageProducer` writes with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.cluster.properties.client_config import reach
from pyspark_kafka_group.cluster.properties.kafka_properties import (
    EVERY_CLIENT,
    OwnConnections,
    row_of,
)
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.types import Address
from pyspark_kafka_group.writing.compression import Compression

_MOST = 2**31 - 1
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}  # as librdkafka has them
_IN_FLIGHT, _MOST_IN_FLIGHT = "max.in.flight.requests.per.connection", 5

_USUAL_BYTES, _REQUEST_BYTES = 1_048_576, 4_194_304
"""The default of ``max.request.size``, and the largest request with several batches.  Brokers accept 100 MB.

With Java's producer, the property limits both records and requests.  Users set less than the default if their brokers
accept no larger requests, such as Azure Event Hubs.  So only less than the default limits requests here.
"""

_FOR_THE_WAY_S = 1.0
"""How much longer than the broker this producer waits, so that the broker's own answer comes first."""


class _Limits(NamedTuple):
    """The default of a number, and its limits in librdkafka."""

    usual: int
    least: int
    most: int


_NUMBERS = {
    "batch.size": _Limits(1_000_000, 1, _MOST),
    "compression.level": _Limits(-1, -1, 12),
    "message.max.bytes": _Limits(1_000_000, 1000, 1_000_000_000),
    "message.timeout.ms": _Limits(300_000, 0, _MOST),
    "metadata.max.age.ms": _Limits(_MOST, 1, 86_400_000),  # Java's name of the refresh interval
    "queue.buffering.max.kbytes": _Limits(1_048_576, 1, _MOST),
    "request.timeout.ms": _Limits(30_000, 1, 900_000),
    "retry.backoff.max.ms": _Limits(1000, 1, 300_000),
    "retry.backoff.ms": _Limits(100, 1, 300_000),
    "socket.timeout.ms": _Limits(60_000, 10, 300_000),
    "topic.metadata.propagation.max.ms": _Limits(30_000, 0, 3_600_000),
    "topic.metadata.refresh.interval.ms": _Limits(300_000, -1, 3_600_000),
    "transaction.timeout.ms": _Limits(60_000, 1000, _MOST),
}
_IGNORED = {
    "linger.ms": _Limits(5, 0, 900_000),  # no batch waits for a clock
    "queue.buffering.max.ms": _Limits(5, 0, 900_000),  # the same by its older name
    _IN_FLIGHT: _Limits(1_000_000, 1, 1_000_000),  # always 1
    "max.in.flight": _Limits(1_000_000, 1, 1_000_000),
    "retries": _Limits(_MOST, 1, _MOST),  # a batch is retried until its timeout
    "message.send.max.retries": _Limits(_MOST, 1, _MOST),
    "queue.buffering.max.messages": _Limits(100_000, 0, _MOST),  # rows do not become objects
}
"""Numbers without a meaning for this producer.  They must still be valid."""
_WITH_WORDS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "client.id",
        "compression.codec",
        "compression.type",
        "delivery.report.only.error",
        "enable.idempotence",
        "enable.metrics.push",
        "partitioner",
        "transactional.id",
    }
)
_OF_PRODUCERS = _NUMBERS.keys() | _IGNORED.keys() | _WITH_WORDS

_ACKS = {"all": -1, "-1": -1, "1": 1}


class DirectSettings(NamedTuple):
    """The settings of a direct producer.  The end of a name is its unit."""

    servers: list[Address]
    security: Security
    client_id: str
    acks: int  # 1 for the leader, -1 for all replicas in sync
    idempotent: bool  # whether the broker recognizes a repeated batch
    compression: Compression | None
    batch_bytes: int  # the largest batch with more than one record
    record_bytes: int
    request_bytes: int  # the largest request with several batches
    buffer_bytes: int  # of all records that are not written yet
    delivery_s: float  # for a batch with all retries; `math.inf` for no limit
    request_s: float  # how long the broker may wait for other replicas
    answer_s: float  # how long a broker may be silent
    pause_s: float  # before the first retry; it doubles each time
    longest_pause_s: float
    creates_topics: bool  # whether to ask the brokers to create topics that do not exist
    new_topic_s: float  # how long to wait for a topic that the cluster does not know
    topic_age_s: float  # when to ask for the partitions of a topic again
    transactional_id: str | None
    transaction_ms: int  # how long a transaction may be open


class NotSupportedError(Exception):
    """The direct producer does not support a configuration.  The text names the property, without its value."""


def direct_settings(config: Mapping[str, str]) -> DirectSettings:
    """Return the settings of the direct producer.

    Parameters
    ----------
    config : mapping of str to str
        The result of `producer_properties.producer_config`, and the transactional id if there is one.

    Raises
    ------
    NotSupportedError
        If the direct producer does not support the configuration.
    OptionError
        If the addresses of the brokers are invalid.
    """
    for key in config:
        if key not in _OF_PRODUCERS and not _concerns_connections(key):
            raise NotSupportedError(f"kafka.{key} is a property of librdkafka")
    number = {key: _number(key, limits, config) for key, limits in {**_NUMBERS, **_IGNORED}.items()}
    acks = _one_of("acks", _ACKS, config, "all")
    idempotent = bool(_one_of("enable.idempotence", _BOOLEANS, config, "false"))
    _one_of("enable.metrics.push", _BOOLEANS, config, "false")
    _one_of("partitioner", {"murmur2_random": True}, config, "consistent_random")
    creates_topics = bool(_one_of("allow.auto.create.topics", _BOOLEANS, config, "true"))
    transactional_id = config.get("transactional.id")
    if idempotent and (
        acks == 1 or max(int(config.get(key, 0)) for key in (_IN_FLIGHT, "max.in.flight")) > _MOST_IN_FLIGHT
    ):
        raise NotSupportedError(f"kafka.enable.idempotence needs acks=all, and {_IN_FLIGHT} of at most 5")
    if transactional_id is not None and not idempotent:
        raise NotSupportedError("transactions need kafka.enable.idempotence")
    try:
        reached = reach(config)
    except OptionError as problem:
        if problem.option == "kafka.bootstrap.servers":
            raise  # librdkafka would look for the brokers until the delivery timeout
        raise NotSupportedError(f"own connections do not support {problem.option}") from None
    milliseconds = {key: value / 1000 for key, value in number.items()}
    refresh_s = milliseconds["topic.metadata.refresh.interval.ms"]
    oldest_s = milliseconds["metadata.max.age.ms"] if "metadata.max.age.ms" in config else math.inf
    buffer_bytes = number["queue.buffering.max.kbytes"] * 1024
    record_bytes = min(number["message.max.bytes"], buffer_bytes)
    return DirectSettings(
        servers=reached.servers,
        security=reached.security,
        client_id=config["client.id"],
        acks=acks,
        idempotent=idempotent,
        compression=_compression(config, number["compression.level"]),
        batch_bytes=number["batch.size"],
        record_bytes=record_bytes,
        request_bytes=record_bytes if record_bytes < _USUAL_BYTES else _REQUEST_BYTES,
        buffer_bytes=buffer_bytes,
        delivery_s=milliseconds["message.timeout.ms"] or math.inf,
        request_s=milliseconds["request.timeout.ms"],
        answer_s=min(milliseconds["socket.timeout.ms"], milliseconds["request.timeout.ms"] + _FOR_THE_WAY_S),
        pause_s=milliseconds["retry.backoff.ms"],
        longest_pause_s=max(milliseconds["retry.backoff.ms"], milliseconds["retry.backoff.max.ms"]),
        creates_topics=creates_topics,
        new_topic_s=milliseconds["topic.metadata.propagation.max.ms"],
        topic_age_s=min(refresh_s if refresh_s >= 0 else math.inf, oldest_s),
        transactional_id=transactional_id,
        transaction_ms=number["transaction.timeout.ms"],
    )


def tunes_librdkafka(config: Mapping[str, str]) -> bool:
    """Return whether a property tunes librdkafka's connections, and our own ones ignore it."""
    return any(key not in _OF_PRODUCERS and row_of(key).own_connections is OwnConnections.IGNORED for key in config)


def _concerns_connections(key: str) -> bool:
    row = row_of(key)
    return row.applies_to == EVERY_CLIENT and row.own_connections is not OwnConnections.NOT_SUPPORTED


def _number(key: str, limits: _Limits, config: Mapping[str, str]) -> int:
    if key not in config:
        return limits.usual
    try:
        value = int(config[key])
    except ValueError:
        raise NotSupportedError(f"kafka.{key} is not a whole number") from None
    if not limits.least <= value <= limits.most:
        raise NotSupportedError(f"kafka.{key} is too small or too large")
    return value


def _one_of(key: str, values: Mapping[str, int], config: Mapping[str, str], usual: str) -> int:
    value = config.get(key, usual).strip().lower()
    if value not in values:
        raise NotSupportedError(f"kafka.{key} has a value that only librdkafka knows")
    return values[value]


def _compression(config: Mapping[str, str], level: int) -> Compression | None:
    names = [config[key].strip().lower() for key in ("compression.type", "compression.codec") if key in config]
    if len(names) > 1:
        raise NotSupportedError("kafka.compression.type and kafka.compression.codec are the same")
    if names in ([], ["none"]):
        return None
    try:
        return Compression(names[0], level)
    except ValueError:
        raise NotSupportedError(
            "kafka.compression.type or compression.level has a value that only librdkafka knows"
        ) from None
