"""Records in the formats that tests read, written with the libraries that users have."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}

ORDER_WITH_COUNT: dict[str, Any] = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "count", "type": "int", "default": 1}],
}


def framed(number: int, payload: bytes) -> bytes:
    """Put the id of a schema before a record."""
    return b"\0" + number.to_bytes(4, "big") + payload


def avro(schema: Any, value: Any) -> bytes:
    """Write a record of Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def proto_file(name: str = "order.proto", *, more: bool = False) -> FileDescriptorProto:
    """Return a file with the messages shop.Refund and shop.Order, as protoc describes it."""
    kinds = FieldDescriptorProto
    file = FileDescriptorProto(name=name, package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    refund = file.message_type.add(name="Refund")
    refund.field.add(name="order", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    line.field.add(name="count", number=2, type=kinds.TYPE_UINT32, label=kinds.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    state = order.enum_type.add(name="State")
    state.value.add(name="OPEN", number=0)
    state.value.add(name="PAID", number=1)
    order.oneof_decl.add(name="_note")
    add = order.field.add
    add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    add(name="lines", number=2, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line", label=kinds.LABEL_REPEATED)
    add(
        name="at", number=3, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=kinds.LABEL_OPTIONAL
    )
    add(name="state", number=4, type=kinds.TYPE_ENUM, type_name=".shop.Order.State", label=kinds.LABEL_OPTIONAL)
    add(name="tags", number=5, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", label=kinds.LABEL_REPEATED)
    add(name="note", number=6, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True)
    add(name="big", number=7, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    add(name="raw", number=8, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    if more:
        add(name="later", number=9, type=kinds.TYPE_BOOL, label=kinds.LABEL_OPTIONAL)
    return file


def descriptor(file: FileDescriptorProto) -> str:
    """Return a file as registries return it with format=serialized."""
    return base64.b64encode(file.SerializeToString()).decode()


def built(file: FileDescriptorProto) -> FileDescriptor:
    """Return a file whose messages a test can create."""
    from google.protobuf import timestamp_pb2

    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool.FindFileByName(file.name)


def order_message(file: FileDescriptorProto) -> Any:
    """Return the class of shop.Order."""
    return GetMessageClass(built(file).message_types_by_name["Order"])
