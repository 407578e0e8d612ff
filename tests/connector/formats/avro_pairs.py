"""Generate random Avro schemas, possible older versions of them, and records, both valid and damaged."""

from __future__ import annotations

import copy
import struct
from random import Random
from typing import Any

from pyspark_kafka_group.formats.avro_resolution import Names, names_of
from tests.connector.columns.batches import sized, varint

PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
)
SPECIAL = (0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**62)
TEXTS = ("", "a", "pen", "käse", "\U0001f600", "x" * 70, "\u0800\uffff")


class Pairs:
    """Generates schemas, and records of these schemas.

    Parameters
    ----------
    random : Random
        Makes all choices.
    twins : float
        The probability that a key of a map may occur twice.
    """

    def __init__(self, random: Random, twins: float = 0.02) -> None:
        self._random = random
        self._twins = twins
        self._names = 0
        self._known: list[str] = []
        self._meanings: Names = {}

    def schema(self, depth: int = 3) -> Any:
        """Return a schema."""
        kind = self._random.choice(
            ["plain", "plain", "logical", "optional", "union"]
            + (["record", "record", "array", "map", "enum", "fixed", "known"] if depth > 0 else [])
        )
        if kind == "logical":
            return dict(self._random.choice(LOGICAL))
        if kind == "optional":
            branches = ["null", self._not_a_union(depth - 1)]
            return branches if self._random.random() < 0.7 else branches[::-1]
        if kind == "union":
            return self._random.choice([["int", "long"], ["null", "float", "double"], ["null", "int", "string"],
                ["string", "double"], ["bytes", "null", "long"], ["boolean", "string", "null"],
                ["null", "double", "long"], ["string", "float", "int", "bytes"],
                ["null", "long", {"type": "array", "items": "int"}]])  # fmt: skip
        if kind == "record":
            return self.record(depth)
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth - 1)}
        if kind == "enum":
            more = {"default": "B"} if self._random.random() < 0.5 else {}
            symbols = list("ABCD"[: self._random.randint(2, 4)])
            return self._noted({"type": "enum", "name": self._name(), "symbols": symbols, **more})
        if kind == "fixed":
            fixed = {"type": "fixed", "name": self._name(), "size": self._random.choice([1, 4, 16])}
            if fixed["size"] == 4 and self._random.random() < 0.5:
                fixed |= {"logicalType": "decimal", "precision": 9, "scale": 2}
            return self._noted(fixed)
        if kind == "known" and self._known:
            return self._random.choice(self._known)
        return self._random.choice(PLAIN)

    def record(self, depth: int) -> dict[str, Any]:
        """Return a schema of records."""
        name = self._name()
        fields = []
        for n in range(self._random.randint(1, 5)):
            kind = self.schema(depth - 1)
            field: dict[str, Any] = {"name": f"f{n}", "type": kind}
            default = self._default(kind)
            if default is not self and self._random.random() < 0.6:
                field["default"] = default
            if self._random.random() < 0.2:
                field["aliases"] = [f"old{n}", f"older{n}"]
            fields.append(field)
        return self._noted({"type": "record", "name": name, "fields": fields})

    def _not_a_union(self, depth: int) -> Any:
        known = len(self._known)
        while isinstance(found := self.schema(depth), list):
            del self._known[known:]
        return found

    def _name(self) -> str:
        self._names += 1
        space = self._random.choice(["shop.", "depot."])
        return f"{space}N{self._names if self._random.random() < 0.8 else 1}"

    def _noted(self, schema: dict[str, Any]) -> dict[str, Any]:
        self._known.append(schema["name"])
        return schema

    def _default(self, kind: Any) -> Any:
        """Return a default in JSON, or this object if a default would be hard to make."""
        if isinstance(kind, list):
            return self._default(kind[0])
        plain = kind["type"] if isinstance(kind, dict) else kind
        if plain == "fixed":
            return "\u00ff" * kind["size"]
        if plain == "record":
            found = {field["name"]: self._default(field["type"]) for field in kind["fields"]}
            return self if self in found.values() else found
        if plain == "array":
            element = self._default(kind["items"])
            return [] if element is self else [element] * self._random.randint(0, 2)
        if plain == "map":
            value = self._default(kind["values"])
            return {} if value is self else {"k": value, "l": value}
        return {
            "null": None, "boolean": True, "int": 7, "long": -8, "float": 1.5, "double": 2, "bytes": "\u0001\u00fe",
            "string": "käse", "enum": "A",
        }.get(plain, self)  # fmt: skip

    def before(self, schema: Any) -> Any:
        """Return a schema under which older records may have been written."""
        return self._changed(copy.deepcopy(schema))

    def _changed(self, schema: Any) -> Any:
        chance = self._random.random()
        if chance < 0.03:
            return self.schema(1)
        if isinstance(schema, list):
            if chance < 0.2:
                return self._changed(schema[-1])
            if chance < 0.4:
                return [*schema, *([] if {"null", "boolean"} & set(map(str, schema)) else ["null"])]
            return [self._changed(one) if isinstance(one, dict) else one for one in schema]
        if isinstance(schema, str):
            earlier = {"long": "int", "double": "float", "string": "bytes", "bytes": "string", "float": "long"}
            schema = earlier.get(schema, schema) if chance < 0.2 else schema
            return ["null", schema] if 0.2 < chance < 0.3 else schema
        if schema["type"] == "record":
            fields = []
            for field in schema["fields"]:
                if self._random.random() < 0.15:
                    continue
                names = [field["name"], *field.get("aliases", ())]
                self._random.shuffle(names)
                for name in names if isinstance(field["type"], str) else names[:1]:
                    fields.append({"name": name, "type": self._changed(field["type"])})
                if self._random.random() < 0.15:
                    fields.append({"name": f"gone{len(fields)}", "type": self.schema(1)})
            if self._random.random() < 0.3:
                self._random.shuffle(fields)
            schema["fields"] = fields or [{"name": "only", "type": "int"}]
        elif schema["type"] == "enum" and chance < 0.3:
            schema["symbols"] = ["C", "A", "E", "B"]
        elif schema["type"] in ("array", "map"):
            inner = "items" if schema["type"] == "array" else "values"
            schema[inner] = self._changed(schema[inner])
        elif "logicalType" in schema and chance < 0.2:
            schema.pop("logicalType")
        return schema

    def written(self, schema: Any) -> bytes:
        """Return a record."""
        self._meanings = names_of([schema])
        return self._written(schema)

    def _written(self, schema: Any) -> bytes:
        random = self._random
        if isinstance(schema, str):
            schema = self._meanings.get(schema, schema)
        if isinstance(schema, list):
            number = random.randrange(len(schema))
            return varint(number) + self._written(schema[number])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record":
            return b"".join(self._written(field["type"]) for field in schema["fields"])
        if kind == "array":
            return self._blocks([self._written(schema["items"]) for _ in range(random.choice([0, 0, 1, 2, 5]))])
        if kind == "map":
            count = random.choice([0, 0, 1, 2, 5, 40])
            keys = [f"{TEXTS[n % 7]}{n if random.random() >= self._twins else 0}".encode() for n in range(count)]
            return self._blocks([varint(len(key)) + key + self._written(schema["values"]) for key in keys])
        if kind == "enum":
            return varint(random.randrange(len(schema["symbols"])))
        if kind == "fixed":
            return random.randbytes(schema["size"])
        if kind == "boolean":
            return bytes([random.randrange(2)])
        if kind == "int":
            return varint(random.choice([n for n in SPECIAL if -(2**31) <= n < 2**31]))
        if kind == "long":
            return varint(random.choice(SPECIAL) if random.random() < 0.8 else random.randrange(-(10**15), 10**15))
        if kind in ("float", "double"):
            value = random.choice([0.0, -0.0, 0.1, 1e30, -1.5, float("inf"), float("nan")])
            return struct.pack("<d" if kind == "double" else "<f", value)
        if kind == "bytes" and isinstance(schema, dict):
            size = random.choice([0, 1, 2, 4, 16, 20])
            value = random.randrange(-(10**9), 10**9) if size else 0
            return sized(value.to_bytes(max(size, 4), "big", signed=True) if size else b"")
        if kind == "bytes":
            return sized(random.choice([b"", b"\xff\x00", b"text", random.randbytes(random.randrange(30))]))
        return sized(random.choice(TEXTS).encode()) if kind == "string" else b""

    def _blocks(self, elements: list[bytes]) -> bytes:
        found = b""
        while elements:
            count = self._random.randint(1, len(elements))
            block, elements = b"".join(elements[:count]), elements[count:]
            with_size = self._random.random() < 0.3
            found += (varint(-count) + varint(len(block)) if with_size else varint(count)) + block
        return found + b"\0"

    def damaged(self, value: bytes) -> bytes:
        """Return the record, possibly damaged."""
        random, found = self._random, bytearray(value)
        for _ in range(random.randint(1, 3)):
            if found:
                at = random.randrange(len(found))
                how = random.randrange(5)
                if how == 0:
                    found[at] = random.randrange(256)
                elif how == 1:
                    found[at] = (found[at] + random.choice([-2, -1, 1, 2, 4])) % 256
                elif how == 2:
                    del found[at:]
                elif how == 3:
                    found[at:at] = random.randbytes(random.randint(1, 3))
                else:
                    found[at : at + 1] = varint(random.choice(SPECIAL))
        return bytes(found)
