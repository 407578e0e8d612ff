"""The tokens of this process: one for each source of tokens, renewed in time, and known so that no text shows them."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, cast

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import ProtocolError

_log = logging.getLogger(__name__)

PROVIDER = "sasl.oauthbearer.provider"
"""The property that names a token provider."""

PROVIDER_CONFIG = "sasl.oauthbearer.config"
"""The text that a token provider gets."""

SHARE = 0.8
"""How much of its lifetime a token is used, as in librdkafka and Java's client."""

TIMEOUT_S = 10.0
"""How long a token may take, unless connecting as a whole has less time."""

RETRY_S = 10.0
"""How long after a failed renewal to ask again, at the most.  The current token is used meanwhile."""

failing: dict[str, str] = {}
"""Texts of failures of token providers since the last success, by the name of the provider."""

_recent: deque[str] = deque(maxlen=16)


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and the deadline for its use in logins.

    Attributes
    ----------
    text : str
        The token.
    good_until : Deadline
        When to ask for another one.
    ends : Deadline
        When brokers no longer accept it.
    expires_at : float
        The same in seconds since 1970.  It is 0 if unknown.
    principal : str
        Whose token it is, for librdkafka's log.  Mostly empty.
    extensions : tuple of (str, str)
        Extensions for the broker (KIP-342).
    """

    text: str = field(repr=False)
    good_until: Deadline
    ends: Deadline
    expires_at: float = 0.0
    principal: str = ""
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class TokenSource(Protocol):
    """Issues tokens."""

    def fetch(self, deadline: Deadline) -> Token:
        """Return a new token.

        Raises
        ------
        OSError
            If another attempt may succeed.
        ProtocolError
            If there will be no token.
        """


class Tokens:
    """The current token of a source, renewed in time.  Any thread may use it."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._try_at = Deadline.after(-math.inf)

    def current(self, deadline: Deadline) -> Token:
        """Return the token; raise the errors of :meth:`TokenSource.fetch`.

        While a renewal fails, return the current token until it ends.
        """
        if not self._lock.acquire(timeout=min(deadline.left_s, TIMEOUT_S)):
            raise TimeoutError("no token yet: its source does not answer")
        try:
            token = self._token
            if token is None or (token.good_until.passed and (token.ends.passed or self._try_at.passed)):
                token = self._token = self._renewed(token, deadline)
            return token
        finally:
            self._lock.release()

    def _renewed(self, old: Token | None, deadline: Deadline) -> Token:
        try:
            token = self._source.fetch(deadline)
        except (OSError, ProtocolError) as problem:
            if old is None or old.ends.passed:
                raise
            self._try_at = Deadline.after(min(RETRY_S, old.ends.left_s / 4))
            _log.warning("The token was not renewed, but is valid for another %.0f s. %s", old.ends.left_s, problem)
            return old
        _recent.append(token.text)
        return token

    def forget(self, refused: str) -> None:
        """Request another token next time, because a broker has refused this one."""
        with self._lock:
            if self._token is not None and self._token.text == refused:
                self._token = None


def tokens_of(source: TokenSource) -> Tokens:
    """Return the tokens of a source, the same for all clients of this process."""
    # Deliberate: by process.  A lock that was inherited through a fork may be held for ever.
    return _tokens_of(os.getpid(), cast(Hashable, source))


@lru_cache(maxsize=8)
def _tokens_of(_: int, source: Hashable) -> Tokens:
    return Tokens(cast(TokenSource, source))


def recent_tokens() -> frozenset[str]:
    """Return the tokens that this process has used lately.  No text may show them."""
    return frozenset(_recent)


def failure(config: Mapping[str, str]) -> str:
    """Return why the provider that properties name fails now; empty if it does not.

    Before their translation, properties that log in with tokens name no provider.  Then any provider of this process
    may be the one.
    """
    if PROVIDER in config:
        return failing.get(config[PROVIDER].strip(), "")
    mechanisms = {config.get("sasl.mechanism"), config.get("sasl.mechanisms")}
    return "" if mechanisms.isdisjoint({"OAUTHBEARER", "AWS_MSK_IAM"}) else " ".join(failing.values())
