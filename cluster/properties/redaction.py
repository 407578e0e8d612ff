"""Keeps secrets out of the texts of errors, log lines and events."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark_kafka_group.wire.login.token_cache import recent_tokens

_SECRET = re.compile(
    r"pass(word|phrase)|secret|token|\.pem$|keystore\.key$|jaas|oauthbearer\.config|user\.info", re.IGNORECASE
)

_REDACTED = "[redacted]"

_known: frozenset[str] = frozenset()
"""The secrets of this process that no property of the user contains literally.  Replaced as a whole, never
changed.
"""


def is_secret(key: str) -> bool:
    """Return whether the value of the property ``key`` must never be shown."""
    return _SECRET.search(key) is not None


def redact(text: str, properties: Mapping[str, str]) -> str:
    """Return ``text`` without the values of secret properties, the secrets from :func:`keep_secret`, and tokens."""
    given = {value for key, value in properties.items() if is_secret(key)}
    for value in sorted(
        given | _known | recent_tokens(), key=len, reverse=True
    ):  # a secret that is a part of another one comes later
        if len(value) > 1:
            text = text.replace(value, _REDACTED)
    return text


def keep_secret(properties: Mapping[str, str]) -> None:
    """Remember the values of secret properties, so that no text of this process shows them from now on.

    For secrets that were read from a file or cut out of another value: no property that :func:`redact` gets contains
    them.
    """
    global _known  # noqa: PLW0603
    found = {value for key, value in properties.items() if is_secret(key)}
    if not found <= _known:
        _known |= found
