"""The parsed options about formats of keys and values: :class:`Formats`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyspark_kafka_group.cluster.properties.secret_references import check_references, refers
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.option import ParsedOptions, Strategy

REGISTRY = "schema.registry."
"""The prefix of the options of the registry."""

MALFORMED_COLUMN = "malformed"
"""The column with the reason why a key or a value is null."""


class Format(Enum):
    """The format of a key or a value."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class OnMalformed(Enum):
    """What to do with a record that does not fit its format."""

    FAIL = "fail"
    NULL = "null"
    DEAD_LETTER = "deadletter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFormat:
    """The format of one column.

    Attributes
    ----------
    column : str
        The name of the column, ``key`` or ``value``.
    format : Format
        The format; never binary.
    schema : str or None
        The option ``valueSchema`` or ``keySchema``.
    schema_id : int or None
        The option ``valueSchemaId`` or ``keySchemaId``.
    subject : str or None
        The option ``valueSubject`` or ``keySubject``, or the subject of the only topic.
    message : str or None
        The option ``valueMessage`` or ``keyMessage``.
    """

    column: str
    format: Format
    schema: str | None = None
    schema_id: int | None = None
    subject: str | None = None
    message: str | None = None

    def option(self, name: str) -> str:
        """Return the name of an option of this column: ``valueSchema`` for ``Schema``."""
        return self.column + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The formats of a query that decodes keys or values.

    Attributes
    ----------
    columns : tuple of ColumnFormat
        The decoded columns.
    registry : mapping of str to str
        The options with the prefix ``schema.registry.``, without it.  Hidden from ``repr``: they contain secrets.
    on_malformed : OnMalformed
        The option ``malformedRecords``.
    dead_letter_topic : str or None
        The option ``deadLetterTopic``.
    """

    columns: tuple[ColumnFormat, ...]
    registry: Mapping[str, str] = field(repr=False, default_factory=dict)
    on_malformed: OnMalformed = OnMalformed.FAIL
    dead_letter_topic: str | None = None


def formats_of(parsed: ParsedOptions, columns: tuple[str, ...]) -> Formats | None:
    """Return the formats of keys and values; None if both are bytes.

    Parameters
    ----------
    parsed : ParsedOptions
        The parsed options.
    columns : tuple of str
        The columns of the rows.

    Raises
    ------
    OptionError
        If an option is missing, in conflict, or has no effect.
    """
    given = parsed.given
    registry = {name.removeprefix(REGISTRY): given[name] for name in sorted(given) if name.startswith(REGISTRY)}
    check_references(registry, decided=(), prefix=REGISTRY)
    found = [_column(column, parsed, registry=bool(registry)) for column in ("key", "value")]
    typed = tuple(one for one in found if one is not None)
    for one in typed:
        if one.column not in columns:
            name = one.option("Format")
            raise OptionError(name, f"the column {one.column} is not read.", f"Add it to columns, or remove {name}.")
    formats = Formats(
        columns=typed,
        registry=registry,
        on_malformed=parsed["malformedRecords"],
        dead_letter_topic=parsed["deadLetterTopic"],
    )
    _check_registry(formats, given)
    _check_policy(formats, given, parsed.read)
    return formats if typed else None


def _column(column: str, parsed: ParsedOptions, *, registry: bool) -> ColumnFormat | None:
    kind: Format = parsed[f"{column}Format"]
    rest = {name: parsed[column + name] for name in ("Schema", "SchemaId", "Subject", "Message")}
    for name in rest:
        if column + name in parsed and kind not in _USED[name]:
            formats = " or ".join(f"{column}Format={one.value}" for one in _USED[name])
            raise OptionError(
                column + name, f"it changes nothing with {column}Format={kind.value}.", f"Add {formats}, or remove it."
            )
    if kind is Format.BINARY:
        return None
    if kind is Format.JSON and rest["Schema"] is None:
        raise OptionError(
            f"{column}Schema",
            f"it is missing: {column}Format=json needs the fields of a {column}.",
            f"Add .option('{column}Schema', 'id BIGINT, name STRING').",
        )
    subject: str | None = rest["Subject"]
    for first, second in (("SchemaId", "Schema"), ("Subject", "Schema"), ("Subject", "SchemaId")):
        if rest[first] is not None and rest[second] is not None:
            raise OptionError(column + first, f"it is given together with {column}{second}.", "Remove one.")
    if kind is Format.PROTOBUF or (kind is Format.AVRO and (registry or rest["Schema"] is None)):
        if not registry:
            remedy = f"Add .option('{REGISTRY}url', ...)"
            remedy += f", or {column}Schema if records have no schema ids." if kind is Format.AVRO else "."
            raise OptionError(
                f"{REGISTRY}url", f"it is missing: {column}Format={kind.value} needs its schemas.", remedy
            )
        if rest["Schema"] is None and rest["SchemaId"] is None and subject is None:
            if len(parsed.read.topics) != 1:
                raise OptionError(
                    f"{column}Subject",
                    "it is missing: with several topics it is not clear which schema the column has.",
                    f"Add .option('{column}Subject', 'orders-{column}'), or {column}SchemaId.",
                )
            subject = f"{parsed.read.topics[0]}-{column}"
    return ColumnFormat(
        column=column,
        format=kind,
        schema=rest["Schema"],
        schema_id=rest["SchemaId"],
        subject=subject,
        message=rest["Message"],
    )


_USED = {
    "Schema": (Format.JSON, Format.AVRO),
    "SchemaId": (Format.AVRO, Format.PROTOBUF),
    "Subject": (Format.AVRO, Format.PROTOBUF),
    "Message": (Format.PROTOBUF,),
}
"""The formats that need each option of a column."""


def uses_registry(formats: Formats) -> bool:
    """Return whether a column needs the registry."""
    return bool(formats.registry) and any(one.format in (Format.AVRO, Format.PROTOBUF) for one in formats.columns)


def _check_registry(formats: Formats, given: Mapping[str, str]) -> None:
    if not formats.registry:
        return
    first = next(name for name in sorted(given) if name.startswith(REGISTRY))
    if not uses_registry(formats):
        raise OptionError(first, "it changes nothing: no column needs a registry.", "Add valueFormat=avro or protobuf.")
    if "url" not in formats.registry:
        raise OptionError(f"{REGISTRY}url", "it is missing.", "Write one such as 'https://registry.example:8081'.")
    if not refers(formats.registry["url"]):
        check_registry_url(formats.registry["url"])
    if "basic.auth.user.info" in formats.registry and "bearer.auth.token" in formats.registry:
        raise OptionError(
            f"{REGISTRY}bearer.auth.token", "it is given together with basic.auth.user.info.", "Remove one."
        )


def check_registry_url(urls: str) -> None:
    """Refuse a password that clients would read as part of the host or the path, and show in their errors.

    Also refuse a query: the client appends its path, so the request would be any other one that the URL names.
    """
    for url in urls.split(","):
        user, at, _ = url.rpartition("@")
        if at and re.search(r"[/?#\s]", user.strip().partition("://")[2]):
            raise OptionError(
                f"{REGISTRY}url",
                "the user or the password before the @ has a character that ends them: / or ? or # or a blank.",
                f"Encode it, as in %2F, or use {REGISTRY}basic.auth.user.info instead.",
            )
        if "?" in url or "#" in url:
            raise OptionError(f"{REGISTRY}url", "it has a ? or a #.", "Write the address of the registry alone.")


def _check_policy(formats: Formats, given: Mapping[str, str], read: Strategy) -> None:
    topic = formats.dead_letter_topic
    if "malformedrecords" in given and not formats.columns:
        raise OptionError(
            "malformedRecords", "it changes nothing where keys and values are bytes.", "Add valueFormat, or remove it."
        )
    if formats.on_malformed is not OnMalformed.DEAD_LETTER:
        if topic is not None:
            raise OptionError(
                "deadLetterTopic",
                "it changes nothing without malformedRecords=deadLetter.",
                "Add .option('malformedRecords', 'deadLetter'), or remove it.",
            )
        return
    if topic is None:
        raise OptionError(
            "deadLetterTopic",
            "it is missing: malformedRecords=deadLetter writes to it.",
            "Add .option('deadLetterTopic', ...).",
        )
    if topic in read.topics or (read.pattern is not None and re.fullmatch(read.pattern, topic)):
        raise OptionError(
            "deadLetterTopic",
            f"{topic!r} is read by this query, which would read its own dead letters.",
            "Name another topic.",
        )
