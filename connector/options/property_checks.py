"""Refuses ``kafka.*`` properties, and values of them, that would break the guarantees of the source.

The table is in `cluster/properties/kafka_properties.py`.  Other properties go to librdkafka unchanged.  It refuses
unknown ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_kafka_group.cluster.properties.client_config import servers_of, value_of
from pyspark_kafka_group.cluster.properties.cloud_logins import PROVIDER
from pyspark_kafka_group.cluster.properties.java_login import JAAS
from pyspark_kafka_group.cluster.properties.java_security import as_librdkafka
from pyspark_kafka_group.cluster.properties.kafka_properties import DECIDING, PROPERTIES, KafkaProperty, Refusal, row_of
from pyspark_kafka_group.cluster.properties.permissions import check_properties as check_permissions
from pyspark_kafka_group.cluster.properties.secret_references import check_references, refers, with_words
from pyspark_kafka_group.offsets.errors import OptionError

# By default, a hand-over is this much shorter than kafka.max.poll.interval.ms.  The group measures from its own
# request.  The member learns of it with a heartbeat, every 3 s by default, and its answer takes a request.  For a short
# interval the margin is a third of it, so that most of the time remains for the batch.
DRAIN_MARGIN_MS = 10_000


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties that would break the guarantees of the source.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.

    Raises
    ------
    OptionError
        If a property is refused.  The error names it, the reason and the remedy.
    """
    check_security(properties, decided=DECIDING)
    for row in PROPERTIES:
        if row.key in properties:
            _check(row.key, row, properties[row.key])
            if row.another_name_of:
                _check(row.key, row_of(row.another_name_of), properties[row.key])
    if "group.instance.id" in properties and not properties["group.instance.id"].strip():
        # librdkafka would join as a dynamic member, and this source takes each value for a static one.
        raise OptionError(
            "kafka.group.instance.id",
            "it is blank.",
            "Write a name of this query, which no other member of the group has. Or remove it, for a member whose "
            "partitions move when it restarts.",
        )
    if value_of("group.protocol", properties) == "consumer":
        for row in PROPERTIES:
            if row.classic_only and row.key in properties:
                raise OptionError(
                    f"kafka.{row.key}",
                    "the broker decides this under kafka.group.protocol=consumer.",
                    "Remove it, or use kafka.group.protocol=classic.",
                )


def check_security(properties: Mapping[str, str], *, decided: Collection[str]) -> None:
    """Refuse properties that librdkafka does not support, or whose use the owner of this process does not allow.

    Do not resolve references.  The process that opens connections checks again.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.
    decided : collection of str
        The properties that cannot be references.

    Raises
    ------
    OptionError
        If a property is refused.  The error names it, the reason and the remedy.
    """
    check_references(properties, decided=decided)
    written = {key: value for key, value in properties.items() if not refers(value)}
    if "bootstrap.servers" in written:
        servers_of(written["bootstrap.servers"])
    check_permissions(written)
    # Deliberate: check the token source here only if no reference can decide about it.  Otherwise the process that
    # opens connections checks it.
    if not any(_may_decide(key, value) for key, value in properties.items() if refers(value)):
        _check_token_source(as_librdkafka({key: with_words(value) for key, value in properties.items()}))


def _check_token_source(properties: Mapping[str, str]) -> None:
    """Refuse OAUTHBEARER without a source of tokens: librdkafka would wait for a callback for ever."""
    mechanism = properties.get("sasl.mechanism", "")
    protocol = properties.get("security.protocol", "").strip().lower()
    if mechanism.strip().upper() != "OAUTHBEARER" or not protocol.startswith("sasl"):
        return
    oidc = properties.get("sasl.oauthbearer.method", "").strip().lower() == "oidc"
    if (
        not oidc
        and PROVIDER not in properties
        and properties.get("enable.sasl.oauthbearer.unsecure.jwt", "").strip().lower() != "true"
    ):
        raise OptionError(
            "kafka.sasl.oauthbearer.method",
            "it is not oidc, and no token provider is named, so librdkafka would wait for tokens for ever.",
            "Write oidc, with kafka.sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url. Or name a "
            f"token provider with kafka.{PROVIDER}.",
        )


def _may_decide(key: str, value: str) -> bool:
    if key == JAAS:
        return value.lstrip().startswith("${")  # otherwise the class is known
    return key.startswith(("sasl.", "ssl.", "security.", "config."))


def _check(key: str, row: KafkaProperty, value: str) -> None:
    option = f"kafka.{key}"
    check_refusal(option, value, row.refusal)
    if row.values and value not in row.values:
        raise OptionError(option, f"it cannot be {value!r}.", f"Write {' or '.join(row.values)}.")
    if row.unit:
        remedy = f"Write a number of {row.unit} from {row.least} to {row.most}."
        if not value.strip().isdecimal() or not value.isascii():
            raise OptionError(option, f"{value!r} is not a whole number.", remedy)
        if not row.least <= int(value) <= row.most:
            raise OptionError(option, f"{value.strip()} is out of range.", remedy)


def check_refusal(option: str, value: str, refusal: Refusal | None) -> None:
    """Raise :class:`OptionError` for a property that users cannot set."""
    if refusal is not None and value.strip().lower() not in refusal.allowed:
        raise OptionError(option, f"it cannot be set: {refusal.why}", refusal.instead)


def default_drain_timeout(usual_ms: int, properties: Mapping[str, str]) -> int:
    """Return the default of ``drainTimeoutMs``, in milliseconds.

    It is ``usual_ms``, or less if the user's ``kafka.max.poll.interval.ms`` is short.
    """
    interval_ms = int(value_of("max.poll.interval.ms", properties))
    return max(1, min(usual_ms, interval_ms - min(DRAIN_MARGIN_MS, interval_ms // 3)))


def check_drain_timeout(drain_timeout_ms: int, properties: Mapping[str, str]) -> None:
    """Raise :class:`OptionError` if the group would not wait for this ``drainTimeoutMs``."""
    text = value_of("max.poll.interval.ms", properties)
    if drain_timeout_ms >= int(text):
        raise OptionError(
            "drainTimeoutMs",
            f"{drain_timeout_ms} ms is not below kafka.max.poll.interval.ms ({text} ms), after which the group removes "
            f"the member.",
            "Lower drainTimeoutMs or raise kafka.max.poll.interval.ms.",
        )
