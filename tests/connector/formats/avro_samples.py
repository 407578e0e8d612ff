"""Schemas of Avro for tests, and the two decoders of their records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_kafka_group.formats.avro_decoder import AvroDecoder
from pyspark_kafka_group.formats.avro_types import of_text, spark_type
from pyspark_kafka_group.formats.ddl import all_nullable
from pyspark_kafka_group.formats.registry import Definition, UnknownSchemaError


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(name: str, /, *fields: dict[str, Any], **types: Any) -> dict[str, Any]:
    """Return a schema of records with these fields, and with those of these names and types."""
    return {"type": "record", "name": name, "fields": [*fields, *(field(*one) for one in types.items())]}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def logical(kind: str, called: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": called, **more}


def definition(schema: Any, number: int | None = 1) -> Definition:
    return Definition(id=number, kind="AVRO", text=json.dumps(schema))


def arrow_type(schema: Any, *references: Any) -> pa.DataType:
    return to_arrow_type(all_nullable(spark_type(of_text(json.dumps(schema)), references)), timezone="UTC")


def finder(schemas: dict[int, Any]) -> Callable[[int], Definition]:
    """Return a registry with these schemas."""

    def find(number: int) -> Definition:
        if number not in schemas:
            raise UnknownSchemaError
        return definition(schemas[number], number)

    return find


def python_decoder(reader: Any, writers: dict[int, Any]) -> AvroDecoder:
    return AvroDecoder(arrow_type(reader), definition(reader), finder(writers))
