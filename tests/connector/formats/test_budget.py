"""What values cost as Python objects."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_kafka_group.formats.budget import cost_of

OBJECTS, EACH = 4, 64
POINT = pa.struct({"x": pa.int64(), "y": pa.int8()})


@pytest.mark.parametrize(
    ("kind", "cost"),
    [
        (pa.int64(), 8 * OBJECTS + EACH),
        (pa.bool_(), 1 * OBJECTS + EACH),
        (pa.string(), 4 * OBJECTS + EACH),
        (pa.list_(POINT), 4 * OBJECTS + EACH),  # without its elements
        (POINT, 9 * OBJECTS + 3 * EACH),
        (pa.struct({"at": POINT, "name": pa.string()}), 13 * OBJECTS + 5 * EACH),
    ],
    ids=str,
)
def test_each_field_of_a_struct_is_an_object(kind: pa.DataType, cost: int) -> None:
    assert cost_of(kind) == cost
