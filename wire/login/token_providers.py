"""Tokens for SASL's OAUTHBEARER from a callable of Python, which a property names.

The callable is one of `cloud_tokens`, or the user's own.  Each process imports it for itself.  Errors contain the
cause, but nothing that looks like a token.
"""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login import cloud_tokens, token_cache
from pyspark_kafka_group.wire.login.known_secrets import without_secrets
from pyspark_kafka_group.wire.login.token_cache import PROVIDER, PROVIDER_CONFIG, SHARE, Token
from pyspark_kafka_group.wire.name_lookup import addresses
from pyspark_kafka_group.wire.types import PropertyError, StoppedLoginError

E = TypeVar("E", bound=Exception)

_FORMS = "msk:REGION, entra:HOST, google, databricks:CREDENTIAL, or my_package.my_module:function"
_READY: Mapping[str, cloud_tokens.Ready] = {
    "msk": cloud_tokens.msk,
    "entra": cloud_tokens.entra,
    "google": cloud_tokens.google,
    "databricks": cloud_tokens.databricks,
}
_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_TOKEN = re.compile(r"[\w.~+/-]+=*", re.ASCII)  # RFC 6750, section 2.1
_NAME = re.compile(r"(?!auth$)[A-Za-z]+")  # RFC 7628, section 3.1
_VALUE = re.compile(r"[\t\r\n -~]*")
_MILLISECONDS = 1e11  # as seconds, a date in the year 5138

_SECRET = re.compile(
    r"""
    \bbearer\s+\S+
    | (?<=//)[^\s/@:]+:[^\s/@]+(?=@)                                              # user:password of an address
    | \beyJ[\w-]{8,}[\w.-]*                                                      # a JSON Web Token
    | (?P<name>(?:secret|token|password|signature|assertion|credential|key)[\w-]*["']?\s*[=:]\s*["']?)[^\s"',;&]{12,}
    | [\w+=.~-]{64,}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MOST_CHARACTERS = 2000

_PART = re.compile(r"[^\s,;={}\[\]\"']{6,}")
"""The parts of a user's ``sasl.oauthbearer.config`` that no text shows."""

_NAMED = re.compile(
    r"(?:secret|token|pass|pwd|signature|assertion|credential|key)[\w-]*[\"']?\s*[=:]\s*[\"']?([^\s\"',;&{}]{2,})",
    re.IGNORECASE,
)
"""The same for short values with the name of a secret."""

# What the user has to correct.  Other errors of the system pass, or may pass.
_FINAL = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)


def _parts(config: str) -> frozenset[str]:
    return frozenset({*_PART.findall(config), *_NAMED.findall(config), config.strip()} - {""})


class NoTokenError(StoppedLoginError):
    """A token provider failed, or returned something else than a token.  The text contains the cause."""


class TokenProvider:
    """Calls a provider.

    Parameters
    ----------
    name : str
        The name in the property, for errors.
    call : callable
        Gets the text of ``sasl.oauthbearer.config``.  Returns a token and the time of its end in seconds since 1970,
        and optionally a principal, and a mapping of extensions.
    config : str
        The text.
    """

    def __init__(self, name: str, call: Callable[[str], Any], config: str) -> None:
        self._name = name
        self._call = call
        self._config = config
        # A user's own text may contain a password, and an exception may quote a part of it.
        known = name.partition(":")[0] in _READY
        self._secrets = frozenset() if known else _parts(config)

    def fetch(self, deadline: Deadline) -> Token:
        """Return a new token.  Nothing stops a provider that takes longer.

        Raises
        ------
        OSError
            If the provider cannot reach a server.
        NoTokenError
            If the provider fails, or returns no token.
        """
        del deadline
        try:
            answer = self._call(self._config)
        except BaseException as problem:  # also what would end the interpreter
            raise self._failure(problem) from None
        token = self._token(answer)
        token_cache.failing.pop(self._name, None)
        return token

    def overdue(self) -> OSError:
        """Return the error for a client that a new token does not reach in time."""
        return self._noted(TimeoutError("does not answer. The source asks again, and waits for the same answer."))

    def _token(self, answer: Any) -> Token:
        if not isinstance(answer, tuple | list) or not 2 <= len(answer) <= 4:
            raise self._wrong(f"returned a {type(answer).__name__} and not (token, expiry)")
        values: list[Any] = [*answer, None, None]
        text, expires_at, principal, extensions = values[:4]
        if not isinstance(text, str) or not _TOKEN.fullmatch(text):
            raise self._wrong("returned a token that cannot be sent: not a text, empty, or with other characters")
        if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
            raise self._wrong(f"returned a {type(expires_at).__name__} as expiry")
        if expires_at > _MILLISECONDS:
            raise self._wrong("returned an expiry in milliseconds")
        life_s = expires_at - time.time()
        if not life_s > 0:
            raise self._wrong("returned a token that has expired. Or the clock of this machine is wrong")
        if not isinstance(principal, str | None):
            raise self._wrong(f"returned a {type(principal).__name__} as principal")
        return Token(
            text,
            Deadline.after(SHARE * life_s),
            Deadline.after(life_s),
            expires_at,
            principal or "",
            tuple(self._extensions(extensions)),
        )

    def _extensions(self, found: Any) -> Iterator[tuple[str, str]]:
        if not isinstance(found, Mapping | None):
            raise self._wrong(f"returned a {type(found).__name__} as extensions")
        for name, value in dict(found or {}).items():
            if not (
                isinstance(name, str) and _NAME.fullmatch(name) and isinstance(value, str) and _VALUE.fullmatch(value)
            ):
                raise self._wrong("returned an extension that cannot be sent (RFC 7628)")
            yield name, value

    def _wrong(self, problem: str) -> Exception:
        return self._noted(
            NoTokenError(f"{problem}. Return (token, expiry in seconds since 1970[, principal[, extensions]]).")
        )

    def _failure(self, problem: BaseException) -> Exception:
        kind: type[Exception] = ConnectionError if any(_may_pass(one) for one in _chain(problem)) else NoTokenError
        text = _text(problem, self._secrets)
        return self._noted(kind(f"failed with {text}. Check the credentials that it uses, in this process."))

    def _noted(self, problem: E) -> E:
        """Return the error with the name of the provider, and remember its text for librdkafka's clients."""
        text = f"Option 'kafka.{PROVIDER}': the token provider {without_secrets(repr(self._name))} {problem}"
        token_cache.failing[self._name] = text
        return type(problem)(text)


def token_provider(config: Mapping[str, str]) -> TokenProvider:
    """Return the provider that properties name, the same for all clients of this process.

    Raises
    ------
    PropertyError
        If this process cannot import it.
    """
    name = config[PROVIDER].strip()
    check_name(name)
    kind = name.partition(":")[0]
    server = ""
    if kind in _READY and config.get("bootstrap.servers"):
        server = addresses(config["bootstrap.servers"])[0].host
    return _provider(os.getpid(), name, config.get(PROVIDER_CONFIG, ""), server)


@lru_cache(maxsize=8)
def _provider(_pid: int, name: str, config: str, server: str) -> TokenProvider:
    kind, _, rest = name.partition(":")
    try:
        call = _READY[kind](rest, config, server) if kind in _READY else _imported(kind, rest)
    except PropertyError as problem:
        raise PropertyError(problem.key, f"{name}: {problem.problem}", problem.remedy) from None
    return TokenProvider(name, call, config)


def check_name(name: str) -> None:
    """Raise :class:`PropertyError` if the text cannot be the name of a provider.  Import nothing."""
    kind, colon, rest = name.partition(":")
    if kind == "google":
        valid = not colon
    elif kind in _READY:
        valid = bool(colon) and (bool(rest) or kind == "msk")
    else:
        valid = _IMPORT_PATH.fullmatch(name) is not None
    if not valid:
        raise PropertyError(PROVIDER, f"{name!r} names no token provider.", f"Write {_FORMS}.")


def _imported(module: str, path: str) -> Callable[[str], Any]:
    try:
        found: Any = importlib.import_module(module)
    except Exception as problem:
        raise PropertyError(
            PROVIDER,
            f"this process cannot import {module}: {_text(problem)}.",
            "Install the module, with what it imports, into the Python of the driver and of each executor. Or give it "
            "to Spark (--py-files, spark.submit.pyFiles).",
        ) from None
    for attribute in path.split("."):
        found = getattr(found, attribute, None)
    if not callable(found):
        problem_text = "is not callable" if found is not None else "does not exist"
        raise PropertyError(
            PROVIDER, f"{path} in {module} {problem_text}.", "Name a function that returns a token and its expiry."
        )
    call: Callable[[str], Any] = found
    return call


def _chain(problem: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = problem
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _may_pass(problem: BaseException) -> bool:
    # Errors of urllib and requests are an OSError also if a server has answered, and refused the request.
    status = getattr(problem, "code", None) or getattr(getattr(problem, "response", None), "status_code", None)
    refused = isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
    return isinstance(problem, OSError) and not isinstance(problem, _FINAL) and not refused


def _text(problem: BaseException, secrets: frozenset[str] = frozenset()) -> str:
    """Return the kind and the text of an error, without what looks like a secret."""
    text = without_secrets(" ".join(str(problem).split()), secrets)
    text = _SECRET.sub(lambda found: f"{found['name'] or ''}[redacted]", text)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}..."
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
