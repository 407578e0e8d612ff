"""The tokens of this process: one for each source of tokens, renewed in time, and known so that no text shows them."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Hashable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, cast

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.threads import in_background
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
        """Return a new token.  Only one call runs at a time.

        Raises
        ------
        OSError
            If another attempt may succeed.
        ProtocolError
            If there will be no token.
        """

    def overdue(self) -> OSError:
        """Return the error for a client that a new token does not reach in time."""


class Tokens:
    """The current token of a source, renewed in time.  Any thread may use it."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._lock = threading.Lock()  # guards the next three; free while the source is asked
        self._token: Token | None = None
        self._renewal: Future[Token] | None = None
        self._try_at = Deadline.after(-math.inf)

    def current(self, deadline: Deadline) -> Token:
        """Return the token; raise the errors of :meth:`TokenSource.fetch`.

        Return the current token until it ends, if its renewal fails or takes long.
        """
        deadline = deadline.within(TIMEOUT_S)
        with self._lock:
            token, renewal = self._token, self._renewal
            if token is not None and token.ends.passed:
                token = None
            if renewal is not None and renewal.done():
                renewal = None
            if token is not None:
                if not token.good_until.passed or renewal is not None or not self._try_at.passed:
                    return token
                deadline = deadline.share(2)  # leaves time for a login with this token
            if renewal is None:
                # Deliberate: a thread.  Looking up a name has no timeout, and neither has a provider.
                renewal = self._renewal = in_background(self._fetch, "kafka-group-token")
        try:
            if not wait([renewal], deadline.left_s).done:
                raise self._source.overdue()
            return renewal.result()
        except (OSError, ProtocolError) as problem:
            if token is None or token.ends.passed:
                raise
            self._try_at = Deadline.after(min(RETRY_S, token.ends.left_s / 4))
            _log.warning("The token was not renewed, but is valid for another %.0f s. %s", token.ends.left_s, problem)
            return token

    def _fetch(self) -> Token:
        token = self._source.fetch(Deadline.after(TIMEOUT_S))
        _recent.append(token.text)
        with self._lock:
            self._token = token
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
