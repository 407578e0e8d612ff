"""The order of calls shows whether two sources belong to one query or to two."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from pyspark_kafka_group.offsets.batch_offset import INITIAL as INITIAL_OFFSET
from pyspark_kafka_group.offsets.batch_offset import BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query import second_source, source_notes
from pyspark_kafka_group.query.query import Query
from pyspark_kafka_group.query.second_source import SourceCheck
from pyspark_kafka_group.query.source_notes import Note, Notes

Json = dict[str, Any]

FIRST = Note(
    pid=1,
    parent=7,
    servers=["a:1"],
    group="etl",
    topics=["orders", "payments"],
    pattern=None,
    checkpoint=None,
    waits_since=2.0,
    created_at=0.0,
    first_at=1.0,
    asked_at=1.0,
    planned=True,
)
SECOND = FIRST._replace(
    pid=2, topics=["orders"], waits_since=0.1, created_at=0.1, first_at=3.01, asked_at=3.01, planned=False
)

A = TopicPartition("orders", 0)
RANGES = {A: OffsetRange.checked(5, 9)}


def end(until: int, source: str = "q") -> Json:
    return BatchOffset(source, {A: PartitionEntry(OffsetRange.checked(0, until), None, None, "l")}).to_json()


INITIAL = INITIAL_OFFSET.to_json()


class FakeQuery(Query):
    """A query that plans the batch in `next`."""

    next: Json | None = None

    def _latest_offset(self, start: Json, max_rows: int | None) -> Json:
        return start if self.next is None else self.next

    def _running_ranges(self, start: Json, logged: BatchOffset) -> Mapping[TopicPartition, OffsetRange]:
        return RANGES


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_source, "_SILENCE_S", 0.4)
    monkeypatch.setattr(second_source, "_PAUSE_S", 0.01)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeQuery]]:
    """Yield a function that makes sources as if each had its own process."""
    made: list[FakeQuery] = []
    pids = iter(range(900_000, 900_100))
    monkeypatch.setattr(source_notes, "runs", lambda _pid: True)

    def make(**options: str) -> FakeQuery:
        default = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "etl", "subscribe": "orders", **options}
        given = {key: value for key, value in default.items() if value}
        with monkeypatch.context() as patch:
            pid = next(pids)
            patch.setattr(os, "getpid", lambda: pid)
            check = SourceCheck(parse(given), time.monotonic(), folder=tmp_path)
            made.append(FakeQuery(parse(given), check))
            return made[-1]

    yield make
    for query in made:
        query.stop()


def plan(run: FakeQuery, start: Json, end: Json | None) -> Json:
    """Ask for a batch, and let the query plan it up to ``end``."""
    run.next = end
    return run.latest_offset(start, None)


def test_sources_that_are_asked_one_after_the_other_may_belong_to_one_query() -> None:
    assert FIRST.may_come_before(SECOND)
    assert FIRST.shared_topics(SECOND) == ["orders"]


@pytest.mark.parametrize(
    "change",
    [
        {"pid": SECOND.pid},
        {"parent": 8},
        {"asked_at": 0.05},  # Spark first creates all sources of a query, and asks each one once for each batch
        {"asked_at": None},
        {"first_at": 0.05},  # it was asked before Spark created the other one, for example as a standby
        {"created_at": 3.02},
        {"planned": False},  # it has not answered, or Spark calls it again only with the next trigger
    ],
)
def test_other_orders_of_calls_are_those_of_two_queries(change: Json) -> None:
    assert not FIRST._replace(**change).may_come_before(SECOND)


def test_the_second_source_may_be_asked_much_later() -> None:
    """Regression: after a second, as in a long garbage collection, both became members, and joins missed pairs."""
    assert FIRST.may_come_before(SECOND._replace(asked_at=100.0))


def test_checkpoints_that_differ_are_those_of_two_queries() -> None:
    first = FIRST._replace(checkpoint="/a")
    assert not first.may_come_before(SECOND._replace(checkpoint="/b"))
    assert first.may_come_before(SECOND._replace(checkpoint="/a"))
    assert first.may_come_before(SECOND)


@pytest.mark.parametrize(
    ("change", "shared"),
    [
        ({}, ["orders"]),
        ({"group": "other"}, []),
        ({"servers": ["b:1"]}, []),
        ({"servers": ["a:1", "b:1"]}, ["orders"]),
        ({"topics": ["clicks"]}, []),
        ({"topics": [], "pattern": "ord.*"}, ["orders"]),
        ({"topics": [], "pattern": "ord"}, []),
    ],
)
def test_sources_share_topics_of_one_group(change: Json, shared: list[str]) -> None:
    other = SECOND._replace(**change)
    assert FIRST.shared_topics(other) == shared
    assert other.shared_topics(FIRST) == shared


def test_patterns_share_topics_if_they_are_the_same() -> None:
    first = FIRST._replace(topics=[], pattern="a.*")
    assert first.shared_topics(SECOND._replace(topics=[], pattern="a.*"))
    assert not first.shared_topics(SECOND._replace(topics=[], pattern="b.*"))


@pytest.mark.parametrize("topics", ["orders", "orders,payments"])
def test_a_second_source_of_one_query_is_refused(source: Callable[..., FakeQuery], tmp_path: Path, topics: str) -> None:
    first, second = source(subscribe=topics), source()
    assert plan(first, INITIAL, end(1)) == end(1)
    with pytest.raises(OptionError) as refused:
        second.latest_offset(INITIAL, None)
    assert str(refused.value) == (
        "Option 'kafka.group.id': two sources of this query read the same topics (orders) in the group 'etl', so each "
        "would get only some of the partitions. Spark makes two sources of a stream that is joined with itself. If "
        "these are two queries, the driver has stood still, and you can start this one again. Use two load(), each "
        "with a group of its own, or rename the columns of one side of the join with toDF."
    )
    assert len(list(tmp_path.iterdir())) == 1, "the query that ends does not stop others"


def test_a_second_source_of_a_query_that_restarts_is_refused(source: Callable[..., FakeQuery]) -> None:
    """Regression: each source has an id of its own, which was taken for that of its query.  So none was ever found."""
    first, second = source(), source()
    assert plan(first, end(1, "a"), end(2, "a")) == end(2, "a")
    with pytest.raises(OptionError, match="two sources of this query"):
        second.latest_offset(end(1, "b"), None)


def test_a_second_source_is_refused_after_a_batch_that_is_repeated(source: Callable[..., FakeQuery]) -> None:
    """The last run has planned that batch, and while it runs, Spark calls none of the sources."""
    first, second = source(), source()
    for one in (first, second):
        assert one.running_ranges(end(1), end(2)) == RANGES
    plan(first, end(2), end(3))
    with pytest.raises(OptionError, match="two sources of this query"):
        second.latest_offset(end(2), None)


def test_a_second_source_is_refused_with_the_first_batch_of_the_first_one(source: Callable[..., FakeQuery]) -> None:
    """After a restart, there may be nothing to read for some time."""
    first, second = source(), source()
    for _ in range(3):
        assert plan(first, end(1), None) == plan(second, end(1), None) == end(1)
    plan(first, end(1), end(2))
    with pytest.raises(OptionError, match="two sources of this query"):
        second.latest_offset(end(1), None)


def test_a_source_that_has_planned_nothing_proves_nothing(
    source: Callable[..., FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls it again only with the next trigger, maybe after minutes."""
    monkeypatch.setattr(second_source, "_SILENCE_S", 60.0)
    first, second = source(), source()
    assert plan(first, end(1), None) == end(1)
    assert plan(second, end(1), end(2)) == end(2)


def test_a_query_that_has_planned_a_batch_is_never_ended(
    source: Callable[..., FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_source, "_SILENCE_S", 60.0)
    first, second = source(), source()
    plan(first, end(1), None)
    plan(second, end(1), end(2))
    second.running_ranges(end(1), end(2))
    plan(first, end(1), end(2))
    assert plan(second, end(2), end(3)) == end(3)


@pytest.mark.parametrize("change", [{"kafka.group.id": "other"}, {"kafka.group.id": "", "groupIdPrefix": "etl"}])
def test_sources_with_groups_of_their_own_belong_together(
    source: Callable[..., FakeQuery], change: dict[str, str]
) -> None:
    first, second = source(**({} if change["kafka.group.id"] else change)), source(**change)
    plan(first, INITIAL, end(1))
    assert plan(second, INITIAL, end(2)) == end(2)


@pytest.mark.parametrize("start", [INITIAL, end(1)], ids=["new", "restart"])
def test_a_source_that_spark_calls_meanwhile_belongs_to_another_query(
    source: Callable[..., FakeQuery], monkeypatch: pytest.MonkeyPatch, start: Json
) -> None:
    """Two queries start at the same time.  Regression: with other options, the second one ended with an error."""
    monkeypatch.setattr(second_source, "_SILENCE_S", 60.0)
    first, second = source(), source()
    plan(first, start, end(2))
    batch_begins = Timer(0.1, lambda: first.running_ranges(start, end(2)))
    batch_begins.start()
    begin = time.monotonic()
    assert second.latest_offset(start, None) == start
    assert 0.05 < time.monotonic() - begin < 30
    batch_begins.join()


def test_a_source_that_leaves_meanwhile_does_not_matter(source: Callable[..., FakeQuery]) -> None:
    first, second = source(), source()
    plan(first, INITIAL, end(1))
    leaves = Timer(0.1, first.stop)
    leaves.start()
    assert plan(second, INITIAL, end(2)) == end(2)
    leaves.join()


def test_a_source_without_a_second_one_leaves_no_notes(source: Callable[..., FakeQuery], tmp_path: Path) -> None:
    first = source()
    plan(first, INITIAL, end(1))
    assert list(tmp_path.iterdir())
    first.running_ranges(INITIAL, end(1))
    assert not list(tmp_path.iterdir())


def test_a_query_that_starts_later_waits_for_nobody(source: Callable[..., FakeQuery]) -> None:
    plan(source(), INITIAL, end(1))
    later = source()
    begin = time.monotonic()
    later.latest_offset(INITIAL, None)
    assert time.monotonic() - begin < 0.2


def test_without_a_folder_for_temporary_files_it_does_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the query did not start."""

    def refuse() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", refuse)
    notes = Notes(parse({"kafka.bootstrap.servers": "a:1", "kafka.group.id": "g", "subscribe": "t"}), 0.0)
    assert not notes.usable
    assert "Set TMPDIR to a folder that you may write to" in caplog.text


def test_a_folder_that_is_not_usable_is_reported(
    source: Callable[..., FakeQuery], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: -1)  # as if the folder belonged to another user
    first, second = source(), source()
    assert caplog.text.count("Set TMPDIR to a folder that you may write to") == 2
    for run in (first, second):
        assert plan(run, INITIAL, end(1)) == end(1)
        run.stop()
    assert not list(tmp_path.iterdir())


def test_notes_hold_no_secrets(source: Callable[..., FakeQuery], tmp_path: Path) -> None:
    options = {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "etl", "kafka.sasl.mechanism": "PLAIN"}
    first = source(**{**options, "kafka.security.protocol": "SASL_PLAINTEXT"})
    plan(first, INITIAL, end(1))
    assert list(tmp_path.iterdir())
    assert not [file for file in tmp_path.iterdir() if "hunter2" in file.read_text()]


def test_files_of_processes_that_have_died_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.json").write_text("{}")
    (tmp_path / "1.new").write_text("[]")
    monkeypatch.setattr(source_notes, "runs", lambda pid: pid != 1)
    options = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "etl", "subscribe": "orders"}
    notes = Notes(parse(options), 0.0, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [f"{os.getpid()}.json"]
    notes.close()
    assert not list(tmp_path.iterdir())


def test_given_partitions_are_shared_if_they_are_the_same(source: Callable[..., FakeQuery]) -> None:
    one, same, other = (
        source(subscribe="", assign=partitions)._source_check._notes.own
        for partitions in ('{"orders": [0, 1]}', '{"orders": [1]}', '{"orders": [2]}')
    )
    assert one.shared_topics(same) == ["orders-1"]
    assert not one.shared_topics(other)
