"""Keeps secrets out of the texts of errors, log lines and events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.wire.login.known_secrets import keep, keep_read, without_secrets

__all__ = ["is_secret", "keep_read", "keep_secret", "option_errors_without_secrets", "redact"]

_SECRET = re.compile(
    r"pass(word|phrase)|secret|token|\.pem$|keystore\.key$|jaas|oauthbearer\.config|user\.info", re.IGNORECASE
)


def is_secret(key: str) -> bool:
    """Return whether the value of the property ``key`` must never be shown."""
    return _SECRET.search(key) is not None


def redact(text: str, properties: Mapping[str, str]) -> str:
    """Return ``text`` without the values of secret properties, and without the secrets that this process has read."""
    return without_secrets(text, {value for key, value in properties.items() if is_secret(key)})


def keep_secret(properties: Mapping[str, str]) -> None:
    """Remember the values of secret properties, so that no text of this process shows them from now on.

    For secrets that were cut out of another value: no property that :func:`redact` gets contains them.
    """
    keep(value for key, value in properties.items() if is_secret(key))


@contextmanager
def option_errors_without_secrets() -> Iterator[None]:
    """Redact the :class:`OptionError` of the block, which may show a value."""
    try:
        yield
    except OptionError as problem:
        raise OptionError.with_message(redact(problem.message, {}), option=problem.option) from None
