"""Requests to a token endpoint, for SASL's OAUTHBEARER.

A client sends its id and secret (RFC 6749, section 4.4) or an assertion (RFC 7523).  On an Azure machine it sends
neither.  Requests are those of librdkafka, so that one configuration serves both.  Errors never contain a secret or a
token, and nothing from the endpoint except its error code.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.token_cache import SHARE, TIMEOUT_S, Token
from pyspark_kafka_group.wire.types import PropertyError, ProtocolError, RefusedCredentialsError

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPResponse

BY_SECRET = "client_credentials"

_MAX_BYTES = 1 << 20
_TOKEN = re.compile(r"[\w.~+/-]+=*", re.ASCII)  # RFC 6750, section 2.1
_ERROR_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)
_AGAIN = frozenset({408, 429})  # to be retried, like server errors


class EndpointClient(Protocol):
    """The identity of a client."""

    def request(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the form and the headers."""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """Requests a token with a client's id and secret."""

    client_id: str = field(repr=False)
    secret: str = field(repr=False)

    def request(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the form and the headers."""
        login = base64.b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
        return {"grant_type": BY_SECRET}, {"Authorization": f"Basic {login}"}


@dataclass(frozen=True, slots=True)
class AzureMachine:
    """Requests the token of this machine's identity from Azure's metadata service."""

    def request(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return an empty form, because nothing is sent, and the headers."""
        return {}, {"Metadata": "true"}


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A token endpoint.

    Attributes
    ----------
    url : str
        The URL, with the scheme http or https.
    who : EndpointClient
        The identity of the client.
    scope : str
        The scope; empty to let the endpoint decide.
    authorities : tuple of (str, str)
        The set properties of ``https.ca.location`` and ``https.ca.pem``: the trusted certificate authorities.
    """

    url: str = field(repr=False)
    who: EndpointClient
    scope: str = ""
    authorities: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def fetch(self, deadline: Deadline) -> Token:
        """Request a token.

        Raises
        ------
        OSError
            If the endpoint cannot be reached, does not answer in time, or is overloaded.
        RefusedCredentialsError
            If the endpoint refuses the client.
        ProtocolError
            If the answer is invalid.
        """
        from urllib.error import HTTPError, URLError
        from urllib.parse import urlencode
        from urllib.request import ProxyHandler, Request, build_opener

        deadline = deadline.within(TIMEOUT_S)
        try:
            form, headers = self.who.request()
            if form and self.scope:
                form["scope"] = self.scope
            request = Request(self.url, urlencode(form).encode() or None, {**headers, "Accept": "application/json"})
            # Azure's metadata service is on this machine.  A proxy cannot reach it.
            direct = [ProxyHandler({})] if isinstance(self.who, AzureMachine) else []
            opener = build_opener(_no_redirects(), _in_time(deadline, self.tls()), *direct)
            # Deliberate: never 0, which would mean not to wait at all.
            with opener.open(request, timeout=max(deadline.left_s, 0.001)) as answer:
                return _token(_read(answer))
        except HTTPError as problem:
            with problem:
                raise _refused(problem.code, _error_code(problem)) from None
        except URLError as problem:
            if isinstance(problem.reason, OSError):
                raise _unreachable(problem.reason) from None
            raise ProtocolError("the URL of the token endpoint cannot be used") from None
        except OSError as problem:
            raise _unreachable(problem) from None
        except PropertyError as problem:
            raise ProtocolError(str(problem)) from None
        except Exception as problem:  # from http.client; its text may contain a part of an answer
            if isinstance(problem, ProtocolError):
                raise
            raise ProtocolError(f"the token endpoint: {type(problem).__name__}") from None

    def overdue(self) -> OSError:
        """Return the error for a client that a new token does not reach in time."""
        return _unreachable(TimeoutError("no answer"))

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context that checks its certificate; None for http.

        Raises
        ------
        PropertyError
            If the authorities cannot be read.
        """
        if not self.url.lower().startswith("https:"):
            return None
        import ssl

        from pyspark_kafka_group.wire.login.tls import load_authorities

        # Deliberate: not create_default_context, which since Python 3.13 refuses authorities that librdkafka accepts.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_authorities(context, dict(self.authorities), "https.ca")
        return context


def _read(answer: HTTPResponse) -> bytes:
    content = b""
    while piece := answer.read1(1 << 16):
        content += piece
        if len(content) > _MAX_BYTES:
            raise ProtocolError("the token endpoint answers more than a token")
    return content


def _token(content: bytes) -> Token:
    answer = _object(content)
    text = answer.get("access_token")
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise ProtocolError("the token endpoint answers without an access_token that can be sent")
    lifetime_s = _number(answer.get("expires_in"))
    if lifetime_s is None:
        expires = _number(_claims(text).get("exp"))
        lifetime_s = 0.0 if expires is None else expires - time.time()
    lifetime_s = max(0.0, lifetime_s)
    return Token(text, Deadline.after(SHARE * lifetime_s), Deadline.after(lifetime_s))


def _claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JSON Web Token; an empty mapping for another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _object(base64.urlsafe_b64decode(parts[1] + "=="))
    except ValueError:
        return {}


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProtocolError("the token endpoint answers something else than a JSON object")
    return found


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None  # some endpoints write it as text
    except (ValueError, OverflowError):
        return None


def _error_code(answer: Any) -> str:
    """Return the error code of the endpoint (RFC 6749, section 5.2); empty without one."""
    try:
        code = _object(answer.read(_MAX_BYTES)).get("error")
    except Exception:
        return ""
    return code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _refused(status: int, code: str) -> Exception:
    text = f"HTTP {status}{': ' if code else ''}{code}"
    if status >= 500 or status in _AGAIN:
        return ConnectionError(f"the token endpoint is temporarily unavailable: {text}")
    if status < 400:
        return ProtocolError(f"the token endpoint redirects to another place. The source does not follow: {text}")
    return RefusedCredentialsError(f"the token endpoint refuses the client: {text}")


def _unreachable(problem: OSError) -> OSError:
    kind = TimeoutError if isinstance(problem, TimeoutError) else ConnectionError
    return kind(f"the token endpoint cannot be reached: {problem.strerror or problem}")


def _no_redirects() -> Any:
    """Return a handler that follows no redirect, because another server would get the secret."""
    from urllib.request import HTTPRedirectHandler

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Do not follow the redirect."""

    return NoRedirects()


def _in_time(deadline: Deadline, tls: ssl.SSLContext | None) -> Any:
    """Return a handler that reads until the deadline.  urllib limits only each piece of an answer."""
    from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
    from urllib.request import HTTPHandler

    class TimedResponse(HTTPResponse):
        def __init__(self, sock: Any, *args: Any, **named: Any) -> None:
            super().__init__(sock, *args, **named)
            raw: Any = self.fp.raw
            read = raw.readinto

            def readinto(into: Any) -> Any:
                if deadline.passed:
                    raise TimeoutError("no whole answer")
                sock.settimeout(max(deadline.left_s, 0.001))
                return read(into)

            raw.readinto = readinto

    class TimedHTTPConnection(HTTPConnection):
        response_class = TimedResponse

    class TimedHTTPSConnection(HTTPSConnection):
        response_class = TimedResponse

    class TimedHandler(HTTPHandler):
        handler_order = HTTPHandler.handler_order - 1  # before urllib's handler for https

        def http_open(self, request: Any) -> Any:
            return self.do_open(TimedHTTPConnection, request)

        def https_open(self, request: Any) -> Any:
            return self.do_open(TimedHTTPSConnection, request, context=tls)

    return TimedHandler()
