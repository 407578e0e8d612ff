"""An OAuth server for tests.  It issues signed tokens for a client's id and secret, and publishes the key."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from integration.permissions import TOKEN_PORT
from pyspark_kafka_group.testing import LocalKafka, TlsFiles

_KEY_ID = "key-of-the-tests"
_AUDIENCE = "kafka"


class TokenServer:
    """A server that listens on the loopback interface inside a ``with`` block.

    Parameters
    ----------
    client_id, client_secret : str
        The client that gets tokens.  The id is the subject of its tokens.
    lifetime_s : int
        The lifetime of a token, in seconds.

    Attributes
    ----------
    issued : list of str
        All tokens so far.
    lifetime_s : int
        The lifetime of all tokens that the server issues from now on.
    refused : int
        The number of requests with another id or secret.
    """

    def __init__(self, client_id: str, client_secret: str, lifetime_s: int = 60) -> None:
        self.issued: list[str] = []
        self.refused = 0
        self._login = "Basic " + base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        self._subject = client_id
        self.lifetime_s = lifetime_s
        self._key = generate_private_key(65537, 2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", TOKEN_PORT), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="token-server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def token_url(self) -> str:
        """The URL that issues tokens."""
        return f"http://127.0.0.1:{self._server.server_port}/token"

    @property
    def keys_url(self) -> str:
        """The URL of the public key, as a set of JSON Web Keys."""
        return f"http://127.0.0.1:{self._server.server_port}/keys"

    @property
    def java_options(self) -> str:
        """The options that a broker's JVM needs, because Kafka fetches keys only from configured addresses."""
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.keys_url}"

    def broker(self, users: dict[str, str] | None = None, tls: TlsFiles | None = None) -> LocalKafka:
        """Return a broker whose secured listener accepts the tokens.  Its environment must contain ``java_options``."""
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
        listener = "listener.name.secured"
        return LocalKafka(
            sasl_users=users or {"nobody": "nothing"},
            tls=tls,
            properties={
                f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                f"{listener}.oauthbearer.sasl.jaas.config": f"{module}LoginModule required;",
                f"{listener}.oauthbearer.sasl.server.callback.handler.class": f"{module}ValidatorCallbackHandler",
                f"{listener}.sasl.oauthbearer.jwks.endpoint.url": self.keys_url,
                f"{listener}.sasl.oauthbearer.expected.audience": _AUDIENCE,
                f"{listener}.oauthbearer.connections.max.reauth.ms": "3600000",  # a login expires with its token
            },
        )

    def _issue(self) -> str:
        now = int(time.time())
        claims = {"sub": self._subject, "aud": _AUDIENCE, "iat": now, "exp": now + self.lifetime_s, "scope": "kafka"}
        unsigned = b".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": _KEY_ID}, claims))
        token = b".".join([unsigned, _base64(self._key.sign(unsigned, PKCS1v15(), SHA256()))]).decode()
        self.issued.append(token)
        return token

    def _keys(self) -> dict[str, Any]:
        public = self._key.public_key().public_numbers()
        numbers = {
            name: _base64(value.to_bytes((value.bit_length() + 7) // 8)).decode()
            for name, value in {"n": public.n, "e": public.e}.items()
        }
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID, **numbers}]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, server._keys())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Authorization") == server._login:
                    lifetime_s = server.lifetime_s
                    self._answer(
                        200, {"access_token": server._issue(), "token_type": "Bearer", "expires_in": lifetime_s}
                    )
                else:
                    server.refused += 1
                    self._answer(401, {"error": "invalid_client"})

            def _answer(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log no requests."""

        return Handler


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")
