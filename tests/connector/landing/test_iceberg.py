"""What only Iceberg has: a catalog whose answers get lost, snapshots that expire, and partition transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType

from pyspark_kafka_group.columns.schema import arrow_schema
from pyspark_kafka_group.landing import iceberg
from pyspark_kafka_group.landing.errors import LandingError, TableChangedError, UnsupportedTableError
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores.errors import TableBehindError
from tests.connector.landing.applications import (
    COLUMNS,
    ONE,
    ZERO,
    Application,
    Iceberg,
    before_the_next_commit,
    files_of,
    judge,
    once,
)


@pytest.fixture
def at(tmp_path: Path) -> Iceberg:
    return Iceberg(tmp_path / "lake")


def test_a_conflict_as_the_answer_to_a_commit_that_has_landed(at: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression for the design: pyiceberg repeats such a commit, or deletes the manifests of the current snapshot."""
    one = Application(at)
    one.land({ZERO: (0, 10)})
    real = SqlCatalog.commit_table

    def commit(*arguments: Any, **more: Any) -> Any:
        real(*arguments, **more)
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        raise CommitFailedException("409")

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    result = one.land({ZERO: (10, 30)})
    assert (result.records, result.conflicts) == (20, 1)
    assert judge(at) == once({ZERO: (0, 30)})


def test_any_other_commit_is_a_conflict(at: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Application(at), Application(at)
    one.land({ZERO: (0, 10)})
    before_the_next_commit(monkeypatch, at, lambda: other.land({ONE: (0, 10)}))
    assert one.land({ZERO: (10, 20)}).conflicts == 1
    assert judge(at) == once({ZERO: (0, 20), ONE: (0, 10)})


def test_offsets_stay_when_snapshots_expire(at: Iceberg) -> None:
    one = Application(at)
    for n in range(4):
        one.land({ZERO: (n, n + 1)})
    newest = at.newest()
    expire(at.table(), {s.snapshot_id for s in at.table().metadata.snapshots} - {newest})
    assert Application(at).land({ZERO: (0, 6)}).records == 2
    assert judge(at) == once({ZERO: (0, 6)})


def test_a_renamed_table_keeps_its_files_beside_the_next_one_of_its_name(at: Iceberg) -> None:
    """Regression: both have one folder, and the new table has removed the files of the old one as orphans."""
    Application(at).land({ZERO: (0, 10)})
    catalog = load_catalog("default", **at.catalog)
    catalog.rename_table("shop.orders", "shop.orders_old")
    assert Application(at).land({ZERO: (0, 30)}).orphans == 0
    assert at.table().location() == catalog.load_table("shop.orders_old").location()
    assert catalog.load_table("shop.orders_old").scan().to_arrow().num_rows == 10
    assert judge(at) == once({ZERO: (0, 30)})


def expire(table: Table, ids: set[int]) -> None:
    table.maintenance.expire_snapshots().by_ids([*ids]).commit()


def test_a_rollback_that_no_snapshot_shows(at: Iceberg) -> None:
    one = Application(at)
    one.land({ZERO: (0, 10)})
    good = at.newest()
    one.land({ZERO: (10, 20)})
    lost = at.newest()
    at.roll_back(good)
    expire(at.table(), {lost})
    with pytest.raises(TableBehindError, match="snapshots that would show what it has lost have expired"):
        one.land({ZERO: (20, 30)})
    assert judge(at) == once({ZERO: (0, 10)})


def test_partitions_by_day_and_topic(at: Iceberg) -> None:
    one = Application(at, {"partition_by": ("day", "topic")})
    assert one.land({ZERO: (0, 25), ONE: (8, 12)}).files == 5
    assert Application(at).land({ZERO: (15, 31)}).records == 6
    assert judge(at) == once({ZERO: (0, 31), ONE: (8, 12)})
    found = at.table().scan(row_filter="timestamp >= '1970-01-03T00:00:00+00:00'").to_arrow()
    assert sorted(found["offset"].to_pylist()) == [*range(20, 31)]
    with pytest.raises(ConfigurationError, match="Use topic, partition, day, and"):
        Application(at, {"partition_by": ("bucket",)})


def set_property(at: Iceberg, name: str, value: str) -> None:
    with at.table().transaction() as change:
        change.set_properties({name: value})


@pytest.mark.parametrize("created", [True, False])
def test_manifests_are_merged(at: Iceberg, monkeypatch: pytest.MonkeyPatch, *, created: bool) -> None:
    """Also those of a table that others have created: Iceberg's default is not pyiceberg's."""
    monkeypatch.setattr(iceberg, "_MANIFESTS", 3)
    if not created:
        at.create(arrow_schema(COLUMNS))
    one = Application(at)
    set_property(at, "commit.manifest.min-count-to-merge", "2")
    for n in range(8):
        one.land({ZERO: (n, n + 1)})
    snapshot = at.table().current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(at.table().io)) < 8
    assert judge(at) == once({ZERO: (0, 8)})


def test_a_commit_does_not_copy_old_snapshots(at: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: pyiceberg copied all of them a dozen times for one commit: 1.6 s with 3,000 snapshots."""
    one = Application(at)
    for n in range(5):
        one.land({ZERO: (n, n + 1)})
    old = at.table().metadata
    with at.table().manage_snapshots() as manage:
        manage.create_tag(old.snapshots[0].snapshot_id, "first")
    copied: list[int] = []
    real = Snapshot.__deepcopy__

    def deepcopy(self: Snapshot, memo: Any = None) -> Snapshot:
        copied.append(self.snapshot_id)
        return real(self, memo)

    monkeypatch.setattr(Snapshot, "__deepcopy__", deepcopy)
    one.land({ZERO: (5, 6)})
    new = at.table().metadata
    assert copied.count(old.snapshots[0].snapshot_id) <= 1  # this catalog applies the commit in our process
    assert new.snapshots[:-1] == old.snapshots
    assert new.snapshot_log[:-1] == old.snapshot_log
    assert new.refs.keys() == {"main", "first"}
    assert judge(at) == once({ZERO: (0, 6)})


def test_the_property_of_the_table_decides_the_codec_of_files(at: Iceberg) -> None:
    Application(at).land({ZERO: (0, 5)})
    set_property(at, "write.parquet.compression-codec", "gzip")
    Application(at).land({ZERO: (5, 9)})
    codecs = [pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in sorted(files_of(at))]
    assert codecs == ["ZSTD", "GZIP"]
    set_property(at, "write.parquet.compression-codec", "uncompressed")
    Application(at).land({ZERO: (9, 12)})
    assert judge(at) == once({ZERO: (0, 12)})


def test_a_renamed_column_keeps_its_values(at: Iceberg) -> None:
    """Files contain the table's ids of columns."""
    Application(at).land({ZERO: (0, 5)})
    with at.table().update_schema() as update:
        update.rename_column("value", "body")
    rows = at.table().scan().to_arrow()
    assert sorted(rows["body"].to_pylist()) == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(UnsupportedTableError, match="no column value"):
        Application(at)


def test_columns_that_became_others_while_a_query_runs(at: Iceberg) -> None:
    """Regression: files name columns by number, so the values of such batches could not be read, or were swapped."""
    one = Application(at)
    one.land({ZERO: (0, 5)})
    with at.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("value")
    with at.table().update_schema() as update:
        update.add_column("value", BinaryType())
    with pytest.raises(TableChangedError, match="The columns of IcebergLanding"):
        one.land({ZERO: (5, 9)})
    Application(at).land({ZERO: (5, 9)})
    assert sorted((row["offset"], row["value"]) for row in at.rows() if row["value"]) == [
        (n, str(n).encode()) for n in range(5, 9)
    ]


def test_another_application_creates_the_table_first(at: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    Application(at)
    monkeypatch.setattr(SqlCatalog, "table_exists", lambda *_: False)
    Application(at).land({ZERO: (0, 5)})
    assert judge(at) == once({ZERO: (0, 5)})


def test_a_partition_by_a_name_with_a_dot_is_refused(at: Iceberg) -> None:
    at.create(arrow_schema(COLUMNS).append(pa.field("geo.region", pa.string())))
    with at.table().update_spec() as spec:
        spec.add_identity("geo.region")
    with pytest.raises(UnsupportedTableError, match=r"the partition field identity\(geo\.region\)"):
        Application(at)


def test_tables_that_would_be_written_wrongly_are_refused(at: Iceberg) -> None:
    Application(at)
    with at.table().update_spec() as spec:
        spec.add_field("offset", BucketTransform(4), "bucket")
    set_property(at, "write.parquet.compression-codec", "lzo")
    with pytest.raises(UnsupportedTableError, match=r"the property write\.parquet\.compression-codec=lzo"):
        Application(at)
    with pytest.raises(UnsupportedTableError, match=r"the partition field bucket\[4\]\(offset\)"):
        Application(at)


def test_a_catalog_that_does_not_answer(at: Iceberg) -> None:
    silent = iceberg.IcebergLanding("shop.orders", {"type": "rest", "uri": "http://127.0.0.1:9"})
    with pytest.raises(LandingError, match=r"IcebergLanding: shop\.orders could not be read.*Check its address"):
        silent._prepare(Application(at).schema)


def test_secrets_of_the_catalog_do_not_travel(at: Iceberg) -> None:
    """The executors get the properties of files only."""
    target = str(Application(at).target._target())
    assert "sqlite" not in target
    assert "catalog.db" not in target
