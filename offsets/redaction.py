"""Keeps secrets out of texts: of errors, of the log, of events."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(r"pass(word|phrase)|secret|token|\.pem$|jaas|oauthbearer\.config", re.IGNORECASE)

_REDACTED = "[redacted]"


def is_secret(key: str) -> bool:
    """Tell whether the value of the property ``key`` must never be shown."""
    return _SECRET.search(key) is not None


def redact(text: str, properties: Mapping[str, str]) -> str:
    """Return ``text`` without the values of secret properties."""
    for key, value in properties.items():
        if is_secret(key) and len(value) > 1:
            text = text.replace(value, _REDACTED)
    return text
