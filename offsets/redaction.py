"""Keeps secrets out of texts: of errors, of the log, of events."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"pass(word|phrase)|secret|token|\.pem$|keystore\.key$|jaas|oauthbearer\.config|user\.info", re.IGNORECASE
)

_REDACTED = "[redacted]"

_known: frozenset[str] = frozenset()
"""Secrets that no property of the user shows as they are; of this process.  Replaced as a whole, never changed."""


def is_secret(key: str) -> bool:
    """Return whether the value of the property ``key`` must never be shown."""
    return _SECRET.search(key) is not None


def redact(text: str, properties: Mapping[str, str]) -> str:
    """Return ``text`` without the values of secret properties, and without what :func:`keep_secret` was given."""
    given = {value for key, value in properties.items() if is_secret(key)}
    for value in sorted(given | _known, key=len, reverse=True):  # a part of another one comes later
        if len(value) > 1:
            text = text.replace(value, _REDACTED)
    return text


def keep_secret(properties: Mapping[str, str]) -> None:
    """Keep the values of secret properties out of all texts of this process from now on.

    For what was read or taken apart, and so is in no property that :func:`redact` is given.
    """
    global _known  # noqa: PLW0603
    found = {value for key, value in properties.items() if is_secret(key)}
    if not found <= _known:
        _known |= found
