"""From the user's ``kafka.*`` properties to the configuration of each client, and of the source's own connections.

`kafka_properties` says which client gets a property.  This module opens no connections, but reads references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark_kafka_group.cluster.properties.java_security import as_librdkafka
from pyspark_kafka_group.cluster.properties.kafka_properties import (
    CLASSIC_ONLY,
    DEFAULTS,
    FORCED,
    ClientKind,
    OwnConnections,
    applies_to,
    default_of,
    own_connections,
    refusal_of,
)
from pyspark_kafka_group.cluster.properties.permissions import check_properties as check_permissions
from pyspark_kafka_group.cluster.properties.redaction import keep_secret, redact
from pyspark_kafka_group.cluster.properties.secret_references import resolved
from pyspark_kafka_group.offsets.errors import KafkaGroupError, OptionError
from pyspark_kafka_group.wire.login.properties import security_of
from pyspark_kafka_group.wire.name_lookup import addresses, server_list
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.types import Address, PropertyError

Properties = Mapping[str, str]


class Reach(NamedTuple):
    """The servers to begin with, and the security of connections."""

    servers: list[Address]
    security: Security


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
    return {**DEFAULTS[client], **_reaching(client, properties), **forced}


def connection_properties(properties: Properties) -> dict[str, Any]:
    """Return the properties that concern the connection, for a client that only connects."""
    return {**DEFAULTS[ClientKind.ADMIN], **_reaching(ClientKind.ADMIN, properties)}


def _reaching(client: ClientKind, properties: Properties) -> dict[str, str]:
    return {key: value for key, value in connecting(properties).items() if client in applies_to(key)}


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
    read = resolved(properties)
    keep_secret({key: value for key, value in read.items() if value != properties[key]})
    translated = as_librdkafka(read)
    keep_secret({key: value for key, value in translated.items() if properties.get(key) != value})
    if "bootstrap.servers" in translated:
        translated["bootstrap.servers"] = servers_of(translated["bootstrap.servers"])
    check_permissions(translated)
    return translated


def servers_of(text: str) -> str:
    """Return ``bootstrap.servers`` in the form that every client accepts.

    Raises
    ------
    OptionError
        If it names no server, or one of them is invalid.
    """
    try:
        return server_list(addresses(text))
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None


def reach(config: Mapping[str, str]) -> Reach:
    """Return how to connect.

    Parameters
    ----------
    config : mapping
        Properties with librdkafka's names.

    Raises
    ------
    OptionError
        If the source's own connections do not support a property.
    """
    for key in sorted(config):
        refusal = refusal_of(key)
        if refusal is not None and own_connections(key) is OwnConnections.NOT_SUPPORTED:
            raise OptionError(f"kafka.{key}", refusal.why, refusal.instead)
    try:
        security = security_of(config)
        return Reach(addresses(config.get("bootstrap.servers", "")), security)
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None


def value_of(key: str, properties: Properties) -> str:
    """Return the value of a property: the user's, or the default."""
    return properties[key] if key in properties else default_of(key)


def client_error(problem: Exception, properties: Properties) -> KafkaGroupError:
    """Explain why a client could not be created: librdkafka refuses a property.

    Parameters
    ----------
    problem : Exception
        What the constructor of a confluent_kafka client raised.
    properties : mapping
        The user's properties, for naming the one at fault and for redaction.
    """
    text = redact(str(problem), properties)
    if "No provider for SASL mechanism" in text:
        return OptionError(
            "kafka.sasl.mechanism",
            f"the Kafka client refuses it: {text}",
            "The wheels of confluent-kafka are built without Kerberos (GSSAPI, the default of kafka.sasl.mechanism). "
            "Build it on a librdkafka with Cyrus SASL, as docs/kerberos.md says, for the driver and the executors, or "
            "use another mechanism.",
        )
    named = [key for key in properties if key in str(problem)]
    option = f"kafka.{max(named, key=len)}" if named else "kafka.*"
    return OptionError(
        option,
        f"the Kafka client refuses it: {text}",
        "See librdkafka's CONFIGURATION.md for its properties and their values.",
    )
