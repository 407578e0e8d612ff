"""The secrets that this process has read.  No text may show them.

They are here, below everything that opens connections, so that each text can leave them out where it arises.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from pyspark_kafka_group.wire.login.token_cache import recent_tokens

_REDACTED = "[redacted]"

_HEAD = 64
"""How much of a value shows that it is this one.  The texts of librdkafka end after 512 characters (2.16)."""

# Replaced as a whole, never changed: other threads may read them.
_secrets: frozenset[str] = frozenset()
_read: frozenset[str] = frozenset()


def keep(secrets: Iterable[str]) -> None:
    """Remember secrets, wherever a text has them, also within a word."""
    global _secrets  # noqa: PLW0603
    _secrets |= {secret for secret in secrets if len(secret) > 1}


def keep_read(values: Iterable[str]) -> None:
    """Remember values that only the owner of this process may know, such as those behind references.

    Such a value may also be an ordinary word, for example ``kafka`` or ``ssl``.  So texts lose it only as a whole word,
    but in each form in which an error may show a value.  Of a list, an error may show one part.
    """
    global _read  # noqa: PLW0603
    parts = {part.strip() for value in values for part in (value, *value.split(","))}
    _read |= {part for part in parts if len(part) > 1}


def without_secrets(text: str, more: Collection[str] = ()) -> str:
    """Return a text without the secrets of this process, and without more of them."""
    # A secret that is a part of another one comes later.
    for secret in sorted({*more, *_secrets, *recent_tokens()}, key=len, reverse=True):
        if len(secret) > 1:
            text = text.replace(secret, _REDACTED)
    for value in sorted(_read, key=len, reverse=True):
        text = _pattern(value).sub(_REDACTED, text)
    return text


@lru_cache(maxsize=64)
def _pattern(value: str) -> re.Pattern[str]:
    """Match a value as a whole: in any case, on one line, with the escapes of ``repr``, or cut off with the text."""
    forms = {value, " ".join(value.split()), repr(value)[1:-1]}
    if "://" in value:
        forms.add(re.split("[?#]", value)[0])  # as errors show a URL
    before = r"(?<![\w.-])" if value[0].isalnum() else ""
    after = r"(?![\w-]|\.\w)" if value[-1].isalnum() else ""
    whole = [f"{re.escape(form)}{after}" for form in sorted(forms, key=len, reverse=True)]
    cut = [f"{re.escape(form[:_HEAD])}.*" for form in forms if len(form) > _HEAD]
    return re.compile(f"{before}(?:{'|'.join((*whole, *cut))})", re.IGNORECASE | re.DOTALL)
