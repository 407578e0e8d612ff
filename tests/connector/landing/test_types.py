"""Values of other types than bytes: which a table has, and what the table says about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import ByteType, DataType, DayTimeIntervalType, ShortType, StringType, StructType

from pyspark_kafka_group.columns.schema import arrow_schema, to_arrow
from pyspark_kafka_group.landing import files, iceberg_files
from pyspark_kafka_group.landing.errors import UnsupportedTableError
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.stores.errors import RefusedRecordError
from tests.connector.landing.applications import COLUMNS, ZERO, Application, Delta, Iceberg, Place, files_of


@dataclass
class Typed(Application):
    """An application whose values have a type of Spark."""

    kind: DataType = field(default_factory=StringType)
    make: Callable[[int], Any] = str

    @property
    def schema(self) -> StructType:
        found = StructType()
        for one in super().schema:
            found.add(one.name, self.kind if one.name == "value" else one.dataType)
        return found

    def read(self, tp: TopicPartition, r: OffsetRange) -> Iterator[pa.RecordBatch]:
        kind = to_arrow(self.schema).field("value")
        for batch in super().read(tp, r):
            values = pa.array([self.make(n) for n in batch.column("offset").to_pylist()], kind.type)
            yield batch.set_column(batch.schema.get_field_index("value"), kind, values)


@pytest.fixture(params=[Delta, Iceberg])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    found: Place = request.param(tmp_path / "lake")
    return found


@pytest.fixture
def iceberg(tmp_path: Path) -> Iceberg:
    return Iceberg(tmp_path / "lake")


def test_a_row_group_with_texts_that_are_too_long_for_bounds(iceberg: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the bounds were those of the other row groups, so readers and DELETE left out rows, or lost them."""
    monkeypatch.setattr(files, "_ROW_GROUP_BYTES", 1)
    texts = [*"mnopmno", "a", "z" * 5000, "zebra", *"aaaa"]
    Typed(iceberg, kind=StringType(), make=texts.__getitem__).land({ZERO: (0, 14)})
    assert [pq.ParquetFile(path).num_row_groups for path in files_of(iceberg)] == [2]
    for text in ("m", "zebra", "a"):
        found = iceberg.table().scan(row_filter=f"value = '{text}'").to_arrow()
        assert found.num_rows == texts.count(text)
    iceberg.table().delete("value >= 'm' and value <= 'p'")
    assert sorted(row["offset"] for row in iceberg.rows()) == [*range(7, 14)]


def test_row_groups_of_nulls_leave_the_bounds_of_the_others(iceberg: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ROW_GROUP_BYTES", 1)
    Typed(iceberg, make=lambda n: None if n < 7 else str(n % 2)).land({ZERO: (0, 14)})
    bounds = iceberg.table().inspect.files()["readable_metrics"][0]["value"].as_py()
    assert (bounds["null_value_count"], bounds["lower_bound"], bounds["upper_bound"]) == (7, "0", "1")


def test_a_text_whose_upper_bound_would_be_no_text(iceberg: Iceberg) -> None:
    """Regression: pyiceberg adds one to the 16th character, and U+D800 cannot be encoded.  The query never went on."""
    texts = ["x" * 15 + "\ud7ff" + "tail", "a"]
    Typed(iceberg, make=lambda n: texts[n % 2]).land({ZERO: (0, 4)})
    assert sorted(row["value"] for row in iceberg.rows()) == sorted(2 * texts)
    assert iceberg.table().scan(row_filter=f"value = '{texts[0]}'").to_arrow().num_rows == 2


def test_a_task_that_cannot_describe_its_file_removes_it(iceberg: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Application(iceberg)

    def described(*_: Any) -> None:
        raise RuntimeError("no footer")

    monkeypatch.setattr(iceberg_files, "described", described)
    with pytest.raises(RuntimeError, match="no footer"):
        one.land({ZERO: (0, 4)})
    assert not files_of(iceberg)


def test_iceberg_has_no_short_integers(iceberg: Iceberg) -> None:
    """Regression: the table was created with 32 bits, and refused by its own query."""
    kind = StructType().add("short", ShortType()).add("bytes", StructType().add("byte", ByteType()))
    make: Callable[[int], Any] = lambda n: {"short": -n, "bytes": {"byte": n}}  # noqa: E731
    for start in (0, 5):
        Typed(iceberg, kind=kind, make=make).land({ZERO: (start, start + 5)})
    assert [row["value"] for row in sorted(iceberg.rows(), key=lambda row: row["offset"])] == [*map(make, range(10))]


def test_types_of_no_table_are_refused_before_it_is_created(at: Place) -> None:
    """Regression: the error was about the network."""
    kind = StructType().add("took", DayTimeIntervalType())
    with pytest.raises(ConfigurationError, match=r"these types: value\.took \(duration\[us\]\)"):
        Typed(at, kind=kind, make=lambda n: {"took": timedelta(n)})
    assert not at.data.exists()


def test_an_empty_text_is_null_where_delta_does_not_take_null(tmp_path: Path) -> None:
    """Regression: it was committed, and then no reader could open the table."""
    at, region = Delta(tmp_path / "lake"), pa.field("region", pa.string(), nullable=False)
    value = StructType().add("region", "string")
    columns = [to_arrow(StructType().add("value", value)).field("value")]
    columns += [one for one in arrow_schema(COLUMNS) if one.name != "value"]
    DeltaTable.create(at.data, pa.schema([*columns, region]), partition_by=["region"])
    more = {"field_columns": {"region": "value.region"}}
    one = Typed(at, more, kind=value, make=lambda n: {"region": "" if n == 5 else "eu"})
    assert one.land({ZERO: (0, 4)}).records == 4
    with pytest.raises(RefusedRecordError, match="null in: region"):
        one.land({ZERO: (4, 8)})
    assert len(at.rows()) == 4


def test_texts_of_a_limited_length_are_refused(tmp_path: Path) -> None:
    at = Delta(tmp_path / "lake")
    limited = pa.field("topic", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(10)"})
    at.create(pa.schema([limited if one.name == "topic" else one for one in arrow_schema(COLUMNS)]))
    with pytest.raises(UnsupportedTableError, match="the type CHAR or VARCHAR of the column topic"):
        Application(at)


def test_columns_keep_not_null_when_others_are_added(at: Place) -> None:
    """Regression: pyiceberg made them take null, because those of the source may be null."""
    schema = arrow_schema(COLUMNS[1:])
    at.create(pa.schema([one.with_nullable(one.name != "value") for one in schema]))
    one = Application(at, {"new_columns": "add"})
    look = one.target._look()
    assert look.columns.keys() == {*COLUMNS}
    assert [name for name, nullable in look.columns.items() if not nullable] == ["value"]


def test_a_null_that_the_table_does_not_take(at: Place) -> None:
    fields = [pa.field(f.name, f.type, nullable=f.name not in ("key", "topic")) for f in arrow_schema(COLUMNS)]
    at.create(pa.schema(fields))
    with pytest.raises(RefusedRecordError, match="does not take null in: key"):
        Application(at).land({ZERO: (0, 10)})
    assert files_of(at) == []
