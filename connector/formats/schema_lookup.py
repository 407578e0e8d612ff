"""Looks up the writer's schemas of the records of one column, before the records are decoded.

Confluent's serializers put a zero and the id of the schema before a record.  A producer may write any id.  An id that
the registry does not have costs a request.  So each batch of records has a limit for such ids, and the ids of most
records come first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark_kafka_group.formats.decoder import MalformedValueError
from pyspark_kafka_group.formats.registry import Definition, UnknownSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

ID_BYTES = 5
"""The size of a zero and the id of a schema."""


def schema_id(value: bytes) -> int:
    """Return the id of the writer's schema of a record; raise :class:`MalformedValueError`."""
    if len(value) < ID_BYTES:
        raise MalformedValueError(f"it has {len(value)} bytes, but the id of a schema alone takes {ID_BYTES}")
    if value[0] != 0:
        raise MalformedValueError("it does not begin with 0, as a record with the id of a schema does")
    return int.from_bytes(value[1:ID_BYTES], "big")


def schema_ids(values: pa.BinaryArray) -> list[int]:
    """Return the schema ids of records, without duplicates and the most frequent ones first."""
    import pyarrow.compute as pc

    heads = pc.binary_slice(values, 0, ID_BYTES).drop_null().value_counts()
    counted = zip(heads.field("values").to_pylist(), heads.field("counts").to_pylist(), strict=True)
    most_first = sorted(counted, key=lambda one: -one[1])
    return [int.from_bytes(head[1:], "big") for head, _ in most_first if len(head) == ID_BYTES and head[0] == 0]


DefinitionOf = Callable[[int], Definition]

MOST_UNKNOWN = 64
"""How many unknown ids one batch looks up.  A batch may have 8192 of them: to look up all would take a minute."""


class SchemaLookup:
    """Looks up the schemas of one column.

    Parameters
    ----------
    reader : Definition
        The reader's schema, which needs no lookup.
    definition_of : callable
        Returns the schema with an id, or raises `UnknownSchemaError`.
    """

    def __init__(self, reader: Definition, definition_of: DefinitionOf) -> None:
        self._definition_of = definition_of
        self._known = {} if reader.id is None else {reader.id: reader}
        self._missing: dict[int, str] = {}
        self._asked = 0  # requests for unknown ids

    def begin(self, values: pa.BinaryArray) -> list[int]:
        """Look up the schemas of the next records, and return their ids.

        Raises
        ------
        KafkaGroupError
            If the registry does not answer.
        """
        self._missing.clear()  # the registry may have them now
        self._asked = 0
        found = schema_ids(values)
        for number in found:
            if number in self._known:
                continue
            if self._asked < MOST_UNKNOWN:
                self._ask(number)
            else:
                self._missing[number] = (
                    f"schema {number} was not looked up, because the registry does not have {MOST_UNKNOWN} other ids "
                    f"of the same batch"
                )
        return found

    def definition(self, number: int) -> Definition:
        """Return a schema.

        Raises
        ------
        MalformedValueError
            If the registry does not have the schema, or it was not looked up.
        """
        if number not in self._known and number not in self._missing:
            self._ask(number)
        if number in self._missing:
            raise MalformedValueError(self._missing[number])
        return self._known[number]

    def _ask(self, number: int) -> None:
        try:
            self._known[number] = self._definition_of(number)
        except UnknownSchemaError as problem:
            self._asked += problem.asked
            self._missing[number] = f"the registry has no schema {number}"
