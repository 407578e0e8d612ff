"""The rows of the table of options that say what keys and values are: docs/formats.md."""

from __future__ import annotations

from pyspark_kafka_group.options import parsers
from pyspark_kafka_group.options.format_settings import REGISTRY, parse_format, parse_on_malformed
from pyspark_kafka_group.options.option import Option


def _column(column: str) -> tuple[Option, ...]:
    return (
        Option(
            name=f"{column}Format",
            kind="binary, string, json, avro or protobuf",
            default="binary",
            parse=parse_format,
            doc=f"What a {column} is, and so the type of the column {column}. See [formats](formats.md).",
        ),
        Option(
            name=f"{column}Schema",
            kind="Spark's DDL or JSON; Avro's JSON",
            default=None,
            parse=parsers.not_blank,
            doc=f"With {column}Format=json, which requires it, the fields, as in id BIGINT, name STRING. With avro "
            "what records are read as, whatever they were written with; without a registry also what they were written "
            "with, and then they have no schema ids.",
        ),
        Option(
            name=f"{column}SchemaId",
            kind="number",
            default=None,
            parse=parsers.count,
            doc=f"With {column}Format=avro or protobuf the id of the schema that records are read as, in the registry. "
            f"Without it, and without {column}Schema, the newest version of the subject when the query is loaded.",
        ),
        Option(
            name=f"{column}Subject",
            kind="text",
            default=None,
            parse=parsers.not_blank,
            doc=f"The subject whose newest version that is; the topic and -{column} unless set. Required where several "
            f"topics are read and neither {column}Schema nor {column}SchemaId is given.",
        ),
        Option(
            name=f"{column}Message",
            kind="text: full name",
            default=None,
            parse=parsers.not_blank,
            doc=f"With {column}Format=protobuf the message that records are, as in shop.Order; the first of the schema "
            "unless set.",
        ),
    )


def _registry(name: str, doc: str, kind: str = "text") -> Option:
    return Option(name=REGISTRY + name, kind=kind, default=None, parse=parsers.not_blank, doc=doc)


FORMATS: tuple[Option, ...] = (
    *_column("value"),
    *_column("key"),
    Option(
        name="malformedRecords",
        kind="fail, null or deadLetter",
        default="fail",
        parse=parse_on_malformed,
        doc="What to do about a record whose key or value is not what its format says. fail: end the query; the error "
        "has topic, partition, offset and reason. null: the column is null, and the column malformed says why. "
        "deadLetter: the record goes to deadLetterTopic as it is, and makes no row.",
    ),
    Option(
        name="deadLetterTopic",
        kind="text",
        default=None,
        parse=parsers.not_blank,
        doc="Where malformed records go with malformedRecords=deadLetter; it has to exist. It gets a record before the "
        "task is finished, and again whenever the task runs again.",
    ),
    _registry("url", "Confluent's schema registry, or one that speaks like it.", "text: http(s)://host:port,..."),
    _registry("basic.auth.user.info", "User and password of the registry.", "text: user:password"),
    _registry("bearer.auth.token", "A token for the registry, in place of user and password."),
    _registry("ssl.ca.location", "A file with the authorities of the registry, in PEM.", "path"),
    _registry("ssl.certificate.location", "A file with a certificate to show to the registry, in PEM.", "path"),
    _registry("ssl.key.location", "The file with its key, in PEM.", "path"),
    _registry("ssl.key.password", "The password of that file."),
)
