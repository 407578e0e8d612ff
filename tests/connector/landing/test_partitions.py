"""Tables that are partitioned by fields: each file has one value of them, and readers who ask for it find its rows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql.types import StructType

from pyspark_kafka_group.columns.schema import to_arrow
from pyspark_kafka_group.landing.errors import TableChangedError, UnsupportedTableError
from pyspark_kafka_group.landing.layout import Layout
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from tests.connector.landing import applications
from tests.connector.landing.applications import ONE, ZERO, Application, Delta, Iceberg, Place

VALUE = (
    StructType()
    .add("region", "string")
    .add("topic", "string")
    .add("shop", "integer")
    .add("paid", "boolean")
    .add("price", "double")
    .add("at", "timestamp")
)
LONG = "r" * 5000
"""A text that Parquet has no bounds for."""

REGIONS = ("eu", "us", None, LONG, "")


@dataclass
class Orders(Application):
    """An application whose values have fields."""

    @property
    def schema(self) -> StructType:
        rows = super().schema
        return StructType([rows[name] for name in rows.names]).add("value", VALUE)

    def __post_init__(self) -> None:
        self.columns = tuple(name for name in self.columns if name != "value")
        super().__post_init__()
        self.columns += ("value",)


Fields = Callable[[int], dict[str, Any]]


@pytest.fixture(params=[Delta, Iceberg])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    found: Place = request.param(tmp_path / "lake")
    return found


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fields], None]:
    """Return a function that gives each record the value that a function returns for its offset."""
    real = applications.records

    def use(fields: Fields) -> None:
        kind = to_arrow(StructType().add("value", VALUE)).field("value")

        def typed(tp: TopicPartition, r: OffsetRange) -> Iterator[pa.RecordBatch]:
            for batch in real(tp, r):
                found = pa.array([fields(n) for n in batch.column("offset").to_pylist()], kind.type)
                yield batch.set_column(batch.schema.get_field_index("value"), kind, found)

        monkeypatch.setattr(applications, "records", typed)

    return use


def by(at: Place, *paths: str) -> dict[str, Any]:
    """Return the parameters of a table that is partitioned by its topic and by these fields."""
    if isinstance(at, Iceberg):
        return {"partition_by": ("topic", *paths)}
    names = {path.replace(".", "_"): path for path in paths}
    return {"partition_by": ("topic", *names), "field_columns": names}


def found(at: Place, path: str, value: Any) -> list[int]:
    """Return the offsets of the rows with a value, as a reader that leaves out other partitions finds them."""
    if isinstance(at, Delta):
        column = pl.col(path.replace(".", "_"))
        wanted = column.is_null() if value is None else column == value
        return sorted(pl.scan_delta(str(at.data)).filter(wanted).collect()["offset"])
    text = f"'{value}'" if isinstance(value, str) else value
    wanted = f"{path} is null" if value is None else f"{path} = {text}"
    return sorted(at.table().scan(row_filter=wanted).to_arrow()["offset"].to_pylist())


def test_each_file_has_one_value_of_a_field(at: Place, values: Callable[[Fields], None]) -> None:
    regions = REGIONS if isinstance(at, Iceberg) else REGIONS[:-1]  # for Delta, an empty text is null
    values(lambda n: {"region": regions[n % len(regions)]})
    one = Orders(at, by(at, "value.region"))
    assert one.land({ZERO: (0, 10), ONE: (0, 1)}).files == len(regions) + 1
    # It has read more, and its files must be written again for the rest.
    assert Orders(at, by(at, "value.region")).land({ZERO: (3, 20)}, finished=3).records == 10
    rows = sorted(
        (row["partition"], row["offset"], row["value"]["region"]) for row in at.rows() if row["value"]["region"]
    )
    assert rows == sorted(
        [(1, 0, "eu"), *((0, n, regions[n % len(regions)]) for n in range(20) if regions[n % len(regions)])]
    )
    for number, region in enumerate(regions):
        offsets = [n for n in range(20) if n % len(regions) == number]
        assert found(at, "value.region", region) == sorted([0] * (number == 0) + offsets)


def test_by_a_number_and_a_boolean(at: Place, values: Callable[[Fields], None]) -> None:
    values(lambda n: {"shop": n % 2, "paid": None if n % 3 == 2 else n % 3 == 1})
    Orders(at, by(at, "value.shop", "value.paid")).land({ZERO: (0, 12)})
    assert found(at, "value.shop", 1) == [1, 3, 5, 7, 9, 11]
    assert found(at, "value.paid", True) == [1, 4, 7, 10]
    assert found(at, "value.paid", None) == [2, 5, 8, 11]
    added = at.table().file_uris() if isinstance(at, Delta) else at.table().inspect.data_files()["file_path"]
    assert len(added) == 6
    if isinstance(at, Delta):  # as Delta's protocol writes booleans
        log = "".join(path.read_text() for path in at.data.glob("_delta_log/*.json"))
        assert {text in log for text in ('"value_paid":"true"', '"value_paid":"false"', '"value_paid":null')} == {True}


def test_very_many_values_cost_no_quadratic_time() -> None:
    """With a filter of all rows for each value, this took more than 100 s instead of 2 s."""
    count = 200_000
    value = pa.StructArray.from_arrays([pa.array([str(n % 100_000) for n in range(count)])], ["id"])
    rows = pa.table({"value": value, "offset": range(count)})
    begin = time.process_time()
    parts = {
        shared["value.id"]: part.column("offset").to_pylist()
        for shared, part in Layout(table="id", one_value=("value.id",)).parts(rows)
    }
    assert time.process_time() - begin < 20
    assert parts == {str(n): [n, n + 100_000] for n in range(100_000)}


def test_the_values_of_a_part_are_those_of_its_rows() -> None:
    """Regression: with some thirty values or more, a file could have the partition of another one."""
    some = random.Random(5)
    texts: list[str | None] = [None, "", "\x00", *(str(some.random()) for _ in range(200))]
    for rows in (40, 3_000):
        columns = {
            "one": pa.array(some.choices(texts, k=rows), pa.string()),
            "two": pa.array(some.choices([None, True, False], k=rows)),
            "three": pa.array(some.choices([None, *range(-50, 50)], k=rows), pa.int64()),
        }
        for names in (["one"], ["three", "two"], ["two", "one", "three"]):
            found = [*Layout(table="id", one_value=tuple(names)).parts(pa.table({**columns, "offset": range(rows)}))]
            for shared, part in found:
                assert {name: set(part.column(name).to_pylist()) for name in names} == {
                    name: {value} for name, value in shared.items()
                }
                offsets = part.column("offset").to_pylist()
                assert offsets == sorted(offsets)
            assert sum(part.num_rows for _, part in found) == rows
            assert len({tuple(shared.values()) for shared, _ in found}) == len(found)


def test_a_field_may_have_the_name_of_a_column(at: Place, values: Callable[[Fields], None]) -> None:
    """Regression: landing took Iceberg's partition `value.topic` for the topic of the records."""
    values(lambda n: {"topic": REGIONS[n % 2]})
    Orders(at, by(at, "value.topic")).land({ZERO: (0, 6)})
    assert found(at, "value.topic", "eu") == [0, 2, 4]
    assert found(at, "topic", "orders") == [*range(6)]


@pytest.mark.parametrize("path", ["value.price", "value.at", "value", "value.shop.x", "nothing", "value.nothing"])
def test_other_fields_are_refused(at: Place, path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"a text, a whole number or a boolean, such as value\.region"):
        Orders(at, by(at, path))


def test_further_columns_of_delta_have_new_names(tmp_path: Path) -> None:
    at = Delta(tmp_path / "lake")
    for name, more in (("OFFSET", {}), ("day", {"day_column": "Day"})):
        with pytest.raises(ConfigurationError, match=f"field_columns={{'{name}': 'value.shop'}} is not possible"):
            Orders(at, {"field_columns": {name: "value.shop"}, **more})


def test_a_table_without_bounds_has_its_partitions(tmp_path: Path) -> None:
    """Regression: the partition came from bounds, so it was null, and readers that ask for a topic missed its rows."""
    at = Iceberg(tmp_path / "lake")
    more = {"partition_by": ("topic", "day")}
    Application(at, more)
    with at.table().transaction() as change:
        change.set_properties({"write.metadata.metrics.default": "none"})
    Application(at, more).land({ZERO: (0, 20)})
    assert found(at, "topic", "orders") == [*range(20)]
    partitions = at.table().inspect.partitions()["partition"].to_pylist()
    assert sorted(str(one["timestamp_day"]) for one in partitions) == ["1970-01-01", "1970-01-02"]


def test_a_table_may_be_partitioned_by_a_column_that_the_source_lacks(tmp_path: Path) -> None:
    at = Iceberg(tmp_path / "lake")
    Application(at)
    with at.table().update_schema() as update:
        update.union_by_name(pa.schema([pa.field("country", pa.string()), pa.field("weight", pa.float64())]))
    with at.table().update_spec() as spec:
        spec.add_identity("country")
    Application(at).land({ZERO: (0, 5)})
    assert found(at, "country", None) == [*range(5)]
    with at.table().update_spec() as spec:
        spec.add_identity("weight")
    with pytest.raises(UnsupportedTableError, match=r"the partition field identity\(weight\)"):
        Application(at)


def test_partitions_that_change_during_a_run_end_it(at: Place) -> None:
    """Regression: the error was about the network, and if the table had fewer partitions now, there was none."""
    one = Application(at)
    one.land({ZERO: (0, 5)})
    late = one.ready({ZERO: (5, 10)})
    if isinstance(at, Iceberg):
        with at.table().update_spec() as spec:
            spec.add_identity("topic")
    else:
        rows = at.table().to_pyarrow_table()
        write_deltalake(at.data, rows, mode="overwrite", schema_mode="overwrite", partition_by=["topic"])
    with pytest.raises(TableChangedError, match="Start the query again: it lands the batch by the new partitions"):
        one.commit(late)
    Application(at).land({ZERO: (5, 10)})
    assert sorted(row["offset"] for row in at.rows()) == [*range(10)]
