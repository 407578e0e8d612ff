"""Opens clients of librdkafka: with tokens, and with a log without secrets and without repetition.

Clients get the same tokens as our own connections, from the provider that a property names.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pyspark_kafka_group.cluster.properties.kafka_properties import PROPERTIES, ClientKind
from pyspark_kafka_group.cluster.properties.redaction import option_errors_without_secrets, redact
from pyspark_kafka_group.offsets.errors import AuthenticationError, OptionError
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.token_cache import PROVIDER, PROVIDER_CONFIG, Tokens, failure, tokens_of
from pyspark_kafka_group.wire.types import PropertyError, StoppedLoginError

Client = TypeVar("Client")

_NEAR = 0.85
"""Similarity from which a property is a mistyped one.  Many names differ in one word only."""

QUIET_S = 10.0
"""How long after a warning or error the log only counts others of the same facility, in seconds.

librdkafka 2.16 tries an unreachable broker 20 times a second and writes an error line each time.  This is short enough
to show that the trouble lasts, and long enough that the log of a task which waits two minutes fits on one screen.
"""

_PATIENCE_S = 30.0
_RETRY_S = 1.0  # the cache decides when to ask the provider again

# What confluent-kafka reports instead of the exception (2.16).
_HIDDEN = "OAuth callback raised exception"

_LOGIN = re.compile(r"authentication|SASL", re.IGNORECASE)


def create_client(
    kind: Callable[[dict[str, Any]], Client], config: Mapping[str, Any], properties: Mapping[str, str]
) -> Client:
    """Return a new client of confluent-kafka, with the tokens that it needs.

    Parameters
    ----------
    kind : type
        ``Consumer`` or ``Producer``.
    config : mapping
        The configuration, with callbacks.
    properties : mapping of str to str
        The user's properties, for naming the one at fault and for redaction.

    Raises
    ------
    AuthenticationError
        If the token provider fails.
    OptionError
        If librdkafka refuses a property, or this process cannot import the token provider.
    """
    from confluent_kafka import KafkaException

    try:
        return kind(with_tokens(config))
    except (KafkaException, ValueError, TypeError) as problem:
        raise _refused(problem, config, properties) from None


def _refused(problem: Exception, config: Mapping[str, Any], properties: Mapping[str, str]) -> OptionError:
    """Explain why a client could not be created: librdkafka refuses a property."""
    cause = problem.args[0] if problem.args else problem
    text = cause.str() if hasattr(cause, "str") else str(problem)  # a KafkaError has more than its sentence
    named = [key for key in properties if key in text]
    option = f"kafka.{max(named, key=len)}" if named else "kafka.*"
    remedy = "See librdkafka's CONFIGURATION.md for its properties and their values."
    if named and "No such configuration property" in text:
        import difflib  # only here: each process of Spark imports this module

        is_consumer = "group.id" in config
        names = [row.key for row in PROPERTIES if is_consumer or ClientKind.PRODUCER in row.applies_to]
        near = difflib.get_close_matches(max(named, key=len), names, n=1, cutoff=_NEAR)
        remedy = f"Did you mean 'kafka.{near[0]}'?" if near else remedy
    if "No provider for SASL mechanism" in text:
        option = "kafka.sasl.mechanism"
        remedy = (
            "The wheels of confluent-kafka are built without Kerberos (GSSAPI, the default of kafka.sasl.mechanism). "
            "Build it on a librdkafka with Cyrus SASL, as docs/kerberos.md says, for the driver and the executors, or "
            "use another mechanism."
        )
    return OptionError(option, f"the Kafka client refuses it: {redact(text, properties).rstrip('.')}.", remedy)


@option_errors_without_secrets()
def with_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a confluent-kafka client, with a callback in place of a token provider.

    Raises
    ------
    AuthenticationError
        If the provider fails.  confluent-kafka would hide the cause.
    OptionError
        If this process cannot import the provider.
    """
    found = _tokens_for(config)
    if found is None:
        return dict(config)
    known = {key: value for key, value in config.items() if key not in (PROVIDER, PROVIDER_CONFIG)}
    return {**known, "oauth_cb": partial(_answer, found)}


def _tokens_for(config: Mapping[str, Any]) -> Tokens | None:
    """Return the tokens of the provider in a configuration, after a first one; None without a provider."""
    if PROVIDER not in config:
        return None
    # Deliberate: not at the top.  Only logins with tokens need it.
    from pyspark_kafka_group.wire.login.token_providers import token_provider

    try:
        found = tokens_of(token_provider(config))
        with suppress(OSError):  # the client asks again
            found.current(Deadline.after(_PATIENCE_S))
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None
    except StoppedLoginError as problem:
        raise AuthenticationError(str(problem)) from None
    return found


def needs_renewals(config: Mapping[str, Any]) -> bool:
    """Return whether a client logs in again with new tokens."""
    return PROVIDER in config


def _answer(tokens: Tokens, _: str) -> tuple[str, float, str, dict[str, str]]:
    token = tokens.current(Deadline.after(_PATIENCE_S))
    return token.text, token.expires_at, token.principal, dict(token.extensions)


def client_text(text: str, properties: Mapping[str, str]) -> str:
    """Return a text of librdkafka without secrets.  If it is about a login, add why a token provider fails."""
    cause = failure(properties)
    if cause and _HIDDEN in text:
        text = text.replace(_HIDDEN, cause)
    elif cause and _LOGIN.search(text):
        text = f"{text}. {cause}"
    return redact(text, properties)


class ClientLog:
    """The ``logger`` of a confluent-kafka client.  Called by the thread that polls the client.

    Parameters
    ----------
    logger
        Takes the lines.
    properties
        The client's configuration.  Its secret values are not shown.
    """

    def __init__(self, logger: logging.Logger, properties: Mapping[str, str]) -> None:
        self._logger = logger
        self._properties = properties
        self._quiet_until: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def log(self, level: int, template: str, facility: str, client_name: str, text: str) -> None:
        """Pass on one line of librdkafka, or count it."""
        if level >= logging.WARNING:
            now = time.monotonic()
            if now < self._quiet_until.get(facility, now):
                self._suppressed[facility] += 1
                return
            self._quiet_until[facility] = now + QUIET_S
            suppressed = self._suppressed.pop(facility, 0)
            if suppressed:
                text = f"{text} [and {suppressed} like it before]"
        self._logger.log(level, template, facility, client_name, client_text(text, self._properties))
