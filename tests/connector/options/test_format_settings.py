"""The options of formats: which ones conflict, and which ones would have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.format_settings import Format, Formats, OnMalformed
from pyspark_kafka_group.options.settings import parse

BASE = {"kafka.bootstrap.servers": "b:9092", "kafka.group.id": "etl", "subscribe": "orders"}
URL = {"schema.registry.url": "http://r:8081"}
SCHEMA = {"valueFormat": "json", "valueSchema": "id INT"}


def both(options: dict[str, str]) -> Formats | None:
    """Return the formats of these options, which are equal for a stream and a batch read."""
    stream, batch = parse({**BASE, **options}).formats, parse_batch({**BASE, **options}).formats
    assert stream == batch
    return stream


def test_without_formats_there_are_none() -> None:
    assert both({}) is None
    assert both({"valueFormat": "binary", "keyFormat": " Binary "}) is None


def test_all_is_kept() -> None:
    found = both(
        {
            "valueFormat": "PROTOBUF",
            "valueSubject": "s",
            "valueMessage": "shop.Order",
            "keyFormat": "avro",
            "keySchemaId": "7",
            "malformedRecords": "deadLetter",
            "deadLetterTopic": "dead",
            "schema.registry.basic.auth.user.info": "u:p",
            **URL,
        }
    )

    assert found is not None
    key, value = found.columns
    assert (key.format, key.schema_id, key.subject) == (Format.AVRO, 7, None)
    assert (value.format, value.subject, value.message) == (Format.PROTOBUF, "s", "shop.Order")
    assert (found.on_malformed, found.dead_letter_topic) == (OnMalformed.DEAD_LETTER, "dead")
    assert dict(found.registry) == {"url": "http://r:8081", "basic.auth.user.info": "u:p"}
    assert "u:p" not in repr(found)


def test_the_subject_is_that_of_the_topic() -> None:
    found = both({"valueFormat": "avro", **URL})

    assert found is not None
    assert found.columns[0].subject == "orders-value"


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"valueFormat": "csv"}, "valueFormat"),
        ({"valueFormat": "json"}, "valueSchema"),
        ({"valueSchema": "id INT"}, "valueSchema"),
        ({"valueFormat": "string", "valueSchema": "id INT"}, "valueSchema"),
        ({**SCHEMA, "valueSchemaId": "1"}, "valueSchemaId"),
        ({**SCHEMA, "valueSubject": "s"}, "valueSubject"),
        ({"valueFormat": "avro", "valueMessage": "m", **URL}, "valueMessage"),
        ({"valueFormat": "avro"}, "schema.registry.url"),
        ({"valueFormat": "protobuf"}, "schema.registry.url"),
        ({"valueFormat": "avro", "schema.registry.ssl.ca.location": "/ca"}, "schema.registry.url"),
        ({**SCHEMA, **URL}, "schema.registry.url"),
        (URL, "schema.registry.url"),
        ({"valueFormat": "avro", "valueSchema": '"int"', "valueSchemaId": "1", **URL}, "valueSchemaId"),
        ({"valueFormat": "avro", "valueSchema": '"int"', "valueSchemaId": "1"}, "valueSchemaId"),
        ({"valueFormat": "avro", "valueSchema": '"int"', "valueSubject": "s", **URL}, "valueSubject"),
        ({"valueFormat": "protobuf", "valueSchemaId": "1", "valueSubject": "s", **URL}, "valueSubject"),
        ({"valueFormat": "avro", "subscribe": "orders,refunds", **URL}, "valueSubject"),
        ({**SCHEMA, "columns": "key"}, "valueFormat"),
        ({**SCHEMA, "malformedRecords": "ignore"}, "malformedRecords"),
        ({"malformedRecords": "null"}, "malformedRecords"),
        ({**SCHEMA, "malformedRecords": "deadLetter"}, "deadLetterTopic"),
        ({**SCHEMA, "deadLetterTopic": "dead"}, "deadLetterTopic"),
        ({**SCHEMA, "malformedRecords": "deadLetter", "deadLetterTopic": "orders"}, "deadLetterTopic"),
        ({"valueFormat": "avro", **URL, "schema.registry.ssl.key.password": "${vault:x}"},
         "schema.registry.ssl.key.password"),
        ({"valueFormat": "avro", **URL, "schema.registry.basic.auth.user.info": "u:p",
          "schema.registry.bearer.auth.token": "t"}, "schema.registry.bearer.auth.token"),
        ({"schema.registry.urls": "x"}, "schema.registry.urls"),
        ({"valueFormat": "avro", "schema.registry.url": "https://user:pa/ss@r:8081"}, "schema.registry.url"),
        ({"valueFormat": "avro", "schema.registry.url": "https://r:8081,https://user:pa#ss@r:8081"},
         "schema.registry.url"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(options: dict[str, Any], option: str) -> None:
    for parser in (parse, parse_batch):
        with pytest.raises(OptionError) as raised:
            parser({**BASE, **options})
        assert str(raised.value).startswith(f"Option {option!r}")


def test_a_pattern_that_matches_the_dead_letter_topic_is_refused() -> None:
    options = {key: value for key, value in BASE.items() if key != "subscribe"}
    asked = {
        "subscribePattern": "orders.*",
        **SCHEMA,
        "malformedRecords": "deadLetter",
        "deadLetterTopic": "orders-dead",
    }

    with pytest.raises(OptionError, match="own dead letters"):
        parse({**options, **asked})
