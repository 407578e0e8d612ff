"""Whether the columns of the source fit those of a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_kafka_group.landing.fitting import Misfits, misfits

FILLED = pa.field("a", pa.int64(), nullable=False)
INNER = pa.struct([("a", pa.int64()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("source", "table", "expected"),
    [
        (pa.string(), pa.large_string(), Misfits([], [])),
        (pa.int32(), pa.int64(), Misfits([], ["x has another type"])),
        (INNER, pa.struct([("b", pa.string()), ("c", pa.int8()), ("a", pa.int64())]), Misfits([], [])),
        (INNER, pa.struct([("b", pa.string())]), Misfits(["x.a"], [])),
        (INNER, pa.string(), Misfits([], ["x has another type"])),
        (pa.list_(INNER), pa.large_list(pa.struct([("a", pa.int64())])), Misfits(["x.element.b"], [])),
        (pa.map_(pa.string(), INNER), pa.map_(pa.int8(), INNER), Misfits([], ["x.key has another type"])),
        (pa.map_(pa.int8(), INNER), pa.map_(pa.int8(), pa.struct([("a", pa.int64())])), Misfits(["x.value.b"], [])),
        (INNER, pa.struct([("A", pa.int64()), ("b", pa.string())]), Misfits([], ["x.a is x.A"])),
        (INNER, pa.struct([FILLED, ("b", pa.string())]), Misfits([], ["x.a must not be null"])),
        (pa.struct([FILLED]), pa.struct([FILLED]), Misfits([], [])),
        (pa.list_(pa.int64()), pa.list_(FILLED), Misfits([], ["x.element must not be null"])),
        (pa.map_(pa.int8(), pa.int64()), pa.map_(pa.int8(), FILLED), Misfits([], ["x.value must not be null"])),
    ],
)
def test_types(source: pa.DataType, table: pa.DataType, expected: Misfits) -> None:
    assert misfits(pa.schema([("x", source)]), pa.schema([("x", table)])) == expected


def test_further_columns_of_the_table_take_null() -> None:
    table = pa.schema([pa.field("x", pa.int8()), pa.field("y", pa.int8()), pa.field("z", pa.int8(), nullable=False)])
    assert misfits(pa.schema([("x", pa.int8())]), table) == Misfits([], ["z must not be null"])
