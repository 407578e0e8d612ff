"""Typed values in batch reads: this source decodes JSON, Avro and Protobuf, compared with Spark's functions.

The benchmark reads Avro twice.  First the writer and the reader have the same schema.  Then they have different ones,
and the source fetches the writer's schema from a registry, which Spark's function cannot do.  Protobuf also comes from
the registry.  It has no comparison, because the jar of ``from_protobuf`` could not be fetched.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import rotated
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, OURS
from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer

BYTES, TYPED = f"{OURS}, bytes", f"{OURS}, valueFormat"
FROM_JSON = (f"{BUILTIN}, from_json", f"{OURS}, from_json")
FROM_AVRO = (f"{BUILTIN}, from_avro", f"{OURS}, from_avro")
_FUNCTIONS = {"json": FROM_JSON, "avro": FROM_AVRO}

DDL = "id BIGINT, item STRING, price DOUBLE, at TIMESTAMP, note STRING"
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
_OLDER = {**AVRO, "fields": [
    {"name": "id", "type": "int"}, *AVRO["fields"][1:], {"name": "gone", "type": {"type": "array", "items": "string"}}
]}  # fmt: skip
_AT = 1_714_564_800_000_000
_DIFFERENT = 10_000

KEYS = [f"{n:02}".encode() for n in range(100)]

QUICK: dict[str, Any] = {"records": 20_000, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place, SchemaRegistryServer() as registry:
        older = registry.register("orders", json.dumps(_OLDER))
        newer = registry.register("orders", json.dumps(AVRO))
        message, values_of_protobuf = _protobuf()
        protobuf = registry.register("messages", base64.b64encode(message).decode(), "PROTOBUF")
        typed = {
            "json": {"valueFormat": "json", "valueSchema": DDL},
            "avro": {"valueFormat": "avro", "valueSchema": json.dumps(AVRO)},
            "avro, of an older schema": {
                "valueFormat": "avro", "schema.registry.url": registry.url, "valueSchemaId": str(newer)
            },
            "protobuf": {
                "valueFormat": "protobuf", "schema.registry.url": registry.url, "valueSchemaId": str(protobuf)
            },
        }  # fmt: skip
        head, first_message = b"\0" + older.to_bytes(4, "big"), b"\0" + protobuf.to_bytes(4, "big") + b"\0"
        values = {
            "json": json_values(),
            "avro": avro_values(AVRO),
            "avro, of an older schema": [head + one for one in avro_values(_OLDER)],
            "protobuf": [first_message + one for one in values_of_protobuf],
        }
        for kind, options in typed.items():
            topic = place.topic(8)
            load_values(place.servers, topic, values[kind], args.records)
            names = (BYTES, TYPED, *_FUNCTIONS.get(kind, ()))
            arms = {arm: _arm(place, arm, topic, options) for arm in names}
            cell = Cell(name=kind, factors={"records": args.records})
            result.cells.append(cell)
            for read in arms.values():
                _seconds(read)
            for repetition in range(args.repetitions):
                for arm in rotated(tuple(arms), repetition):
                    took_s = _seconds(arms[arm])
                    cell.add(arm, {"records_per_s": args.records / took_s})
                    say(f"{cell.name}, {arm}: {took_s:.2f} s")
            place.kafka.delete_topic(topic)


def _arm(place: Bench, arm: str, topic: str, typed: dict[str, str]) -> Callable[[], DataFrame]:
    options = {"kafka.bootstrap.servers": place.servers, "subscribe": topic}
    source = BUILTIN if arm in (FROM_JSON[0], FROM_AVRO[0]) else OURS
    if source == OURS:
        options["columns"] = "value"
    if arm == TYPED:
        options |= typed

    def read() -> DataFrame:
        records = place.spark.read.format(source).options(**options).load()
        if arm in FROM_JSON:
            return records.select(f.from_json(f.col("value").cast("string"), DDL).alias("value"))
        if arm in FROM_AVRO:
            return records.select(from_avro("value", json.dumps(AVRO)).alias("value"))
        return records.select("value")

    return read


def _seconds(read: Callable[[], DataFrame]) -> float:
    begin = time.monotonic()
    read().write.format("noop").mode("overwrite").save()
    return time.monotonic() - begin


def _rows() -> list[dict[str, Any]]:
    return [
        {"id": n, "item": f"item {n % 97}", "price": n * 1.25, "note": None if n % 2 else "by the back door"}
        for n in range(_DIFFERENT)
    ]


def json_values() -> list[bytes]:
    """Return the rows as JSON."""
    return [json.dumps({**row, "at": "2024-05-01T12:00:00.5Z"}).encode() for row in _rows()]


def avro_values(written: dict[str, Any]) -> list[bytes]:
    """Return the rows in a schema of Avro."""
    import fastavro

    plain = {
        **written, "fields": [{**one, "type": "long"} if one["name"] == "at" else one for one in written["fields"]]
    }  # fmt: skip
    schema = fastavro.parse_schema(plain)
    found = []
    for row in _rows():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {**row, "at": _AT + int(row["id"]), "gone": ["x", "y"]})
        found.append(out.getvalue())
    return found


def _protobuf() -> tuple[bytes, list[bytes]]:
    """Return the description of a file with one message, and the encoded rows."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    fields = {"id": kind.TYPE_INT64, "item": kind.TYPE_STRING, "price": kind.TYPE_DOUBLE, "note": kind.TYPE_STRING}
    for number, (name, of) in enumerate(fields.items(), 1):
        message.field.add(name=name, number=number, type=of, label=kind.LABEL_OPTIONAL)
    message.field.add(
        name="at", number=5, type=kind.TYPE_MESSAGE, label=kind.LABEL_OPTIONAL, type_name=".google.protobuf.Timestamp"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    found = []
    for row in _rows():
        one: Any = order(**row)
        one.at.FromMicroseconds(_AT + row["id"])
        found.append(one.SerializeToString())
    return file.SerializeToString(), found


def load_values(servers: str, topic: str, values: list[bytes], records: int) -> None:
    """Write values into 8 partitions, in turn, with keys from 00 to 99."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        producer.produce(topic, values[number % len(values)], KEYS[number // 8 % 100], partition=number % 8)
        if number % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError("not all records were written")
