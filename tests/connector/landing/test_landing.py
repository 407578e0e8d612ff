"""Landing with both formats: races, kills, pauses, replays and rollbacks, with real files and real commits."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, StructType

from pyspark_kafka_group.columns.schema import arrow_schema, spark_schema
from pyspark_kafka_group.landing import DeltaLanding, files
from pyspark_kafka_group.landing.errors import LandingError, TableChangedError, UnsupportedTableError
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.stores.errors import OtherTopicError, RefusedRecordError, TableBehindError
from pyspark_kafka_group.stores.lake_history import OffsetSpan
from tests.connector.landing import applications
from tests.connector.landing.applications import (
    COLUMNS,
    DAY_US,
    ONE,
    ZERO,
    Application,
    Delta,
    Iceberg,
    Place,
    before_the_next_commit,
    files_of,
    judge,
    lose_answers,
    once,
    records,
)
from tests.packaging.packages import ROOT


@pytest.fixture(params=[Delta, Iceberg])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    found: Place = request.param(tmp_path / "lake")
    return found


def test_records_are_landed_once_also_if_batches_run_again(at: Place) -> None:
    one = Application(at)
    first = one.land({ZERO: (0, 20), ONE: (5, 9)}, tasks=2)
    assert (first.records, first.files, first.skipped, first.orphans) == (24, 4, 0, 0)
    assert first.size == sum(Path(path).stat().st_size for path in files_of(at))
    again = Application(at).land({ZERO: (0, 20), ONE: (5, 9)})
    assert (again.records, again.skipped, again.orphans) == (0, 24, 2)
    # With other limits: a file is written again with the rest of its records.
    more = Application(at).land({ZERO: (10, 35), ONE: (5, 9)})
    assert (more.records, more.skipped, more.orphans) == (15, 14, 2)
    assert judge(at) == once({ZERO: (0, 35), ONE: (5, 9)})
    assert len(files_of(at)) == at.committed()
    assert one.next_offset(ZERO) == 35


def test_new_columns_of_the_source_are_added_to_the_table_if_the_user_wants_it(at: Place) -> None:
    old = Application(at, columns=COLUMNS[1:])
    old.land({ZERO: (0, 5)})
    with pytest.raises(UnsupportedTableError, match="no column key"):
        Application(at)
    new = Application(at, {"new_columns": "add"})
    new.land({ONE: (0, 5)})
    assert old.land({ZERO: (3, 8)}).records == 3, "a stream that runs goes on with its own columns"
    assert judge(at) == once({ZERO: (0, 8), ONE: (0, 5)})
    assert all(row["key"] is None for row in at.rows())


def test_applications_that_add_the_same_columns_at_once(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each but the first one failed at its start."""
    Application(at, columns=COLUMNS[1:])
    real = at.look.add_columns

    def add(look: Any, source: pa.Schema) -> None:
        monkeypatch.setattr(at.look, "add_columns", real)
        Application(at, {"new_columns": "add"})
        real(look, source)
        raise RuntimeError("the other application was faster")  # not each version of the packages notices

    monkeypatch.setattr(at.look, "add_columns", add)
    Application(at, {"new_columns": "add"}).land({ZERO: (0, 5)})
    assert judge(at) == once({ZERO: (0, 5)})


def test_new_fields_of_structs_are_added_too(at: Place) -> None:
    """What a registry's newer schema brings.  Other types stay an error, and change nothing."""

    def source(value: StructType) -> StructType:
        return StructType().add("topic", "string").add("partition", "integer").add("offset", "long").add("value", value)

    name = StructType().add("name", "string")
    tags = StructType().add("tags", ArrayType(StructType().add("n", "integer"))).add("name", "string")
    at.landing()._prepare(source(StructType().add("id", "long").add("item", name)))
    newer = source(StructType().add("price", "double").add("item", tags).add("id", "long"))
    with pytest.raises(UnsupportedTableError, match=r"no column value\.price; no column value\.item\.tags\."):
        at.landing()._prepare(newer)
    with pytest.raises(UnsupportedTableError, match=r"value\.id has another type"):
        at.landing(new_columns="add")._prepare(source(StructType().add("id", "string").add("price", "double")))
    at.landing(new_columns="add")._prepare(newer)
    at.landing()._prepare(newer)
    at.landing()._prepare(source(StructType().add("id", "long")))
    with pytest.raises(ConfigurationError, match="new_columns='ignore' is not known"):
        at.landing(new_columns="ignore")


def test_a_batch_without_rows_moves_the_offsets(at: Place) -> None:
    """Its records were left out, or it had none, such as the markers of transactions."""
    one = Application(at)
    empty = one.ready({ZERO: (0, 20)})
    one.target._remove([path.removeprefix(f"{at.data}/") for path in files_of(at)])
    empty.rows = [{**row, "files": b"\x80\x04]\x94."} for row in empty.rows]  # a pickled empty list
    assert one.commit(empty).files == 0
    one.land({ZERO: (20, 25)}, begun=True)
    assert judge(at) == once({ZERO: (20, 25)})


@pytest.mark.parametrize("new", [False, True], ids=["known", "first commit"])
def test_a_paused_driver_wakes_up_in_its_commit(at: Place, monkeypatch: pytest.MonkeyPatch, new: bool) -> None:
    """The next owner has landed the same records, and more, between the look and the commit of the zombie."""
    begin = 0
    if not new:
        Application(at).land({ZERO: (0, 10), ONE: (0, 10)})
        begin = 10
    zombie, owner = Application(at), Application(at)
    batch = zombie.ready({ZERO: (begin, 60), ONE: (begin, 60)})
    before_the_next_commit(monkeypatch, at, lambda: owner.land({ZERO: (begin, 100)}))
    result = zombie.commit(batch)
    assert (result.records, result.conflicts) == (60 - begin, 1)  # it still owns the other partition
    assert judge(at) == once({ZERO: (0, 100), ONE: (0, 60)})


def test_a_paused_driver_wakes_up_before_its_commit(at: Place) -> None:
    zombie = Application(at)
    batch = zombie.ready({ZERO: (0, 60)})
    Application(at).land({ZERO: (0, 40)})
    # The new owner has removed the zombie's files, which began where its own did.  So the tasks run again.
    assert zombie.commit(batch).records == 20
    assert batch.collected == 2
    assert judge(at) == once({ZERO: (0, 60)})


def test_files_that_a_clean_up_has_removed_are_written_again(at: Place) -> None:
    """A commit of files that are gone would succeed, and nobody could read the table."""
    one = Application(at)
    batch = one.ready({ZERO: (0, 60)}, tasks=2)
    Path(files_of(at)[0]).unlink()
    assert one.commit(batch).records == 60
    assert batch.collected == 2
    assert judge(at) == once({ZERO: (0, 60)})


def test_a_commit_whose_answer_is_lost_is_not_repeated(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_answers(monkeypatch, at)
    result = Application(at).land({ZERO: (0, 60)})
    assert (result.records, result.skipped, result.orphans) == (60, 0, 0)
    assert judge(at) == once({ZERO: (0, 60)})


def test_killed_applications(at: Place) -> None:
    """Each is killed at another moment, also in its commit.  The next one removes what it has left."""
    command = [sys.executable, "-m", "tests.connector.landing.applications", str(at)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    one = Application(at)
    end = one.next_offset(ZERO)
    assert end is not None
    one.land({ZERO: (end, end + 5)})
    assert judge(at) == once({ZERO: (0, end + 5)})
    assert len(files_of(at)) == at.committed(), "no orphan is left"


def test_records_before_the_first_landed_one_count_as_landed(at: Place, caplog: pytest.LogCaptureFixture) -> None:
    """For example, a group that has begun at the end of the topic is set back.  The warning must not say more."""
    Application(at).land({ZERO: (10, 20)})
    assert Application(at).land({ZERO: (0, 30)}).records == 10
    assert judge(at) == once({ZERO: (10, 30)})
    assert "20 of its records are below the offsets of" in caplog.text


def test_records_that_a_group_leaves_out_are_named(at: Place, caplog: pytest.LogCaptureFixture) -> None:
    """For example, a new group begins at the end of the topic, and the table has the records of another one."""
    Application(at).land({ZERO: (0, 10), ONE: (0, 10)})
    assert not caplog.text
    assert Application(at).land({ZERO: (25, 30), ONE: (10, 20)}, finished=0).records == 15
    assert "these offsets were left out, and count as landed from now on: orders-0 10 to 24. The" in caplog.text


def test_orphans_of_killed_attempts_are_removed_and_counted(at: Place) -> None:
    Application(at).land({ZERO: (0, 10)})
    Application(at).ready({ZERO: (10, 40)}, tasks=3)  # never committed
    one = Application(at)
    one.ready({ZERO: (30, 50)})  # of an application that is ahead
    assert one.land({ZERO: (10, 30)}).orphans == 2
    assert len(files_of(at)) == 3 + 1
    assert judge(at) == once({ZERO: (0, 30)})


def test_a_task_that_fails_removes_its_files(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Application(at, {"file_bytes": 1})
    monkeypatch.setattr(files.Place, "keep", MagicMock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(LandingError, match=r"No space left on device.*Free space there\. Then start the query again"):
        one.ready({ZERO: (0, 100)})
    assert files_of(at) == []


def test_two_applications_race_for_the_same_records(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dozen rounds, in each of which the other one commits between look and commit."""
    one, other = Application(at), Application(at)
    for n in range(12):
        begin = one.next_offset(ZERO) or 0
        lost, won = one.ready({ZERO: (begin, begin + 3)}), other.ready({ZERO: (begin, begin + 1 + n % 5)})
        before_the_next_commit(monkeypatch, at, partial(other.commit, won))
        one.commit(lost)
        one, other = other, one
    assert judge(at) == once({ZERO: (0, one.next_offset(ZERO) or 0)})


def rolled_back(at: Place, *lost: dict[TopicPartition, tuple[int, int]]) -> Application:
    """Return an application whose table has ten records of a partition, and has lost those that came later."""
    one = Application(at)
    one.land({ZERO: (0, 10)})
    good = at.newest()
    for spans in lost:
        one.land(spans)
    at.roll_back(good)
    return one


def test_a_rollback_is_noticed_and_the_records_are_landed_again(at: Place) -> None:
    one = rolled_back(at, {ZERO: (10, 20)}, {ZERO: (20, 30), ONE: (0, 5)})
    for application in (one, Application(at)):  # the running query, and the next run
        with pytest.raises(TableBehindError, match=r"orders-0 10 to 29.*first lost ones \(orders-0 10, orders-1 0\)"):
            application.land({ZERO: (30, 35), ONE: (5, 9)})
    again = Application(at)
    again.land({ZERO: (5, 15), ONE: (0, 9)})  # the group was reset to 5, below the first lost record
    with pytest.raises(TableBehindError, match="orders-0 15 to 29"):
        again.land({ZERO: (30, 35)})
    again.land({ZERO: (15, 35)})
    assert judge(at) == once({ZERO: (0, 35), ONE: (0, 9)})


def test_only_the_lost_records_are_landed_again(at: Place) -> None:
    """Regression for the design: a query that had gone on after the rollback has landed later records."""
    one = rolled_back(at, {ZERO: (10, 20)})
    one.target._look().commit({}, {ZERO: 30}, {ZERO: OffsetSpan(20, 30)}, alone=True)
    again = Application(at)
    assert again.land({ZERO: (10, 40)}, finished=10).records == 20
    assert judge(at) == once({ZERO: (0, 20)}) + once({ZERO: (30, 40)})


def test_a_rollback_can_be_accepted(at: Place) -> None:
    rolled_back(at, {ZERO: (10, 20)}).target.accept_rollback()
    Application(at).land({ZERO: (20, 25)})
    assert judge(at) == once({ZERO: (0, 10)}) + once({ZERO: (20, 25)})


def test_a_repair_that_another_commit_makes_void_says_so(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Application(at)
    one.land({ZERO: (0, 10)})
    look = one.target._look()
    Application(at).land({ZERO: (10, 20)})
    monkeypatch.setattr(one.target, "_look", lambda: look)
    with pytest.raises(LandingError, match=r"another commit meanwhile.*call this again\.$"):
        one.target.set_offsets("orders", {0: 30})
    assert Application(at).next_offset(ZERO) == 20


def test_a_table_that_is_behind_its_group(at: Place) -> None:
    one = Application(at)
    with pytest.raises(TableBehindError, match=r"orders-0 is finished up to 7, but the table has no offset") as found:
        one.land({ZERO: (7, 9)}, begun=True)
    assert files_of(at) == []
    assert "set_offsets('orders', {0: 7})" in str(found.value)
    one.target.set_offsets("orders", {0: 7})
    one.land({ZERO: (7, 9)}, begun=True)
    with pytest.raises(TableBehindError, match="finished up to 12, but the table has 9"):
        one.land({ZERO: (12, 15)})
    one.land({ZERO: (12, 15)}, finished=9)  # retention has removed the records between
    one.target.set_offsets("orders", {0: 3})  # never back
    assert one.next_offset(ZERO) == 15


def test_a_topic_that_was_created_again(at: Place) -> None:
    one = Application(at)
    one.land({ZERO: (0, 20)})
    with pytest.raises(OtherTopicError, match=r"another topic 'orders' \(topic id id\).*\(topic id new\)"):
        one.land({ZERO: (0, 30)}, topic_id="new")
    one.target.forget("orders")
    with pytest.raises(ConfigurationError, match="rows of this batch's records"):
        one.land({ZERO: (0, 30)}, topic_id="new")
    at.rename_topic()
    old = files_of(at)
    Application(at).ready({ZERO: (0, 9)})  # looks like an orphan, as the old files do
    assert Application(at).land({ZERO: (0, 30)}, topic_id="new").records == 30
    assert judge(at) == once({ZERO: (0, 30)}) + once({ZERO._replace(topic="orders-old"): (0, 20)})
    assert {*old} <= {*files_of(at)}


def test_a_table_that_was_created_again(at: Place) -> None:
    one = Application(at)
    one.land({ZERO: (0, 20)})
    at.create_again()
    with pytest.raises(TableChangedError, match=r"was created again since the query started.*a new group"):
        one.land({ZERO: (20, 30)})


def test_a_table_that_was_replaced_still_has_its_offsets(at: Place) -> None:
    """Regression: records below them were left out of the new content, also by a new group."""
    one = Application(at)
    one.land({ZERO: (0, 20)})
    at.replace()
    with pytest.raises(TableChangedError):
        one.land({ZERO: (20, 30)})
    again = Application(at)
    with pytest.raises(TableChangedError, match=r"\(orders-0\).* call forget\('orders'\) once"):
        again.land({ZERO: (0, 30)}, finished=0)
    again.target.forget("orders")
    again.land({ZERO: (0, 30)}, finished=0)
    again.land({ZERO: (30, 35), ONE: (0, 5)}, finished=0)
    assert judge(at) == once({ZERO: (0, 35), ONE: (0, 5)})


def test_offsets_that_were_set_before_the_first_batch_are_those_of_the_table(at: Place) -> None:
    one = Application(at)
    one.target.set_offsets("orders", {0: 5})
    one.land({ZERO: (0, 9)})
    assert judge(at) == once({ZERO: (5, 9)})


def test_few_row_groups_wait_in_memory(at: Place, times: list[int | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each flush added a row group to each of up to 500 open files, whose footers stayed in memory."""
    monkeypatch.setattr(files, "_ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(files, "_ROW_GROUPS", 5)
    times += [n % 3 * DAY_US for n in range(70)]
    added = files._RangeFiles.write

    def write(self: Any) -> None:
        added(self)
        assert sum(one._open[key].row_groups for one, key in self._opened) <= 5

    monkeypatch.setattr(files._RangeFiles, "write", write)
    assert Application(at, by_day(at)).land({ZERO: (0, 70)}).files > 3
    assert judge(at) == once({ZERO: (0, 70)})


def test_rows_of_another_writer_are_refused(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it commits between look and commit.  `LakeTable` refuses topics that landing fills."""
    one = Application(at)
    foreign = pa.Table.from_batches(records(ZERO, OffsetRange(Offset(5), Offset(8))))
    before_the_next_commit(monkeypatch, at, lambda: at.append(foreign))
    with pytest.raises(ConfigurationError, match=r"rows of this batch's records \(orders-0\) that landing has not"):
        one.land({ZERO: (0, 10)})
    one.land({ONE: (0, 10)})
    assert judge(at) == once({ZERO: (5, 8), ONE: (0, 10)})
    assert one.target._look().landed == {"orders": 1}


def test_a_table_that_fails_names_itself_and_the_remedy(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Application(at)
    batch = one.ready({ZERO: (0, 10)})
    monkeypatch.setattr(at.look, "commit", MagicMock(side_effect=OSError("403 Forbidden: InvalidAccessKeyId")))
    monkeypatch.setattr("pyspark_kafka_group.landing.landing._FIRST_PAUSE_S", 0.001)
    with pytest.raises(LandingError, match=r"could not be read or committed in 8 attempts: OSError: 403 Forb"):
        one.commit(batch)
    assert len(files_of(at)) == 1, "the table may have the file"


def test_files_end_at_their_target_size(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_group.landing.files._ROW_GROUP_BYTES", 1)
    one_name_as_text = {"partition_by": "topic"}
    result = Application(at, {"file_bytes": 1, **one_name_as_text}).land({ZERO: (0, 21)})
    assert result.files == 3  # one for each batch of 7 records
    monkeypatch.setattr(files._File, "size", property(lambda file: file.rows))
    assert Application(at, {"file_bytes": 14, **one_name_as_text}).land({ONE: (0, 42)}).files == 3
    assert judge(at) == once({ZERO: (0, 21), ONE: (0, 42)})


NO_TIME, YEAR_10000, YEAR_0 = None, 253_402_300_800_000_000, -62_135_596_801_000_000


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Return the list of the timestamps that records have in turn."""
    found: list[int | None] = []

    def timed(tp: TopicPartition, r: OffsetRange) -> Iterator[pa.RecordBatch]:
        for batch in records(tp, r):
            values = [found[n % len(found)] for n in batch.column("offset").to_pylist()]
            yield batch.set_column(
                COLUMNS.index("timestamp"),
                batch.schema.field("timestamp"),
                pa.array(values, batch.schema.field("timestamp").type),
            )

    monkeypatch.setattr(applications, "records", timed)
    return found


def by_day(at: Place) -> dict[str, Any]:
    return {"partition_by": ["day"], **({"day_column": "day"} if isinstance(at, Delta) else {})}


def test_a_record_without_a_timestamp_has_no_day(at: Place, times: list[int | None]) -> None:
    times += [0, NO_TIME]
    assert Application(at, by_day(at)).land({ZERO: (0, 10)}).files == 2
    assert judge(at) == once({ZERO: (0, 10)})
    if isinstance(at, Delta):
        assert {row["offset"] % 2: row["day"] for row in at.rows()} == {0: date(1970, 1, 1), 1: None}


def test_times_that_python_does_not_know_are_landed(at: Place, times: list[int | None]) -> None:
    times += [0, YEAR_10000, YEAR_0]
    Application(at).land({ZERO: (0, 10)})
    found = at.table().to_pyarrow_table() if isinstance(at, Delta) else at.table().scan().to_arrow()
    landed = found.sort_by("offset").column("timestamp").cast(pa.int64()).to_pylist()
    assert landed == [times[n % 3] for n in range(10)]


def test_a_day_that_python_does_not_know_is_null_or_refused(at: Place, times: list[int | None]) -> None:
    times += [0, YEAR_10000, YEAR_0]
    if isinstance(at, Delta):
        Application(at, by_day(at)).land({ZERO: (0, 9)})
        assert Counter(at.table().to_pyarrow_table(columns=["day"]).column("day").to_pylist())[None] == 6
    else:
        with pytest.raises(
            RefusedRecordError, match=r"-0 at offset 1 .* Leave out such records with the option 'where'"
        ):
            Application(at, by_day(at)).land({ZERO: (0, 9)})


@pytest.mark.parametrize(("allowed", "most"), [(-1, 500), (256, 128), (1_048_576, 500)])
def test_a_task_leaves_half_of_the_files_to_its_process(
    allowed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda _: allowed)
    assert files._most_open_files() == most


def test_a_task_opens_few_files_at_once(at: Place, times: list[int | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_OPEN_FILES", 3)
    times += [n * DAY_US for n in range(8)]
    closed = files._RangeFiles._close

    def close(self: Any, day: Any) -> None:
        assert len(self._opened) <= 3
        closed(self, day)

    monkeypatch.setattr(files._RangeFiles, "_close", close)
    assert Application(at, by_day(at)).land({ZERO: (0, 16), ONE: (0, 16)}).files == 16
    assert judge(at) == once({ZERO: (0, 16), ONE: (0, 16)})


def test_columns_that_differ_in_case_only_are_not_added(at: Place) -> None:
    Application(at, columns=COLUMNS[1:])
    with_key = arrow_schema(COLUMNS).field("key").with_name("KEY")
    before = at.landing()
    before._prepare(spark_schema(COLUMNS[1:]))
    before._look().add_columns(pa.schema([with_key]))
    with pytest.raises(UnsupportedTableError, match="key is KEY"):
        Application(at, {"new_columns": "add"})


def test_a_folder_may_be_a_url_as_java_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    delta, iceberg = Delta(tmp_path / "delta"), Iceberg(tmp_path / "catalog")
    monkeypatch.setattr(delta, "landing", partial(DeltaLanding, f"file:{delta.data}"))
    iceberg.catalog["warehouse"] = f"file:{tmp_path}/100%25"
    iceberg.data = tmp_path / "100%25" / "shop" / "orders"
    for at in (delta, iceberg):
        Application(at).land({ZERO: (0, 5)})
        assert judge(at) == once({ZERO: (0, 5)})
        assert files_of(at)
    assert [*Path().iterdir()] == []


@pytest.mark.parametrize("uri", [Path("s3://lake/orders"), "hdfs:/lake/orders"])
def test_a_url_with_one_slash_is_no_folder(uri: str | Path) -> None:
    with pytest.raises(ConfigurationError, match="two slashes"):
        DeltaLanding(uri)


def test_no_error_names_the_password_of_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = Delta(tmp_path)
    monkeypatch.setattr(at, "landing", partial(DeltaLanding, "nosuch://user:hush@lake/orders"))
    with pytest.raises(LandingError) as caught:
        Application(at)
    assert "nosuch://***@lake/orders" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_file_that_is_written_again_keeps_its_codec(at: Place) -> None:
    for span in ((0, 10), (5, 30)):
        Application(at).land({ZERO: span})
    codecs = {pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in files_of(at)}
    assert codecs == {"SNAPPY" if isinstance(at, Delta) else "ZSTD"}


@pytest.mark.parametrize("call", ["set_offsets", "forget", "accept_rollback"])
def test_a_repair_of_no_table_names_it(at: Place, call: str) -> None:
    arguments = {"set_offsets": ("orders", {0: 5}), "forget": ("orders",)}.get(call, ())
    with pytest.raises(LandingError, match=r"^(Delta|Iceberg)Landing: .* in 1 attempt: .* Then start the query again"):
        getattr(at.landing(), call)(*arguments)
