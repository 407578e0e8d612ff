"""A registry of schemas for tests: the part of the REST interface that readers and writers use, on loopback.

It checks nothing of what is registered, and forgets it when it stops.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlparse

Json = dict[str, Any]


def _entry(schema: str, kind: str, references: Sequence[tuple[str, str, int]]) -> Json:
    found: Json = {"schema": schema}
    if kind != "AVRO":
        found["schemaType"] = kind
    if references:
        found["references"] = [{"name": n, "subject": s, "version": v} for n, s, v in references]
    return found


def _is_too_large(number: str) -> bool:
    return number.isdecimal() and int(number) >= 2**31  # no int of Java: no such path


class SchemaRegistryServer:
    """Answers as Confluent's schema registry does.

    Parameters
    ----------
    user_info : str or None
        ``user:password`` that clients need.
    port : int
        The port; 0 for any.
    tls : ssl.SSLContext or None
        TLS context, to encrypt.

    Attributes
    ----------
    down : bool
        Set it to refuse every request.  The status is 503.
    error : int or None
        Set it to refuse every request.  This is the status.
    converts : bool
        Set it to False to answer ``format=serialized`` with 500, and to return schemas of Protobuf as they were
        registered.  Apicurio does this.
    requests : list of str
        The paths of all requests.
    """

    def __init__(self, user_info: str | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.down = False
        self.error: int | None = None
        self.converts = True
        self.requests: list[str] = []
        self.authorization: list[str | None] = []
        self._expected = None if user_info is None else "Basic " + base64.b64encode(user_info.encode()).decode()
        self._schemas: list[Json] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            # The handshake is for the thread of each connection: in the one that accepts, a silent client blocks all.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, name="schema-registry", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL of the registry."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """Add a version to a subject and return the id of the schema.

        Parameters
        ----------
        subject : str
            The subject.
        schema : str
            Its text.  For Protobuf it is the file descriptor in base64.
        kind : str
            ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references : sequence of (str, str, int)
            Name, subject and version of each reference.
        """
        found = _entry(schema, kind, references)
        if found not in self._schemas:
            self._schemas.append(found)
        number = self._schemas.index(found) + 1
        self._subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str, query: dict[str, list[str]]) -> Json | None:
        """Return the document of a path; None if there is none."""
        by_id = re.fullmatch(r"/schemas/ids/(\d+)", path)
        if by_id is not None:
            number = int(by_id[1])
            return self._shown(number, query) if 0 < number <= len(self._schemas) else None
        by_version = re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path)
        if by_version is None:
            return None
        subject = unquote(by_version[1])
        versions = self._subjects.get(subject, [])
        version = len(versions) if by_version[2] == "latest" else int(by_version[2])
        if not 0 < version <= len(versions):
            return None
        number = versions[version - 1]
        return {"subject": subject, "version": version, "id": number, **self._shown(number, query)}

    def post(self, path: str, document: Json) -> Json | None:
        """Register a schema, or find it in a subject; return None if there is no such path, or no such schema."""
        match = re.fullmatch(r"/subjects/([^/]+)(/versions)?", path)
        if match is None or not isinstance(document.get("schema"), str):
            return None
        subject, kind = unquote(match[1]), document.get("schemaType") or "AVRO"
        references = [(one["name"], one["subject"], one["version"]) for one in document.get("references") or ()]
        known = self._known(document["schema"], kind, references)
        versions = self._subjects.get(subject, [])
        if known not in versions:
            if not match[2]:
                return None
            known = self.register(subject, document["schema"], kind, references)
            versions = self._subjects[subject]
        found = {"id": known, "version": versions.index(known) + 1, "subject": subject}
        return {**found, **self._schemas[known - 1]}

    def _known(self, schema: str, kind: str, references: Sequence[tuple[str, str, int]]) -> int | None:
        """Return the id of a schema; None if it was never registered."""
        found = _entry(schema, kind, references)
        return self._schemas.index(found) + 1 if found in self._schemas else None

    def _shown(self, number: int, query: dict[str, list[str]]) -> Json:
        found = dict(self._schemas[number - 1])
        if self.converts and found.get("schemaType") == "PROTOBUF" and query.get("format") != ["serialized"]:
            found["schema"] = 'syntax = "proto3"; // only descriptors are kept here'
        return found

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):  # a client that is gone, or does not trust the certificate
                    super().handle()

            def do_GET(self) -> None:
                asked = urlparse(self.path)
                if self._refused():
                    return
                if not registry.converts and "format=serialized" in asked.query:
                    self._send(500, {"message": "java.lang.IllegalStateException: Syntax error"})
                else:
                    found = registry.answer(asked.path, parse_qs(asked.query))
                    missing = {"error_code": 40403, "message": "Schema not found"}
                    of_id = asked.path.removeprefix("/schemas/ids/")
                    if not asked.path.startswith(("/schemas/ids/", "/subjects/")) or _is_too_large(of_id):
                        missing = {"error_code": 404, "message": "HTTP 404 Not Found"}
                    self._send(404 if found is None else 200, missing if found is None else found)

            def do_POST(self) -> None:
                if self._refused():
                    return
                length = int(self.headers.get("Content-Length") or 0)
                try:
                    document = json.loads(self.rfile.read(length))
                except ValueError:
                    document = {}
                found = registry.post(urlparse(self.path).path, document if isinstance(document, dict) else {})
                missing = {"error_code": 40403, "message": "Schema not found"}
                self._send(404 if found is None else 200, missing if found is None else found)

            def _refused(self) -> bool:
                """Note the request, and answer it if the registry is down, or refuses."""
                registry.requests.append(self.path)
                registry.authorization.append(self.headers.get("Authorization"))
                if registry.down:
                    self._send(503, {"error_code": 50301, "message": "not now"})
                elif registry.error is not None:
                    self._send(registry.error, {"error_code": 50001, "message": "Error in the backend datastore"})
                elif registry._expected not in (None, self.headers.get("Authorization")):
                    self._send(401, {"error_code": 401, "message": "Unauthorized"})
                else:
                    return False
                return True

            def _send(self, status: int, document: Json) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        return Handler
