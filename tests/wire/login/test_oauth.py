"""Tokens from a real HTTP server: requests like those of librdkafka, reuse while valid, and logins to brokers."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import trustme

from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.properties import security_of
from pyspark_kafka_group.wire.login.token_cache import Tokens
from pyspark_kafka_group.wire.login.token_endpoint import ClientSecret, TokenEndpoint
from pyspark_kafka_group.wire.messages import SASL_AUTHENTICATE
from pyspark_kafka_group.wire.types import PropertyError, ProtocolError, RefusedCredentialsError
from tests.wire.fake_broker import HANG_UP
from tests.wire.login_broker import Broker, broker, secured

SECRET = "hunter2&more"
ETL = ClientSecret("etl", SECRET)
GOOD = {"access_token": "token-1", "token_type": "Bearer", "expires_in": 3600}


class Endpoint:
    """A token endpoint with the answers of a test."""

    def __init__(self, certificate: trustme.LeafCert | None = None) -> None:
        self.status = 200
        self.answer: bytes | Mapping[str, Any] = GOOD
        self.location = ""
        self.delay_s = 0.0
        self.asked: list[tuple[str | None, Mapping[str, list[str]]]] = []
        self.requests: list[tuple[str, str | None]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("")

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._answer(form)

            def _answer(self, form: str) -> None:
                endpoint.asked.append((self.headers["Authorization"], parse_qs(form)))
                endpoint.requests.append((self.path, self.headers["Metadata"]))
                time.sleep(endpoint.delay_s)
                answer = endpoint.answer
                self.send_response(endpoint.status)
                if endpoint.location:
                    self.send_header("Location", endpoint.location)
                self.end_headers()
                self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate is not None:
            scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}/token"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@contextmanager
def endpoint(certificate: trustme.LeafCert | None = None) -> Iterator[Endpoint]:
    made = Endpoint(certificate)
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


def of(server: Endpoint, **more: Any) -> TokenEndpoint:
    return TokenEndpoint(server.url, ETL, **more)


def soon() -> Deadline:
    return Deadline.after(5)


def config(url: str, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "etl",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": url,
        **{f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def connect(to: Broker, properties: Mapping[str, str]) -> None:
    BrokerConnection(to.address, "me", 2.0, secured(properties)).close()


def jwt(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims)
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts), "c2ln"])


# -- requests


def test_a_token_is_asked_for_with_an_assertion_that_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    with endpoint() as server, broker() as to:
        given = config(server.url, grant_type=grant, assertion_file=str(file), scope="s")
        with pytest.raises(PropertyError, match=r"^sasl\.oauthbearer\.assertion\.file: it cannot be read here"):
            security_of(given)
        server.answer = {"access_token": "token-1", "expires_in": 0}
        for text in ("a.b.c\n", "d.e.f"):
            file.write_text(text)
            connect(to, given)
    asked = [form for _, form in server.asked]
    assert asked == [{"grant_type": [grant], "assertion": [text], "scope": ["s"]} for text in ("a.b.c", "d.e.f")]
    assert server.asked[0][0] is None, "no password"


def test_azures_metadata_service_is_asked_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with endpoint() as server, broker() as to:
        given = config(server.url, metadata_authentication_type="azure_imds", config="query=api-version=1&resource=r")
        connect(to, given)
        assert to.logins == [b"n,,\x01auth=Bearer token-1\x01\x01"]
    assert [*map(repr, server.asked)] == ["(None, {})"]
    assert server.requests == [("/token?api-version=1&resource=r", "true")]


def test_a_token_for_tests_needs_no_endpoint() -> None:
    given = {"enable.sasl.oauthbearer.unsecure.jwt": "true", **config("", method="default", config="principal=etl")}
    with broker() as to:
        connect(to, given)
        assert to.logins[0].startswith(b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.")
        with pytest.raises(PropertyError, match=r"^sasl\.oauthbearer\.config: it is missing"):
            security_of({**given, "sasl.oauthbearer.config": " "})


def test_a_token_is_asked_for_by_id_and_secret() -> None:
    with endpoint() as server:
        assert of(server).fetch(soon()).text == "token-1"
        assert of(server, scope="a b&c").fetch(soon()).text == "token-1"
    login = "Basic " + base64.b64encode(f"etl:{SECRET}".encode()).decode()
    form = {"grant_type": ["client_credentials"]}
    assert server.asked == [(login, form), (login, {**form, "scope": ["a b&c"]})]


def test_the_endpoint_is_checked_with_the_authorities_that_are_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with endpoint(authority.issue_cert("127.0.0.1")) as server:
        of(server, authorities=(("https.ca.location", str(tmp_path / "ca.pem")),)).fetch(soon())
        of(server, authorities=(("https.ca.pem", authority.cert_pem.bytes().decode()),)).fetch(soon())
        with pytest.raises(ConnectionError, match=r"cannot be reached.*certificate verify failed"):
            of(server).fetch(soon())
        assert len(server.asked) == 2


# -- answers


def test_a_token_is_good_for_most_of_its_life() -> None:
    with endpoint() as server:
        assert 2870 < of(server).fetch(soon()).good_until.left_s <= 2880
        server.answer = {"access_token": jwt(exp=time.time() + 1000)}
        assert 790 < of(server).fetch(soon()).good_until.left_s <= 800
        for unknown in ("opaque", "a.b.c", "....", jwt(exp="soon"), jwt(exp=0)):
            server.answer = {"access_token": unknown}
            assert of(server).fetch(soon()).good_until.passed


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[" * 100_000,
        b"[]",
        b'"token"',
        {},
        {"access_token": None},
        {"access_token": ""},
        {"access_token": "a\x01auth=b"},
        {"access_token": "a b"},
        {"access_token": "t\u00f6ken"},
        b" " * (1 << 21),
    ],
    ids=lambda answer: str(answer)[:30],
)
def test_what_is_no_token_is_an_error_that_does_not_show_it(answer: Any) -> None:
    with endpoint() as server:
        server.answer = answer
        with pytest.raises(ProtocolError, match="the token endpoint answers") as problem:
            of(server).fetch(soon())
        assert len(str(problem.value)) < 100


@pytest.mark.parametrize(
    ("status", "answer", "kind", "text"),
    [
        (401, {"error": "invalid_client", "error_description": SECRET}, RefusedCredentialsError, "401: invalid_client"),
        (400, {"error": SECRET}, RefusedCredentialsError, "HTTP 400"),
        (403, SECRET.encode(), RefusedCredentialsError, "HTTP 403"),
        (503, SECRET.encode(), ConnectionError, "is temporarily unavailable: HTTP 503"),
        (429, {"error": "slow_down"}, ConnectionError, "429: slow_down"),
    ],
)
def test_a_refusal_says_what_it_is_and_nothing_secret(status: int, answer: Any, kind: type, text: str) -> None:
    with endpoint() as server:
        server.status, server.answer = status, answer
        with pytest.raises(kind, match=text) as problem:
            of(server).fetch(soon())
    assert SECRET not in str(problem.value)
    assert problem.value.__cause__ is None
    assert str(problem.value).endswith(text) or text in ("HTTP 400", "HTTP 403")


def test_a_redirect_is_not_followed_for_it_would_show_the_secret_to_others() -> None:
    with endpoint() as other, endpoint() as server:
        for status in (302, 307, 308):
            server.status, server.location = status, other.url
            with pytest.raises(ProtocolError, match=f"another place.*HTTP {status}"):
                of(server).fetch(soon())
        assert other.asked == []


def test_an_endpoint_that_is_not_there_or_silent_is_an_error_in_time() -> None:
    with endpoint() as server:
        server.delay_s = 1.0
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match="the token endpoint cannot be reached: timed out"):
            of(server).fetch(Deadline.after(0.2))
        assert time.monotonic() - begin < 0.9
    with pytest.raises(ConnectionError, match="the token endpoint cannot be reached: Connection refused"):
        of(server).fetch(soon())
    for bad in ("http://a b/", "http://127.0.0.1:port/", "http://[::1/", "https://", "http://\u00f6 /"):
        with pytest.raises((ProtocolError, OSError), match="token endpoint") as problem:
            TokenEndpoint(bad, ETL).fetch(soon())
        assert bad not in str(problem.value)


OK, BUSY = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Busy\r\n"


@pytest.mark.parametrize(
    ("head", "piece", "scheme"),
    [
        (b"HTT", b"P", "http"),
        (OK + b"X: ", b"x", "http"),
        (OK + b"Content-Length: 100000\r\n\r\n", b" ", "http"),
        (BUSY + b"Content-Length: 100000\r\n\r\n", b" ", "http"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "http"),
        (OK + b"X: ", b"x", "https"),
    ],
    ids=["status", "header", "body", "body of an error", "continue", "proxy"],
)
def test_an_endpoint_that_answers_byte_by_byte_is_an_error_in_time(
    monkeypatch: pytest.MonkeyPatch, head: bytes, piece: bytes, scheme: str
) -> None:
    """Regression: only the body of a good answer had a limit, and all logins of the process waited for the others."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        if scheme == "https":
            monkeypatch.setenv("https_proxy", f"http://{where}")

        def drip() -> None:
            with suppress(OSError), listener.accept()[0] as client:
                client.recv(10_000)
                client.sendall(head)
                while True:
                    time.sleep(0.05)
                    client.sendall(piece)

        threading.Thread(target=drip, daemon=True).start()
        begin = time.monotonic()
        with pytest.raises(OSError, match="the token endpoint"):
            TokenEndpoint(f"{scheme}://{where}/token", ETL).fetch(Deadline.after(0.3))
        assert time.monotonic() - begin < 2


def test_secrets_are_not_shown() -> None:
    with endpoint() as server:
        asked = of(server, authorities=(("https.ca.pem", SECRET),))
        assert SECRET not in repr(asked)
        assert "token-1" not in repr(TokenEndpoint(server.url, ETL).fetch(soon()))
    assert SECRET not in repr(secured(config(server.url)))


# -- kept tokens


def test_connections_share_a_token_until_most_of_its_life_is_over() -> None:
    with endpoint() as server:
        tokens = Tokens(of(server))
        with ThreadPoolExecutor(4) as threads:
            found = {*threads.map(lambda _: tokens.current(soon()).text, range(8))}
        assert found == {"token-1"}
        assert len(server.asked) == 1
        server.answer = {**GOOD, "access_token": "token-2", "expires_in": 0}
        tokens.forget("another one")
        assert tokens.current(soon()).text == "token-1"
        tokens.forget("token-1")
        assert [tokens.current(soon()).text, tokens.current(soon()).text] == ["token-2", "token-2"]
        assert len(server.asked) == 3, "the second one was over at once"


def test_who_waits_for_another_ones_question_waits_no_longer_than_his_own_time() -> None:
    with endpoint() as server:
        server.delay_s = 1.0
        tokens = Tokens(of(server))
        first = threading.Thread(target=lambda: tokens.current(soon()))
        first.start()
        while not server.asked:
            time.sleep(0.01)
        with pytest.raises(TimeoutError):
            tokens.current(Deadline.after(0.05))
        first.join()
        assert tokens.current(soon()).text == "token-1"


# -- logins


def test_a_broker_is_shown_the_token_and_the_extensions() -> None:
    with endpoint() as server, broker() as to:
        connect(to, config(server.url, grant_type="client_credentials", sub_claim_name="sub", method="OIDC"))
        connect(to, config(server.url, extensions="logicalCluster=lkc-1,pool=a b"))
        assert to.logins == [
            b"n,,\x01auth=Bearer token-1\x01\x01",
            b"n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01pool=a b\x01\x01",
        ]
        assert len(server.asked) == 1, "of one configuration of tokens"


def test_a_token_that_a_broker_does_not_take_is_not_shown_again() -> None:
    with endpoint() as server, broker() as to:
        to.challenge, to.refuses = b'{"status":"invalid_token"}', True
        for _ in range(2):
            with pytest.raises(RefusedCredentialsError, match="error 58: wrong!"):
                connect(to, config(server.url))
        assert to.logins == 2 * [b"n,,\x01auth=Bearer token-1\x01\x01", b"\x01"]
        to.challenge, to.refuses = b"", True
        with pytest.raises(RefusedCredentialsError, match="error 58: wrong!"):
            connect(to, config(server.url))
        assert len(server.asked) == 3
        to.challenge, to.refuses = b"not so", False  # Kafka never does this
        with pytest.raises(ProtocolError, match="does not take the token"):
            connect(to, config(server.url))


def test_a_token_is_kept_if_the_connection_breaks_while_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a restart of the brokers cost each process its token, and a query ended if there was no new one."""
    with endpoint() as server, broker() as to:
        answer_to = to.answer_to
        with monkeypatch.context() as patch:
            patch.setattr(
                to, "answer_to", lambda asked: HANG_UP if asked.api == SASL_AUTHENTICATE else answer_to(asked)
            )
            with pytest.raises(ConnectionError, match="closed the connection"):
                connect(to, config(server.url))
        connect(to, config(server.url))
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.method", "default"),
        ("sasl.oauthbearer.client.secret", ""),
        ("sasl.oauthbearer.client.id", ""),
        ("sasl.oauthbearer.grant.type", "password"),
        ("sasl.oauthbearer.metadata.authentication.type", "aws_iam"),
        ("sasl.oauthbearer.token.endpoint.url", "file:///token"),
        *(("sasl.oauthbearer.extensions", value) for value in ("nothing", "a1=b", "auth=b", "a=b\x01", "a=b,")),
        ("https.ca.location", "/nowhere"),
        ("https.ca.pem", "/nowhere"),
    ],
)
def test_other_ways_to_tokens_are_refused(name: str, value: str) -> None:
    given = config("https://127.0.0.1:1/")
    security_of(given)
    with pytest.raises(PropertyError, match=f"^{name}: "):
        security_of({**given, name: value})
