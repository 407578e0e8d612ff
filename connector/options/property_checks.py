"""Which ``kafka.*`` properties, and which of their values, are refused: what would break the contract of the source.

The table is in `cluster/properties/kafka_properties.py`.  Everything else goes to librdkafka as it is, and librdkafka
refuses what it does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_kafka_group.cluster.properties.client_config import value_of
from pyspark_kafka_group.cluster.properties.java_login import JAAS
from pyspark_kafka_group.cluster.properties.java_security import as_librdkafka
from pyspark_kafka_group.cluster.properties.kafka_properties import DECIDING, PROPERTIES, KafkaProperty, Refusal
from pyspark_kafka_group.cluster.properties.secret_references import check_references, refers, with_words
from pyspark_kafka_group.offsets.errors import OptionError

# How much shorter than kafka.max.poll.interval.ms a hand-over is unless the user says otherwise.  The group counts from
# the moment it asks; the member hears of that with a heartbeat, every 3 s by Kafka's default, and its answer takes a
# request.  Of a short interval a third, so that most of it is left for the batch.
DRAIN_MARGIN_MS = 10_000


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
    check_security(properties, decided=DECIDING)
    for row in PROPERTIES:
        if row.key in properties:
            _check(row, properties[row.key])
    if value_of("group.protocol", properties) == "consumer":
        for row in PROPERTIES:
            if row.classic_only and row.key in properties:
                raise OptionError(
                    f"kafka.{row.key}",
                    "the broker decides this under kafka.group.protocol=consumer.",
                    "Remove it, or use kafka.group.protocol=classic.",
                )


def check_security(properties: Mapping[str, str], *, decided: Collection[str]) -> None:
    """Refuse security properties that librdkafka cannot have, as far as that shows without reading references.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.
    decided : collection of str
        The properties that cannot be references.

    Raises
    ------
    OptionError
        Naming the property, the reason and the remedy.
    """
    check_references(properties, decided=decided)
    # Deliberate: the rest only where everything is known that decides about it; else where connections are opened.
    if not any(_may_decide(key, value) for key, value in properties.items() if refers(value)):
        _check_token_source(as_librdkafka({key: with_words(value) for key, value in properties.items()}))


def _check_token_source(properties: Mapping[str, str]) -> None:
    """Refuse a login by tokens without a source of tokens: librdkafka would wait for its caller's callback for ever."""
    mechanism = properties.get("sasl.mechanism", "")
    protocol = properties.get("security.protocol", "").strip().lower()
    if mechanism.strip().upper() != "OAUTHBEARER" or not protocol.startswith("sasl"):
        return
    oidc = properties.get("sasl.oauthbearer.method", "").strip().lower() == "oidc"
    if not oidc and properties.get("enable.sasl.oauthbearer.unsecure.jwt", "").strip().lower() != "true":
        raise OptionError(
            "kafka.sasl.oauthbearer.method",
            "it is not oidc, so librdkafka would wait for tokens from a callback, which no option of Spark can carry.",
            "Write oidc, with kafka.sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url.",
        )


def _may_decide(key: str, value: str) -> bool:
    if key == JAAS:
        return value.lstrip().startswith("${")  # otherwise the class is known
    return key.startswith(("sasl.", "ssl.", "security.", "config."))


def _check(row: KafkaProperty, value: str) -> None:
    option = f"kafka.{row.key}"
    check_refusal(option, value, row.refusal)
    if row.values and value not in row.values:
        raise OptionError(option, f"it cannot be {value!r}.", f"Write {' or '.join(row.values)}.")
    if row.unit and not value.strip().isdecimal():
        raise OptionError(option, f"{value!r} is not a whole number.", f"Write a number of {row.unit}.")


def check_refusal(option: str, value: str, refusal: Refusal | None) -> None:
    """Refuse a property that users cannot set; raises :class:`OptionError`."""
    if refusal is not None and value.strip().lower() not in refusal.allowed:
        raise OptionError(option, f"it cannot be set: {refusal.why}", refusal.instead)


def default_drain_timeout(usual_ms: int, properties: Mapping[str, str]) -> int:
    """Return the ``drainTimeoutMs`` of a query that does not set it, in milliseconds.

    ``usual_ms``, or less if the user's ``kafka.max.poll.interval.ms`` leaves less.
    """
    interval_ms = int(value_of("max.poll.interval.ms", properties))
    return max(1, min(usual_ms, interval_ms - min(DRAIN_MARGIN_MS, interval_ms // 3)))


def check_drain_timeout(drain_timeout_ms: int, properties: Mapping[str, str]) -> None:
    """Refuse a ``drainTimeoutMs`` that the group would not wait for; raises :class:`OptionError`."""
    text = value_of("max.poll.interval.ms", properties)
    if drain_timeout_ms >= int(text):
        raise OptionError(
            "drainTimeoutMs",
            f"{drain_timeout_ms} ms is not below kafka.max.poll.interval.ms ({text} ms), after which the group throws "
            f"the member out.",
            "Lower drainTimeoutMs or raise kafka.max.poll.interval.ms.",
        )
