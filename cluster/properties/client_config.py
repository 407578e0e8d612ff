"""From the user's ``kafka.*`` properties to the configuration of each client, and of the source's own connections.

The parsers of options check the properties here, and keep them as the user wrote them, with their references.  The
process that opens a client resolves and translates them, and picks what this client gets.  `kafka_properties` is the
table.  This module opens no connections, but reads references.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pyspark_kafka_group.cluster.properties import permissions
from pyspark_kafka_group.cluster.properties.java_security import as_librdkafka
from pyspark_kafka_group.cluster.properties.kafka_properties import (
    CLASSIC_ONLY,
    DECIDING,
    DEFAULTS,
    FORCED,
    JAAS,
    PROPERTIES,
    ClientKind,
    KafkaProperty,
    OwnConnections,
    Refusal,
    default_of,
    row_of,
)
from pyspark_kafka_group.cluster.properties.redaction import keep_read, keep_secret, option_errors_without_secrets
from pyspark_kafka_group.cluster.properties.secret_references import check_references, refers, resolved, with_words
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.wire.login.properties import security_of
from pyspark_kafka_group.wire.login.token_cache import PROVIDER
from pyspark_kafka_group.wire.name_lookup import addresses, server_list
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.types import Address, PropertyError

Properties = Mapping[str, str]

_DIGITS = 20
"""The most digits of a number.  Python refuses to read some thousand."""

_SENT = ("client.id", "client.rack", "group.id", "group.instance.id")
_LONGEST = 30_000
"""The most bytes of a name that requests carry.  Kafka allows 32,767, and some names of this source get an ending."""


class Reach(NamedTuple):
    """The servers to begin with, and the security of connections."""

    servers: list[Address]
    security: Security


def check_properties(properties: Properties) -> None:
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
            _check(row.key, row_of(row.key), properties[row.key])
    for key in _SENT:
        if len(properties.get(key, "").encode()) > _LONGEST:
            raise OptionError(f"kafka.{key}", f"it has more than {_LONGEST} bytes.", "Write a shorter name.")
    if "group.instance.id" in properties and not properties["group.instance.id"].strip():
        # librdkafka would join as a dynamic member, and this source takes each value for a static one.
        raise OptionError(
            "kafka.group.instance.id",
            "it is blank.",
            "Write a name of this query, which no other member of the group has. Or remove it, for a member whose "
            "partitions move when it restarts.",
        )
    for row in PROPERTIES:
        if row.classic_only and row.key in properties and value_of("group.protocol", properties) == "consumer":
            raise OptionError(
                f"kafka.{row.key}",
                "the broker decides this under kafka.group.protocol=consumer.",
                "Remove it, or use kafka.group.protocol=classic.",
            )


def _check(key: str, row: KafkaProperty, value: str) -> None:
    option = f"kafka.{key}"
    check_refusal(option, value, row.refusal)
    if row.values and value not in row.values:
        raise OptionError(option, f"it cannot be {value!r}.", f"Write {' or '.join(row.values)}.")
    if row.unit:
        remedy = f"Write a number of {row.unit} from {row.least} to {row.most}."
        if not value.strip().isdecimal() or not value.isascii():
            raise OptionError(option, f"{value!r} is not a whole number.", remedy)
        if len(value.strip()) > _DIGITS or not row.least <= int(value) <= row.most:
            raise OptionError(option, f"{value.strip()[:_DIGITS]} is out of range.", remedy)


def check_refusal(option: str, value: str, refusal: Refusal | None) -> None:
    """Raise :class:`OptionError` for a property that users cannot set."""
    if refusal is not None and value.strip().lower() not in refusal.allowed:
        raise OptionError(option, f"it cannot be set: {refusal.why}", refusal.instead)


def check_security(properties: Properties, *, decided: Collection[str]) -> None:
    """Refuse properties that librdkafka does not support, or whose use the owner of this process does not allow.

    Do not resolve references.  The process that opens connections checks again, in `connecting`.

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
        _servers(written["bootstrap.servers"])
    permissions.check_properties(written)
    # Deliberate: check the token source here only if no reference can decide about it.  Otherwise the process that
    # opens connections checks it.
    if not any(_may_decide(key, value) for key, value in properties.items() if refers(value)):
        _check_token_source(as_librdkafka({key: with_words(value) for key, value in properties.items()}))


def _may_decide(key: str, value: str) -> bool:
    if key == JAAS:
        return value.lstrip().startswith("${")  # otherwise the class is known
    return key.startswith(("sasl.", "ssl.", "security.", "config."))


def _check_token_source(properties: Properties) -> None:
    """Refuse OAUTHBEARER without a source of tokens: librdkafka would wait for a callback for ever."""
    given = {key: value.strip().lower() for key, value in properties.items()}
    if given.get("sasl.mechanism") != "oauthbearer" or not given.get("security.protocol", "").startswith("sasl"):
        return
    oidc = given.get("sasl.oauthbearer.method") == "oidc"
    if not oidc and PROVIDER not in given and given.get("enable.sasl.oauthbearer.unsecure.jwt") != "true":
        raise OptionError(
            "kafka.sasl.oauthbearer.method",
            "it is not oidc, and no token provider is named, so librdkafka would wait for tokens for ever.",
            "Write oidc, with kafka.sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url. Or name a "
            f"token provider with kafka.{PROVIDER}.",
        )


def client_properties(client: ClientKind, properties: Properties) -> dict[str, Any]:
    """Return the configuration of a client: the user's properties, the defaults, and what users cannot change.

    Parameters
    ----------
    client : ClientKind
        The kind of client.
    properties : mapping
        The user's ``kafka.*`` properties, without the prefix.
    """
    classic = value_of("group.protocol", properties) == "classic"
    forced = {key: value for key, value in FORCED[client].items() if classic or key not in CLASSIC_ONLY}
    users = {key: value for key, value in connecting(properties).items() if client in row_of(key).applies_to}
    return {**DEFAULTS[client], **users, **forced}


@option_errors_without_secrets()
def connecting(properties: Properties) -> dict[str, str]:
    """Return the user's properties in a client's form: with values for references, and with librdkafka's names.

    Only for the process that opens connections.  Do not keep or send the result: it contains the secrets behind
    references.  From now on, texts do not show them.

    Raises
    ------
    OptionError
        If a reference has no value here, the owner of this process does not allow what a property does, or only Java's
        client supports it.
    """
    translated = as_librdkafka(resolved(properties))
    keep_secret({key: value for key, value in translated.items() if properties.get(key) != value})
    if "bootstrap.servers" in translated:
        servers = translated["bootstrap.servers"]
        was_read = servers not in properties.values()
        if was_read:
            keep_read(servers.split())
        found = _servers(servers)
        if was_read:
            keep_read(host for host, _ in found)
        translated["bootstrap.servers"] = server_list(found)
    permissions.check_properties(translated)
    return translated


@option_errors_without_secrets()
def reach(properties: Properties) -> Reach:
    """Return how to connect.

    Parameters
    ----------
    properties : mapping
        The result of `connecting`, or the configuration of a client.

    Raises
    ------
    OptionError
        If the source's own connections do not support a property.
    """
    for key in sorted(properties):
        row = row_of(key)
        if row.refusal is not None and row.own_connections is OwnConnections.NOT_SUPPORTED:
            raise OptionError(f"kafka.{key}", row.refusal.why, row.refusal.instead)
    try:
        security = security_of(properties)
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None
    return Reach(_servers(properties.get("bootstrap.servers", "")), security)


def _servers(text: str) -> list[Address]:
    """Return the addresses of ``bootstrap.servers``; raise if it names no server, or one of them is invalid."""
    try:
        return addresses(text)
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None


def value_of(key: str, properties: Properties) -> str:
    """Return the value of a property: the user's, or the default."""
    return properties[key] if key in properties else default_of(key)


def session_timeout_ms(properties: Properties) -> int:
    """Return the session timeout of a member.  librdkafka refuses one above ``max.poll.interval.ms``."""
    found = int(value_of("session.timeout.ms", properties))
    if "session.timeout.ms" in properties or value_of("group.protocol", properties) != "classic":
        return found
    return min(found, int(value_of("max.poll.interval.ms", properties)))
