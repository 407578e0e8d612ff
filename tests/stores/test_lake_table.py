"""The parts that need no Spark.  integration/compatibility/check_lake.py tests `write` with real tables."""

from __future__ import annotations

import pickle
import re
import time
from typing import TYPE_CHECKING, cast
from unittest.mock import MagicMock

import pyspark.sql
import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch
from pyspark_kafka_group.stores import LakeTable, lake_table
from pyspark_kafka_group.stores.errors import LakeConflictError, OtherTopicError, RefusedRecordError, TableBehindError
from pyspark_kafka_group.stores.lake_formats import FORMATS, LakeWrite, NotedTopics, around, inside
from pyspark_kafka_group.stores.lake_history import OffsetSpan, TableCommit
from pyspark_kafka_group.stores.lake_table import is_conflict, refusal, spans_of, topic_ids_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELTA = "io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict"
DELTA_COLUMNS = "[DELTA_METADATA_CHANGED] MetadataChangedException: The metadata of the Delta table has been changed"
ICEBERG = "org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can contain records"
ICEBERG_EXPIRED = (
    "org.apache.iceberg.exceptions.ValidationException: Cannot determine history between starting snapshot"
)
ICEBERG_RETRIES = "org.apache.iceberg.exceptions.CommitFailedException: Version 5 already exists"


def planned(start: int, until: int) -> ReadRange:
    return ReadRange(Offset(start), Offset(until), finished=Offset(start), begun=True)


def test_the_condition_for_files_has_one_term_for_each_topic() -> None:
    spans = {
        TopicPartition("b", 1): OffsetSpan(5, 9),
        TopicPartition("a", 0): OffsetSpan(0, 2),
        TopicPartition("b", 0): OffsetSpan(3, 4),
    }
    assert around(spans, "old.") == (
        "(old.`topic` IN ('a') AND old.`partition` IN (0) AND old.`offset` >= 0 AND old.`offset` < 2) OR "
        "(old.`topic` IN ('b') AND old.`partition` IN (0, 1) AND old.`offset` >= 3 AND old.`offset` < 9)"
    )
    assert around({TopicPartition("it's \\", 0): OffsetSpan(0, 1)}).startswith(r"(`topic` IN ('it\'s \\') AND")
    many = around({TopicPartition(f"t{n}", n % 2): OffsetSpan(n, n + 5) for n in range(200)})
    assert many.endswith("AND `partition` IN (0, 1) AND `offset` >= 0 AND `offset` < 204)")
    assert " OR " not in many


def test_the_condition_does_not_grow_with_the_partitions() -> None:
    """Regression: a comparison for each partition took seconds, and Spark could not compile it."""
    found = [inside({TopicPartition("t", n): OffsetSpan(0, 9) for n in range(count)}) for count in (1, 3000)]
    one, many = (re.sub(r"'\[.*?\]'", "", condition) for condition in found)
    assert one == many


@pytest.mark.parametrize("partition", [-1, 1_000_000])
def test_a_number_that_no_partition_has_is_refused(partition: int) -> None:
    with pytest.raises(ConfigurationError, match="no partitions of Kafka"):
        inside({TopicPartition("t", partition): OffsetSpan(0, 1)})


def check_topics(noted: list[NotedTopics], ids: dict[str, str], *topics: str) -> None:
    """Check the topics of a batch against what the table has noted, at one look after the other."""
    spark = MagicMock()
    LakeTable("lake.t")._check_topics(spark, MagicMock(topics=MagicMock(side_effect=noted)), ids, {*topics})
    spark.sql.assert_not_called()


def test_a_topic_belongs_to_the_table_by_its_id() -> None:
    noted = NotedTopics({"orders": "old"}, set())
    with pytest.raises(OtherTopicError, match=r"topic id old\).*topic id new\).*'kafka-group\.topic\.orders'"):
        check_topics([noted], {"orders": "new"}, "orders")
    check_topics([noted], {"orders": "old"}, "orders")


def test_two_applications_that_note_a_topic_at_once_cannot_both_go_on() -> None:
    with pytest.raises(OtherTopicError):
        check_topics(
            [NotedTopics({}, set()), NotedTopics({"orders": "of the other"}, set())], {"orders": "me"}, "orders"
        )


def test_a_topic_that_landing_fills_is_refused() -> None:
    """Landing stores offsets, and would land the records of these rows once more."""
    landed = NotedTopics({}, {"orders"})
    with pytest.raises(ConfigurationError, match=r"the topic orders of lake\.t is filled by landing"):
        check_topics([landed], {}, "orders", "returns")
    check_topics([landed], {}, "returns")


def test_the_ids_of_topics_are_those_of_the_ranges() -> None:
    tp, empty = TopicPartition("orders", 0), TopicPartition("returns", 0)
    ranges = {tp: planned(3, 8)._replace(topic_id="id"), empty: planned(4, 4)._replace(topic_id="other")}
    assert topic_ids_of(RunningBatch(ranges)) == {"orders": "id"}
    assert topic_ids_of(RunningBatch({tp: planned(3, 8)})) == {}
    assert topic_ids_of(None) == {}


def test_a_source_of_this_project_says_what_the_batch_reads() -> None:
    """The range also covers rows that the query has filtered out.  A partition without new records has no range."""
    batch = cast("DataFrame", MagicMock(groupBy=MagicMock(side_effect=AssertionError)))
    ranges = {TopicPartition("orders", 0): planned(3, 8), TopicPartition("orders", 1): planned(4, 4)}
    assert spans_of(batch, RunningBatch(ranges)) == {TopicPartition("orders", 0): OffsetSpan(3, 8)}


@pytest.mark.parametrize("text", [DELTA, DELTA_COLUMNS, ICEBERG, ICEBERG_EXPIRED, ICEBERG_RETRIES])
def test_a_lost_commit_is_recognized(text: str) -> None:
    assert is_conflict(RuntimeError(f"An error occurred while calling o1.overwrite. : {text}"))
    wrapped = RuntimeError("Job aborted")
    wrapped.__cause__ = RuntimeError(text)
    assert is_conflict(wrapped)


@pytest.mark.parametrize(
    "text", ["[DELTA_SCHEMA_NOT_SET] no schema", "iceberg.exceptions.ValidationException: Invalid schema", "disk"]
)
def test_another_error_is_not_tried_again(text: str) -> None:
    attempt = MagicMock(side_effect=RuntimeError(text))
    with pytest.raises(RuntimeError, match=r".+"):
        LakeTable("t")._try(attempt, 0)
    assert attempt.call_count == 1


def test_a_refused_row_is_named_without_its_data() -> None:
    text = (
        "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint few (number < 1) violated by row with values:\n"
        " - number : 4711 SQLSTATE: 23001"
    )
    attempt = MagicMock(side_effect=RuntimeError(f"Job aborted due to stage failure: {text}"))
    with pytest.raises(RefusedRecordError) as found:
        LakeTable("lake.db.t")._try(attempt, 0)
    assert "lake.db.t does not take a row of this batch: CHECK constraint few (number < 1). " in str(found.value)
    assert "second LakeTable" in str(found.value)
    assert "4711" not in str(found.value)
    assert attempt.call_count == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: number.\n\tat org.apache",
            "NOT NULL constraint violated for column: number",
        ),
        (
            "[NOT_NULL_ASSERT_VIOLATION] NULL value appeared in non-nullable field: \nnumber\nIf the schema",
            "NULL value appeared in non-nullable field: number",
        ),
    ],
)
def test_a_null_that_the_table_does_not_take_is_named_by_its_column(text: str, named: str) -> None:
    problem = RuntimeError("Writing job aborted.")
    problem._cause = RuntimeError(text)  # type: ignore[attr-defined]  # as in PySpark's exceptions
    assert refusal(problem) == named
    assert refusal(RuntimeError("disk full")) is None


def test_a_lost_commit_is_tried_again_until_it_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    attempt = MagicMock(side_effect=[RuntimeError(DELTA)] * 9 + [None])
    LakeTable("t")._try(attempt, 0)
    assert attempt.call_count == 10
    assert 0.05 <= pauses[0] <= 0.15
    assert 2.5 <= pauses[-1] <= 7.5


def test_patience_ends_with_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(LakeConflictError, match=r"to lake\.db\.t have won \d+ times in 20 s.*patience_s") as found:
        LakeTable("lake.db.t", patience_s=20)._try(MagicMock(side_effect=RuntimeError(ICEBERG)), 0)
    assert isinstance(found.value.__cause__, RuntimeError)
    assert 20 < clock[0] < 30


def test_a_batch_that_does_not_name_its_records_is_refused() -> None:
    batch = cast("DataFrame", MagicMock(dtypes=[("topic", "string"), ("partition", "string")]))
    with pytest.raises(ConfigurationError, match=r"LakeTable: the batch needs .* another type: partition, offset"):
        LakeTable("t").write(batch, 0)


@pytest.fixture
def batch() -> MagicMock:
    return MagicMock(dtypes=[("topic", "string"), ("partition", "int"), ("offset", "bigint")])


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """Replace the table of a batch that reads orders-0, [0, 9).  Each write writes 3 rows."""
    made = MagicMock(topics=lambda _: NotedTopics({}, set()))
    made.commits.return_value, made.write.return_value = [], LakeWrite(3, 0)
    ranges = {TopicPartition("orders", 0): planned(0, 9)}
    monkeypatch.setattr(lake_table, "running_batch", lambda *_: RunningBatch(ranges))
    monkeypatch.setattr(lake_table, "_checked", MagicMock())
    monkeypatch.setattr(LakeTable, "_format", lambda *_: made)
    return made


def test_a_batch_without_ranges_is_checked_for_rows(monkeypatch: pytest.MonkeyPatch, batch: MagicMock) -> None:
    """Regression: the rows that a stateful operator returned in such a batch were lost without an error."""
    functions = MagicMock()
    monkeypatch.setattr(pyspark.sql, "functions", functions)
    monkeypatch.setattr(lake_table, "running_batch", lambda *_: RunningBatch({}, topics=frozenset({"orders"})))
    monkeypatch.setattr(LakeTable, "_format", MagicMock())
    assert LakeTable("t").write(batch, 0) == LakeWrite(0, 0)
    functions.expr.assert_not_called()
    write = batch.where.return_value.write.format
    write.assert_called_once_with("noop")
    write.return_value.mode.return_value.save.assert_called_once_with()


@pytest.mark.parametrize("rows", [0, 3])
def test_a_batch_that_reads_lost_records_again_is_noted_even_if_it_writes_no_rows(
    target: MagicMock, batch: MagicMock, rows: int
) -> None:
    """Otherwise the next run of the query would find these records lost."""
    target.commits.return_value = [TableCommit({TopicPartition("orders", 0): OffsetSpan(5, 9)}, counts=False)]
    target.write.return_value = LakeWrite(rows, 0)
    assert LakeTable("t").write(batch, 0) == LakeWrite(rows, 0)
    assert target.note.call_count == (0 if rows else 1)


def test_a_second_write_of_a_batch_is_compared_with_the_table(
    target: MagicMock, batch: MagicMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = MagicMock(side_effect=ConfigurationError("written"))
    monkeypatch.setattr(LakeTable, "_refuse_known", refuse)
    first, second = LakeTable("lake.db.twice"), LakeTable("lake.db.twice")
    first.write(batch, 0)
    second.write(batch, 1)
    refuse.assert_not_called()
    with pytest.raises(ConfigurationError, match="written"):
        first.write(batch, 1)
    assert target.write.call_count == 2


def test_the_history_is_read_once_in_a_run_and_before_an_error() -> None:
    """While this run reads on, another application writes the lost records again, and then the group goes on here."""
    zero, gone = TopicPartition("orders", 0), TableCommit({TopicPartition("orders", 0): OffsetSpan(5, 9)}, counts=False)
    again = gone._replace(counts=True)
    table, target = LakeTable("t"), MagicMock(commits=MagicMock(return_value=[gone]))

    def check(run: str, start: int) -> None:
        table._check_history(MagicMock(), target, run, {zero: OffsetSpan(start, start + 5)})

    check("one", 0)
    check("one", 5)
    assert target.commits.call_count == 1
    target.commits.return_value = [gone, again]
    check("one", 10)
    check("one", 15)
    assert target.commits.call_count == 2
    target.commits.return_value = [gone]
    with pytest.raises(TableBehindError, match="orders-0 5 to 8"):
        check("two", 20)


def test_a_commit_between_two_questions_is_no_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a query ended with TableBehindError, because another one of the session had just committed."""
    notes = {1: '{"orders":{"0":[0,5]}}', 2: '{"orders":{"0":[5,9]}}'}
    rows = [(1, None, notes[1], True), (2, 1, notes[2], True)]
    spark = MagicMock()
    spark.table.return_value.selectExpr.return_value.collect.side_effect = [rows, rows]
    currents = iter([1, 2, 2])
    monkeypatch.setattr(FORMATS["iceberg"], "_current", lambda *_: next(currents))
    assert [commit.counts for commit in FORMATS["iceberg"]("lake.t").commits(spark)] == [True, True]


def test_a_column_with_the_name_of_a_property_does_not_hide_the_format() -> None:
    """Regression: the type of a column ``Provider`` was taken for the format of the table."""
    spark = MagicMock()
    spark.table.return_value.columns = ["Provider", "topic", "partition", "offset"]
    described = spark.sql.return_value.where.return_value
    described.collect.return_value = [{"data_type": "string"}, {"data_type": "delta"}]
    assert type(LakeTable("t")._format(spark, ["topic"])) is FORMATS["delta"]


def test_it_travels_to_the_server_of_spark_connect() -> None:
    assert repr(pickle.loads(pickle.dumps(LakeTable("lake.db.t")))) == "LakeTable('lake.db.t')"
