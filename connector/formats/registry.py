"""Requests schemas from the schema registry, with confluent-kafka's client.

The schema of an id never changes, so each process requests an id once.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_kafka_group.cluster.properties.redaction import keep_read, keep_secret, redact
from pyspark_kafka_group.cluster.properties.secret_references import resolved
from pyspark_kafka_group.offsets.errors import OptionError, SchemaRegistryError
from pyspark_kafka_group.offsets.wait_notice import WaitNotice
from pyspark_kafka_group.options.format_settings import REGISTRY, check_registry_url

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient


class UnknownSchemaError(Exception):
    """The registry has no such schema.

    Parameters
    ----------
    asked : bool
        Whether it was asked.
    """

    def __init__(self, *, asked: bool = True) -> None:
        super().__init__()
        self.asked = asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A schema.  Sent to executors, so that they need not request it again.

    Attributes
    ----------
    id : int or None
        The id in the registry; None if the schema is an option.
    kind : str
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    text : str
        The schema.  For Protobuf, the descriptor of the file in base64.
    references : tuple of (str, str)
        Names and texts of the referenced schemas, each after its own references.
    """

    id: int | None
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


log = logging.getLogger("pyspark_kafka_group.formats")

PATIENCE_S = 30.0
"""How long to retry if a registry does not answer, or is temporarily unavailable.  A restart takes some seconds."""

_ERROR_PATIENCE_S = 5.0
"""How long to retry after another error.  Such an error seldom disappears: the path is wrong, or the registry is
broken.  But a registry also answers 500 while its own Kafka elects a leader."""

_PAUSE_S = 1.0
_REMEMBERED_S = 10.0
"""How long an id counts as unknown, in seconds.  An unknown id in each batch must not cost a request each."""

_LAG_S = 1.0
"""How long to wait before the second request for an id.  In a registry with several nodes, a new schema needs some
milliseconds to reach all of them.  Records with it may be here sooner."""

_MOST_REMEMBERED = 1000
"""How many unknown ids are remembered.  Each takes about 200 bytes, and a producer may write any id."""

_LARGEST = 2**31 - 1
"""The largest id.  For a larger one, Confluent's registry answers as for a wrong path, and not that it is unknown."""

_DESCRIPTOR = "serialized"
"""The format of a schema of Protobuf as a descriptor."""

_LONGEST = 300  # maximum length of an error text of the registry, or of a proxy before it
_REFUSED = (401, 403)
_NOT_NOW = (408, 429, 502, 503, 504)
"""HTTP codes of a registry, or a proxy before it, that is busy or starting."""
_CANNOT_CONVERT = 500
"""HTTP code of Apicurio (3.3.3) if it shall return a schema as a descriptor that was registered as one."""
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""Error codes of a registry without this subject, version or schema.  Another 404 comes from a wrong path in
``schema.registry.url``, or from a proxy whose registry is down."""

_registries: dict[tuple[int, frozenset[tuple[str, str]]], Registry] = {}

_Answer = TypeVar("_Answer")
_Found = TypeVar("_Found", "Schema", "RegisteredSchema")


def registry_of(properties: Mapping[str, str]) -> Registry:
    """Return a registry, one for each process and configuration.

    Parameters
    ----------
    properties : mapping of str to str
        The options with the prefix ``schema.registry.``, without it.  This resolves references in them.
    """
    key = os.getpid(), frozenset(properties.items())
    if key not in _registries:
        _registries[key] = Registry(properties)
    return _registries[key]


class Registry:
    """A schema registry.

    Parameters
    ----------
    properties : mapping of str to str
        See `registry_of`.

    Raises
    ------
    OptionError
        If a reference cannot be resolved, or the client refuses a property.
    """

    def __init__(self, properties: Mapping[str, str], *, patience_s: float = PATIENCE_S) -> None:
        self._properties = properties
        self._patience_s = patience_s
        self._known: dict[tuple[int, str | None], Definition] = {}
        self._unknown: dict[int, float] = {}
        self._last_wait = float("-inf")
        self._open(resolved(properties, prefix=REGISTRY))

    def _open(self, config: dict[str, str]) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        keep_secret({key: value for key, value in config.items() if self._properties[key] != value})
        if config["url"] != self._properties["url"]:  # texts about a connection show parts of it
            keep_read(re.split(r"(?:^|,)\w+://|[/@,:]", config["url"]))
        check_registry_url(config["url"])
        self._secrets = config
        self._shown = redact(_without_user(config["url"]), config)
        token = config.get("bearer.auth.token")
        if token is not None:
            # The client requires these two, which only Confluent's cloud uses.
            config = config | {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.logical.cluster": "",
                "bearer.auth.identity.pool.id": "",
            }
        try:
            # Deliberate: no cache of newest versions, which the client would keep until this process ends.
            more = {"max.retries": 0, "timeout": 10, "cache.latest.ttl.sec": 0}
            # Deliberate: one for each format.  A client keeps schemas by id, whatever their format (2.16).
            self._clients: dict[str | None, SchemaRegistryClient] = {
                fmt: SchemaRegistryClient({**config, **more}) for fmt in (None, _DESCRIPTOR)
            }
        except (ValueError, OSError) as problem:
            raise OptionError(
                f"{REGISTRY}url",
                f"the client refuses the schema.registry options: {self._redacted(problem)}.",
                "Correct them. docs/options.md describes each of them.",
            ) from None

    def by_id(self, number: int, kind: str | None = None) -> Definition:
        """Return the schema with an id.

        Parameters
        ----------
        number : int
            The id.
        kind : str or None
            ``PROTOBUF`` to get descriptors.

        Raises
        ------
        UnknownSchemaError
            If there is none.
        SchemaRegistryError
            If the registry refuses, or does not answer for some time.
        """
        key = number, kind
        if key in self._known:
            return self._known[key]
        if number > _LARGEST or time.monotonic() - self._unknown.get(number, float("-inf")) < _REMEMBERED_S:
            raise UnknownSchemaError(asked=False)
        fmt = _format(kind)
        try:
            found = self._asked_twice(number, fmt)
        except UnknownSchemaError:
            self._remember(number)
            raise
        definition = self._known[key] = self._definition(number, found, fmt)
        return definition

    def _asked_twice(self, number: int, fmt: str | None) -> Schema:
        """Request an id.  If it is the first unknown one for some time, retry once after a pause."""

        def asked() -> Schema:
            return self._asked(
                f"schema {number}",
                lambda: self._converted(lambda fmt: self._clients[fmt].get_schema(number, fmt=fmt), fmt),
            )

        try:
            return asked()
        except UnknownSchemaError:
            if time.monotonic() - self._last_wait < _REMEMBERED_S:
                raise
        self._last_wait = time.monotonic()
        time.sleep(_LAG_S)
        return asked()

    def _remember(self, number: int) -> None:
        """Note that an id is unknown.  Forget the oldest unknown ids."""
        self._unknown.pop(number, None)
        self._unknown[number] = time.monotonic()
        while len(self._unknown) > _MOST_REMEMBERED:
            del self._unknown[next(iter(self._unknown))]

    def newest(self, subject: str, kind: str | None = None) -> Definition:
        """Return the newest version of a subject; raise the errors of `by_id`."""
        fmt = _format(kind)
        found = self._asked(
            f"subject {subject!r}",
            lambda: self._converted(lambda fmt: self._clients[fmt].get_latest_version(subject, fmt=fmt), fmt),
        )
        return self._definition(int(found.schema_id or 0), found.schema, fmt)

    def _definition(self, number: int, schema: Schema, fmt: str | None) -> Definition:
        references: dict[str, str] = {}
        self._collect(schema, fmt, references)
        return Definition(
            id=number,
            kind=schema.schema_type or "AVRO",
            text=schema.schema_str or "",
            references=tuple(references.items()),
        )

    def _collect(self, schema: Schema, fmt: str | None, references: dict[str, str]) -> None:
        for reference in schema.references or ():
            name = str(reference.name)
            if name in references:
                continue
            try:
                found = self._asked(
                    f"version {reference.version} of subject {reference.subject!r}",
                    partial(self._version, reference.subject or "", reference.version or 0, fmt),
                )
            except UnknownSchemaError:
                raise SchemaRegistryError(
                    f"The schema registry {self._shown} does not have a referenced schema: version "
                    f"{reference.version} of subject {reference.subject!r}. Register it again."
                ) from None
            self._collect(found.schema, fmt, references)
            references[name] = found.schema.schema_str or ""

    def _version(self, subject: str, version: int, fmt: str | None) -> RegisteredSchema:
        return self._converted(lambda fmt: self._clients[fmt].get_version(subject, version, deleted=True, fmt=fmt), fmt)

    def _converted(self, ask: Callable[[str | None], _Found], fmt: str | None) -> _Found:
        """Request a schema in a format, or as it was registered if that is a descriptor already.

        Raise the error of the first request if neither returns a descriptor.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError as Refused

        try:
            return ask(fmt)
        except Refused as problem:
            if fmt is None or int(problem.http_status_code) != _CANNOT_CONVERT:
                raise
            try:
                registered = ask(None)
            except Refused:
                raise problem from None
            if not _is_base64(_text_of(registered)):
                raise problem from None
            return registered

    def _asked(self, what: str, ask: Callable[[], _Answer]) -> _Answer:
        """Send a request until there is an answer."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError as Refused

        started = time.monotonic()
        notice = WaitNotice(log, f"The schema registry {self._shown}", longest_s=self._patience_s)
        while True:
            try:
                return ask()
            except Refused as problem:
                status, text = int(problem.http_status_code), self._redacted(problem.error_message or problem)
                if _is_missing(problem):
                    raise UnknownSchemaError from None
                if status in _REFUSED and self._opened_again():
                    continue
                if status in _REFUSED:
                    raise SchemaRegistryError(
                        f"The schema registry {self._shown} refuses to show {what} (HTTP {status}). Check "
                        f"schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token, and that this "
                        f"user may read schemas."
                    ) from None
                patience = self._patience_s if status in _NOT_NOW else min(self._patience_s, _ERROR_PATIENCE_S)
                said, remedy = f"answers HTTP {status} ({text})", _remedy(status)
            except Exception as problem:
                patience = self._patience_s
                said = f"gives no usable answer ({self._redacted(problem) or type(problem).__name__})"
                remedy = "Check schema.registry.url, and that the driver and the executors can reach it."
            if time.monotonic() - started >= patience:
                raise SchemaRegistryError(
                    f"The schema registry {self._shown} {said} when it is asked for {what}, since {patience:g} s. "
                    f"{remedy}"
                )
            notice.note(f"{what}: it {said}")
            time.sleep(min(_PAUSE_S, self._patience_s))

    def _opened_again(self) -> bool:
        """Open a new client if the values of references have changed: workers live longer than passwords."""
        config = resolved(self._properties, prefix=REGISTRY)
        if config == self._secrets:
            return False
        self._open(config)
        return True

    def _redacted(self, problem: object) -> str:
        if isinstance(problem, OSError) and problem.strerror:
            problem = problem.strerror
        return _without_user(redact(str(problem), self._secrets))[:_LONGEST].rstrip(".")


def _is_missing(problem: Any) -> bool:
    """Return whether the registry itself reports that it has no such schema."""
    try:
        return int(problem.error_code) in _NOT_FOUND
    except (TypeError, ValueError):  # in the answer of a proxy
        return False


def _text_of(found: Schema | RegisteredSchema) -> str:
    schema: Any = getattr(found, "schema", found)
    text: str = schema.schema_str or ""
    return text


def _is_base64(text: str) -> bool:
    """Return whether a schema is a descriptor in base64, and not the text of a file."""
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def _remedy(status: int) -> str:
    """Return the remedy for an error of the registry."""
    if status >= 500 or status in _NOT_NOW:
        return "Read the log of the registry, or of the proxy before it. Start the query again when it answers."
    return "Check host, port and path of schema.registry.url, and any proxy before the registry."


def _without_user(text: str) -> str:
    """Return a text without users and passwords in URLs: up to the last @, as clients read them."""
    return re.sub(r"//[^/\s]*@", "//", text)


def _format(kind: str | None) -> str | None:
    return _DESCRIPTOR if kind == "PROTOBUF" else None
