"""How the clients of the source process are configured, and what their errors mean.

One place turns the user's ``kafka.*`` properties into configurations, keeps secrets out of texts, and maps
Kafka's error codes to what is to be done.  Nothing here connects to anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    KafkaGroupError,
    MemberFencedError,
    OptionError,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Properties = Mapping[str, str]

# What any client needs to reach the cluster.  Passing consumer properties to a producer only makes it warn.
_CONNECTION = re.compile(
    r"bootstrap\.servers|metadata\.broker\.list|client\.(rack|dns\.lookup)|security\.protocol|debug|"
    r"(sasl|ssl|socket|broker|reconnect|connections|api\.version|metadata|topic\.metadata|https|"
    r"retry\.backoff|enable\.(sasl|ssl)|test\.mock|allow\.auto)\..*"
)

CLIENT_DEFAULTS = {
    # A new client waits half of this before it can use its first connection (librdkafka 2.16, `rd_kafka_connect_any`),
    # and a query starts three, one after the other.  With librdkafka's 100 each costs 55 ms, with this 17.  After
    # failures the pause doubles each time, up to reconnect.backoff.max.ms, as ever.
    "reconnect.backoff.ms": "20",
}
"""For all clients; what the user sets counts more."""

_SECRET = re.compile(r"pass(word|phrase)|secret|token|\.pem$|jaas|oauthbearer\.config", re.IGNORECASE)

REDACTED = "[redacted]"

_KAFKAS_BASE64 = str.maketrans("+/", "-_")


def connection_properties(properties: Properties) -> dict[str, Any]:
    """Return the properties that concern the connection, for a client that is not a group member."""
    return {**CLIENT_DEFAULTS, **{key: value for key, value in properties.items() if _CONNECTION.fullmatch(key)}}


def is_secret(key: str) -> bool:
    """Tell whether the value of the property ``key`` must never be shown."""
    return _SECRET.search(key) is not None


def redact(text: str, properties: Properties) -> str:
    """Return ``text`` without the values of secret properties."""
    for key, value in properties.items():
        if is_secret(key) and len(value) > 1:
            text = text.replace(value, REDACTED)
    return text


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
    named = [key for key in properties if key in str(problem)]
    option = f"kafka.{max(named, key=len)}" if named else "kafka.*"
    return OptionError(
        option,
        f"the Kafka client refuses it: {text}",
        "See librdkafka's CONFIGURATION.md for its properties and their values.",
    )


def topic_id_text(topic_id: object) -> str | None:
    """Return a topic id of librdkafka's as Kafka prints it, and as our own requests return it; None if it is none.

    librdkafka 2.16 prints base64 with ``+`` and ``/``, Kafka with ``-`` and ``_``: taken as they are, every second id
    would look like that of another topic.

    Parameters
    ----------
    topic_id : confluent_kafka.Uuid
        What an admin client has returned, or its text.
    """
    text = str(topic_id)
    # A broker without topic ids gives zero, which is all A in base64.
    return None if topic_id is None or not text.strip("A") else text.translate(_KAFKAS_BASE64)


class TryAgainError(Exception):
    """The cluster could not answer just now."""


class Remedy(Enum):
    """What to do about an error of the group or of a commit."""

    RETRY = "retry"  # passes by itself, or the group thread gets to know why not
    FAIL = "fail"  # no retry cures it: end the query with an explained error


# By name, so that this module needs no confluent_kafka.  Everything else is retried.
_FATAL_CODES = {
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "_AUTHENTICATION",
    "INVALID_GROUP_ID",
    "GROUP_MAX_SIZE_REACHED",
    "INCONSISTENT_GROUP_PROTOCOL",
    "UNSUPPORTED_VERSION",
    "_UNSUPPORTED_FEATURE",
    "UNSUPPORTED_ASSIGNOR",
    "INVALID_TRANSACTION_TIMEOUT",
    "FENCED_INSTANCE_ID",
    "UNRELEASED_INSTANCE_ID",
    "OFFSET_METADATA_TOO_LARGE",
}


def remedy_for(error: KafkaError) -> Remedy:
    """Return what to do about ``error``; unknown errors are retried, never a reason to end a query.

    Deliberate: whether librdkafka calls the error fatal does not matter here.  That ends a handle, and the
    owner of the handle makes a new one.
    """
    return Remedy.FAIL if error.name() in _FATAL_CODES else Remedy.RETRY


def refusal(name: str, text: str, *, group_id: str, properties: Properties) -> KafkaGroupError | None:
    """Return the error to end the query with, or None if a retry may help; for errors that others than librdkafka tell.

    Parameters
    ----------
    name : str
        Kafka's name of the error.
    text : str
        What was wrong.
    group_id : str
        The group.
    properties : mapping
        The user's properties, for redaction.
    """
    return _explained(name, text, group_id, properties) if name in _FATAL_CODES else None


def explained(error: KafkaError, *, group_id: str, properties: Properties) -> KafkaGroupError:
    """Return the error to end the query with, for an error whose remedy is :attr:`Remedy.FAIL`."""
    return _explained(error.name(), error.str(), group_id, properties)


def _explained(name: str, text: str, group_id: str, properties: Properties) -> KafkaGroupError:
    text = redact(text, properties)
    match name:
        case "_AUTHENTICATION" | "SASL_AUTHENTICATION_FAILED":
            return AuthenticationError(
                f"The cluster refuses the credentials ({text}). Check kafka.security.protocol, "
                f"kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password."
            )
        case "GROUP_AUTHORIZATION_FAILED":
            return AuthenticationError(
                f"The user of this query may not use the group {group_id!r} (option 'kafka.group.id'). Grant "
                f"it READ on that group."
            )
        case "TOPIC_AUTHORIZATION_FAILED":
            return AuthenticationError(
                f"The user of this query may not read a topic of option 'subscribe' ({text}). Grant it READ "
                f"and DESCRIBE on the topic."
            )
        case "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" | "CLUSTER_AUTHORIZATION_FAILED":
            return AuthenticationError(
                f"The user of this query may not commit in a transaction ({text}). Grant it WRITE and DESCRIBE "
                f"on transactional ids that begin with {transactional_id(group_id, '')!r}, or set "
                f"commitMode=plain."
            )
        case "INVALID_TRANSACTION_TIMEOUT":
            return BrokerError(
                f"The cluster does not allow the transactions of this source ({text}): its "
                f"transaction.max.timeout.ms is too low. Raise it, or set commitMode=plain."
            )
        case "FENCED_INSTANCE_ID" | "UNRELEASED_INSTANCE_ID":
            return MemberFencedError(
                f"Another process of group {group_id!r} uses the same kafka.group.instance.id ({text}). Give "
                f"each query an instance id of its own."
            )
        case "INCONSISTENT_GROUP_PROTOCOL" | "UNSUPPORTED_ASSIGNOR":
            return BrokerError(
                f"The group {group_id!r} refuses this member ({text}): its other members use another protocol "
                f"or assignor. Give all members the same kafka.group.protocol, and cooperative-sticky under "
                f"the classic protocol, or choose another kafka.group.id."
            )
        case "UNSUPPORTED_VERSION" | "_UNSUPPORTED_FEATURE":
            return BrokerError(
                f"The cluster does not support what this query asks for ({text}). "
                f"kafka.group.protocol=consumer needs Apache Kafka 4.0 or newer; use classic on older clusters."
            )
        case _:
            return BrokerError(f"Kafka answered with {name}: {text}")


def transactional_id(group_id: str, query_id: str) -> str:
    """Return the transactional id under which a query commits: its own, so that a restart fences the old run."""
    return f"kafka-group-{group_id}-{query_id}"
