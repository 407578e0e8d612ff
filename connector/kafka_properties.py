"""Which ``kafka.*`` properties are refused, because they would break the contract of the source.

Everything else goes to librdkafka as it is, and librdkafka refuses what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafka_group.offsets.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One ``kafka.*`` property that would break the contract.

    Attributes
    ----------
    key : str
        The property, without ``kafka.``.
    why, instead : str
        The reason, and what to do.
    allowed : tuple of str
        Values that are accepted all the same.
    """

    key: str
    why: str
    instead: str
    allowed: tuple[str, ...] = ()


_COMMITS = "this source commits offsets itself, after Spark has finished a batch."
_BYTES = "key and value always arrive as binary columns."
_JAVA_TLS = "it belongs to the Java client, and this source uses librdkafka."

REFUSED: tuple[Refusal, ...] = (
    Refusal(key="enable.auto.commit", why=_COMMITS, instead="Remove it.", allowed=("false",)),
    Refusal(key="enable.auto.offset.store", why=_COMMITS, instead="Remove it.", allowed=("false",)),
    Refusal(key="auto.commit.interval.ms", why=_COMMITS, instead="Remove it."),
    Refusal(
        key="auto.offset.reset",
        why="where to start is decided once, and never by a silent reset.",
        instead="Use startingOffsets, and failOnDataLoss for offsets that are gone.",
    ),
    Refusal(
        key="partition.assignment.strategy",
        why="only cooperative-sticky leaves the other partitions running while some move; eager assignors "
        "(range, roundrobin) take everything away from everybody.",
        instead="Remove it, and give all members of the group cooperative-sticky or kafka.group.protocol=consumer.",
        allowed=("cooperative-sticky",),
    ),
    Refusal(key="enable.partition.eof", why="the readers set it themselves.", instead="Remove it.", allowed=("true",)),
    Refusal(
        key="transactional.id",
        why="the query commits under a transactional id of its own.",
        instead="Remove it; grant rights by the prefix 'kafka-group-<group id>-'.",
    ),
    Refusal(key="key.deserializer", why=_BYTES, instead="Cast the column: CAST(key AS STRING)."),
    Refusal(key="value.deserializer", why=_BYTES, instead="Cast the column: CAST(value AS STRING)."),
    Refusal(key="interceptor.classes", why="there is no Java consumer to intercept.", instead="Remove it."),
    Refusal(key="sasl.jaas.config", why=_JAVA_TLS, instead="Use kafka.sasl.username and kafka.sasl.password."),
    Refusal(key="ssl.truststore.location", why=_JAVA_TLS, instead="Use kafka.ssl.ca.location with a PEM file."),
    Refusal(key="ssl.truststore.password", why=_JAVA_TLS, instead="Use kafka.ssl.ca.location with a PEM file."),
    Refusal(key="ssl.truststore.type", why=_JAVA_TLS, instead="Use kafka.ssl.ca.location with a PEM file."),
)

# The default of librdkafka and of the Java client.
_MAX_POLL_INTERVAL_MS = 300_000

# How much shorter than kafka.max.poll.interval.ms a hand-over is unless the user says otherwise.  The group counts from
# the moment it asks; the member hears of that with a heartbeat, every 3 s by Kafka's default, and its answer takes a
# request.  Of a short interval a third, so that most of it is left for the batch.
_DRAIN_MARGIN_MS = 10_000

# What this source computes with.
_NUMBERS = ("max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms")

_GROUP_PROTOCOLS = ("classic", "consumer")

# librdkafka refuses these under the consumer protocol, where the broker decides.
_CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse what would break the contract.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.

    Raises
    ------
    OptionError
        Naming the property, the reason and the remedy.
    """
    for refusal in REFUSED:
        value = properties.get(refusal.key)
        if value is not None and value.strip().lower() not in refusal.allowed:
            raise OptionError(f"kafka.{refusal.key}", f"it cannot be set: {refusal.why}", refusal.instead)
    protocol = properties.get("group.protocol", "classic")
    if protocol not in _GROUP_PROTOCOLS:
        raise OptionError(
            "kafka.group.protocol", f"{protocol!r} is not a group protocol.", "Write classic or consumer."
        )
    if protocol == "consumer":
        for key in _CLASSIC_ONLY:
            if key in properties:
                raise OptionError(
                    f"kafka.{key}",
                    "the broker decides this under kafka.group.protocol=consumer.",
                    "Remove it, or use kafka.group.protocol=classic.",
                )
    for key in _NUMBERS:
        if key in properties and not properties[key].isdecimal():
            raise OptionError(
                f"kafka.{key}", f"{properties[key]!r} is not a whole number.", "Write a number of milliseconds."
            )
    isolation = properties.get("isolation.level", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError(
            "kafka.isolation.level", f"{isolation!r} is not one.", "Write read_committed or read_uncommitted."
        )


def default_drain_timeout(usual_ms: int, properties: Mapping[str, str]) -> int:
    """Return the ``drainTimeoutMs`` of a query that does not set it, in milliseconds.

    ``usual_ms``, or less if the user's ``kafka.max.poll.interval.ms`` leaves less.
    """
    interval_ms = int(properties.get("max.poll.interval.ms", _MAX_POLL_INTERVAL_MS))
    return max(1, min(usual_ms, interval_ms - min(_DRAIN_MARGIN_MS, interval_ms // 3)))


def check_drain_timeout(drain_timeout_ms: int, properties: Mapping[str, str]) -> None:
    """Refuse a ``drainTimeoutMs`` that the group would not wait for; raises :class:`OptionError`."""
    text = properties.get("max.poll.interval.ms", str(_MAX_POLL_INTERVAL_MS))
    if drain_timeout_ms >= int(text):
        raise OptionError(
            "drainTimeoutMs",
            f"{drain_timeout_ms} ms is not below kafka.max.poll.interval.ms ({text} ms), after which the group throws "
            f"the member out.",
            "Lower drainTimeoutMs or raise kafka.max.poll.interval.ms.",
        )
