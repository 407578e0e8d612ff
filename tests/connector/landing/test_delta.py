"""What only Delta has: features of tables, statistics, checkpoints of the log, and maintenance by deltalake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import StructType

from pyspark_kafka_group.columns.schema import arrow_schema
from pyspark_kafka_group.landing import delta
from pyspark_kafka_group.landing.delta import DeltaLanding, DeltaState
from pyspark_kafka_group.landing.errors import LandingError, UnsupportedTableError
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores.errors import LakeConflictError
from tests.connector.landing.applications import (
    COLUMNS,
    ONE,
    ZERO,
    Application,
    Delta,
    before_the_next_commit,
    judge,
    lose_answers,
    once,
)


@pytest.fixture
def at(tmp_path: Path) -> Delta:
    return Delta(tmp_path / "lake")


def test_files_of_a_lost_answer_stay_after_compaction(at: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no longer in the newest version, but readers of an older version need them."""

    def compact() -> None:
        at.table().optimize.compact()

    lose_answers(monkeypatch, at, compact)
    Application(at).land({ZERO: (0, 60)}, tasks=3)
    found = at.table()
    assert judge(at) == once({ZERO: (0, 60)})
    found.load_as_version(found.version() - 1)
    assert found.to_pyarrow_table().num_rows == 60


def test_maintenance_beside_commits(at: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Application(at)
    acts: list[Callable[[], object]] = [
        at.table().optimize.compact,
        lambda: at.table().vacuum(dry_run=False),
        lambda: at.table().delete("topic = 'others'"),
        lambda: at.table().alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
        lambda: at.table().create_checkpoint(),
    ]
    for n, act in enumerate(acts):
        before_the_next_commit(monkeypatch, at, act)
        one.land({ZERO: (10 * n, 10 * n + 10)}, tasks=2)
    assert judge(at) == once({ZERO: (0, 50)})


def test_a_conflict_that_lasts(at: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Application(at, {"patience_s": 0.0})
    monkeypatch.setattr(
        DeltaState, "commit", MagicMock(side_effect=CommitFailedError("Concurrent transaction failed."))
    )
    with pytest.raises(LakeConflictError, match="other commits have won 1 times in 0 s"):
        one.land({ZERO: (0, 10)})


def test_partitions_by_day_topic_and_partition(at: Delta) -> None:
    more = {"day_column": "day", "partition_by": ("topic", "partition", "day")}
    one = Application(at, more)
    assert one.land({ZERO: (0, 25), ONE: (8, 12)}).files == 5
    assert Application(at, {"day_column": "day"}).land({ZERO: (15, 31)}).records == 6
    assert judge(at) == once({ZERO: (0, 31), ONE: (8, 12)})
    table = at.table().to_pyarrow_table()
    assert all(row["day"].toordinal() - 719163 == row["offset"] // 10 for row in table.to_pylist())
    with pytest.raises(ConfigurationError, match="partitioned by day"):
        Application(at)


def test_statistics_let_readers_leave_out_files_and_no_rows(at: Delta) -> None:
    one = Application(at)
    for n in range(3):
        one.land({ZERO: (10 * n, 10 * n + 10)})
    found = pl.scan_delta(str(at.data))
    assert found.filter(pl.col("offset") == 19).collect()["offset"].to_list() == [19]
    day = found.filter(pl.col("timestamp").dt.date() == pl.date(1970, 1, 3)).collect()
    assert sorted(day["offset"]) == [*range(20, 30)]
    added = pa.table(at.table().get_add_actions(flatten=True)).to_pylist()
    statistics = sorted((row["min.offset"], row["max.offset"], row["num_records"]) for row in added)
    assert statistics == [(first, first + 9, 10) for first in (0, 10, 20)]


def test_polars_reads_a_table_with_partitions(at: Delta) -> None:
    """Regression: it took the folders ``topic=orders/partition=0`` for partitions, and did not read the table."""
    Application(at, {"day_column": "day", "partition_by": ("day", "topic")}).land({ZERO: (0, 25)})
    assert pl.scan_delta(str(at.data)).filter(pl.col("topic") == "orders").collect().height == 25


@pytest.mark.parametrize(
    ("configuration", "named"),
    [
        ({"delta.columnMapping.mode": "name"}, "the property delta.columnMapping.mode=name"),
        ({"delta.setTransactionRetentionDuration": "interval 1 day"}, "delta.setTransactionRetentionDuration"),
        ({"delta.constraints.positive": "offset > 0"}, "the constraint delta.constraints.positive"),
        ({"delta.enableRowTracking": "true"}, "the property delta.enableRowTracking"),
    ],
)
def test_tables_that_would_be_written_wrongly_are_refused(
    at: Delta, configuration: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Application(at)
    changed = SimpleNamespace(partition_columns=[], id=at.table().metadata().id, configuration=configuration)
    monkeypatch.setattr(DeltaTable, "metadata", lambda _: changed)
    with pytest.raises(UnsupportedTableError, match=named):
        Application(at)


def test_features_of_a_table(at: Delta) -> None:
    """Regression: deltalake 1.6.6 adds the feature variantType with a property, and older readers refuse the table."""
    Application(at).land({ZERO: (0, 5)})  # sets the properties of this topic
    at.table().alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    assert Application(at).land({ZERO: (0, 9)}).records == 4
    returns = ZERO._replace(topic="returns")
    with pytest.raises(
        UnsupportedTableError, match=r"SET TBLPROPERTIES \('kafka-group\.landing\.returns' = '1', 'kafka-g"
    ):
        Application(at).land({returns: (0, 5)})
    assert at.table().protocol().writer_features == ["deletionVectors"]
    at.table().alter.add_feature(TableFeatures.IcebergCompatV1, allow_protocol_versions_increase=True)
    with pytest.raises(UnsupportedTableError, match="the feature icebergCompatV1"):
        Application(at)


def test_other_columns_are_an_error_at_the_start(at: Delta) -> None:
    schema = arrow_schema(COLUMNS[1:]).set(0, pa.field("value", pa.string()))
    DeltaTable.create(at.data, schema)
    with pytest.raises(UnsupportedTableError, match="no column key; value has another type"):
        Application(at)


@pytest.mark.parametrize("place", ["no folder", "no server"])
def test_a_place_that_cannot_be_reached_is_one_error_without_colours_and_secrets(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    uri, options = str(tmp_path / "file" / "table"), {}
    if place == "no server":
        uri, endpoint = "s3://lake/orders", "http://127.0.0.1:1"
        options = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu", "max_retries": "0"}
        options |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "top-secret"}
    schema = StructType().add("topic", "string").add("partition", "integer").add("offset", "long")
    with pytest.raises(LandingError, match="could not be read or committed in 1 attempt:") as found:
        DeltaLanding(uri, storage_options=options)._prepare(schema)
    assert "\x1b" not in str(found.value)
    assert "top-secret" not in str(found.value)


def test_the_log_gets_a_checkpoint(at: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_CHECKPOINT_EVERY", 4)
    one = Application(at)
    for n in range(6):
        one.land({ZERO: (n, n + 1)})
    assert [*(at.data / "_delta_log").glob("*.checkpoint.parquet")]
    assert one.next_offset(ZERO) == 6
    assert judge(at) == once({ZERO: (0, 6)})
