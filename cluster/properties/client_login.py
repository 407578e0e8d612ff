"""Tokens for clients of librdkafka: the one place that passes them on.

Clients get the same tokens as our own connections, from the provider that a property names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.offsets.errors import AuthenticationError, OptionError
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.token_cache import PROVIDER, PROVIDER_CONFIG, Tokens, failure, tokens_of
from pyspark_kafka_group.wire.types import PropertyError, StoppedLoginError

_PATIENCE_S = 30.0
_RETRY_S = 1.0  # the cache decides when to ask the provider again

# What confluent-kafka reports instead of the exception (2.16).
_HIDDEN = "OAuth callback raised exception"

_LOGIN = re.compile(r"authentication|SASL", re.IGNORECASE)


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
