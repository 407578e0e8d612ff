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
from pyspark_kafka_group.query import secondary, source_notes
from pyspark_kafka_group.query.query import Query
from pyspark_kafka_group.query.secondary import Sources
from pyspark_kafka_group.query.source_notes import Note, Notes

Json = dict[str, Any]

FIRST = Note(
    pid=1,
    parent=7,
    fingerprint="one",
    servers=["a:1"],
    group="etl",
    topics=["orders", "payments"],
    pattern=None,
    checkpoint=None,
    created_at=0.0,
    first_at=1.0,
    calls=1,
)
SECOND = FIRST._replace(pid=2, topics=["orders"], created_at=0.1, first_at=3.01, running=True)

A = TopicPartition("orders", 0)
RANGES = {A: OffsetRange.checked(5, 9)}


def end(until: int) -> Json:
    return BatchOffset("q", {A: PartitionEntry(OffsetRange.checked(0, until), None, None, "l")}).to_json()


INITIAL = INITIAL_OFFSET.to_json()


class FakeQuery(Query):
    """A query that plans the batch in `next`."""

    next: Json | None = None
    begins_empty: bool | None = None

    def _latest_offset(self, start: Json, max_rows: int | None) -> Json:
        if self.begins_empty is None:
            self.begins_empty = self._sources.expects_secondary
        return start if self.next is None else self.next

    def _running_ranges(self, start: Json, logged: BatchOffset) -> Mapping[TopicPartition, OffsetRange]:
        return RANGES


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secondary, "_SILENCE_S", 0.4)
    monkeypatch.setattr(secondary, "_NEXT_SILENCE_S", 0.1)
    monkeypatch.setattr(secondary, "_PAUSE_S", 0.01)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeQuery]]:
    """Yield a function that makes sources as if each had its own process."""
    made: list[FakeQuery] = []
    pids = iter(range(900_000, 900_100))
    monkeypatch.setattr(source_notes, "runs", lambda _pid: True)

    def make(fingerprint: str = "one", *, joins: bool = True, **options: str) -> FakeQuery:
        default = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "etl", "subscribe": "orders", **options}
        given = {key: value for key, value in default.items() if value}
        with monkeypatch.context() as patch:
            pid = next(pids)
            patch.setattr(os, "getpid", lambda: pid)
            sources = Sources(parse(given), fingerprint, time.monotonic(), joins=joins, folder=tmp_path)
            made.append(FakeQuery(parse(given), sources))
            return made[-1]

    yield make
    for query in made:
        query.stop()


def plan(run: FakeQuery, start: Json, end: Json | None) -> Json:
    """Ask for a batch, and let the query plan it up to ``end``."""
    run.next = end
    return run.latest_offset(start, None)


def started(first: FakeQuery, second: FakeQuery) -> None:
    """Ask two sources for the first batch of one query."""
    assert plan(first, INITIAL, end(1)) == end(1)
    assert second.latest_offset(INITIAL, None) == end(1)


def test_sources_that_are_asked_one_after_the_other_may_belong_to_one_query() -> None:
    assert FIRST.may_come_before(SECOND)
    assert FIRST.shared_topics(SECOND) == ["orders"]


@pytest.mark.parametrize(
    "change",
    [
        {"pid": SECOND.pid},
        {"parent": 8},
        {"first_at": 0.05},  # Spark first creates all sources of a query
        {"first_at": None},
        {"running": True},  # a query has one thread
        {"calls": 2},  # Spark asks all sources for the first batch before it runs this batch
        {"query_id": "q"},
    ],
)
def test_other_orders_of_calls_are_those_of_two_queries(change: Json) -> None:
    assert not FIRST._replace(**change).may_come_before(SECOND)


def test_the_second_source_may_be_asked_much_later() -> None:
    """Regression: after a second, as in a long garbage collection, both became members, and joins missed pairs."""
    assert FIRST.may_come_before(SECOND._replace(first_at=100.0))


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


def test_a_second_source_is_refused_with_spark_4_0_and_4_1(source: Callable[..., FakeQuery]) -> None:
    """Spark does not announce it in time.

    A wrong guess would show only after the source has read another query's batch.
    """
    first, second = source(joins=False), source(joins=False)
    assert plan(first, INITIAL, end(1)) == end(1)
    with pytest.raises(OptionError, match="has two equal sources of the group 'etl'"):
        second.latest_offset(INITIAL, None)


def test_the_second_source_of_one_load_reads_what_the_first_one_plans(source: Callable[..., FakeQuery]) -> None:
    first, second = source(), source()
    started(first, second)
    assert first.begins_empty
    assert second._sources.secondary
    for run in (first, second):
        run.running_ranges(INITIAL, end(1))
    assert plan(first, end(1), end(2)) == second.latest_offset(end(1), None) == end(2)
    assert second.running_ranges(end(1), end(2)) == {A: OffsetRange.checked(0, 2)}
    assert plan(first, end(2), None) == second.latest_offset(end(2), None) == end(2)


def test_three_sources_of_one_load_read_the_same(source: Callable[..., FakeQuery]) -> None:
    first, second, third = source(), source(), source()
    started(first, second)
    assert third.latest_offset(INITIAL, None) == end(1)
    assert third._sources.secondary


def test_spark_may_ask_the_second_source_first_what_a_batch_reads(source: Callable[..., FakeQuery]) -> None:
    first, second = source(), source()
    started(first, second)
    second.running_ranges(INITIAL, end(1))
    first.running_ranges(INITIAL, end(1))
    assert plan(first, end(1), end(2)) == second.latest_offset(end(1), None) == end(2)


def test_a_batch_that_runs_again_is_the_same_on_both_sides(source: Callable[..., FakeQuery]) -> None:
    first, second = source(), source()
    for run in (first, second):
        assert run.running_ranges(INITIAL, end(1)) == RANGES
    assert second._sources.secondary


def test_a_second_load_of_the_same_group_and_topics_with_other_options_is_refused(
    source: Callable[..., FakeQuery],
) -> None:
    first, second = source(subscribe="orders,payments"), source(fingerprint="two")
    plan(first, INITIAL, end(1))
    with pytest.raises(OptionError) as refused:
        second.latest_offset(INITIAL, None)
    assert str(refused.value) == (
        "Option 'kafka.group.id': two load() of this query read the same topics (orders) in the group 'etl' with "
        "different options, so each would get only some of the partitions. Give both the same options, or give each "
        "load() a group of its own."
    )


@pytest.mark.parametrize("fingerprint", ["one", "two"])
def test_a_source_that_spark_calls_meanwhile_belongs_to_another_query(
    source: Callable[..., FakeQuery], fingerprint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queries start at the same time.  Regression: with other options, the second one ended with an error."""
    monkeypatch.setattr(secondary, "_SILENCE_S", 60.0)
    first, second = source(), source(fingerprint=fingerprint)
    plan(first, INITIAL, end(1))
    batch_begins = Timer(0.1, lambda: first.running_ranges(INITIAL, end(1)))
    batch_begins.start()
    begin = time.monotonic()
    assert second.latest_offset(INITIAL, None) == INITIAL
    assert not second._sources.secondary
    assert 0.05 < time.monotonic() - begin < 30
    batch_begins.join()


def test_a_source_that_leaves_meanwhile_does_not_matter(source: Callable[..., FakeQuery]) -> None:
    first, second = source(), source()
    plan(first, INITIAL, end(1))
    leaves = Timer(0.1, first.stop)
    leaves.start()
    second.latest_offset(INITIAL, None)
    assert not second._sources.secondary
    leaves.join()


def test_a_primary_source_that_is_called_alone_belongs_to_another_query(source: Callable[..., FakeQuery]) -> None:
    first, second = source(), source()
    started(first, second)
    for wrong in (
        lambda: second.latest_offset(end(7), None),
        lambda: second.running_ranges(INITIAL, end(7)),
        lambda: second.latest_offset(end(1), None),  # Spark did not ask the first source for this batch
    ):
        with pytest.raises(OptionError, match="but they belong to two queries"):
            wrong()
    first.running_ranges(INITIAL, end(1))
    with pytest.raises(OptionError, match="but they belong to two queries"):
        second.latest_offset(end(1), None)  # the first source's batch is running already
    first.stop()
    with pytest.raises(OptionError, match="one of them has ended"):
        second.running_ranges(INITIAL, end(1))


def test_a_primary_source_that_is_called_while_the_second_one_answers_belongs_to_another_query(
    source: Callable[..., FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = source(), source()
    started(first, second)
    plan(first, end(1), end(2))
    sleep = time.sleep

    def call_the_first(_: float) -> None:
        monkeypatch.setattr(time, "sleep", sleep)
        plan(first, end(2), None)

    monkeypatch.setattr(secondary, "_NEXT_SILENCE_S", 60.0)
    monkeypatch.setattr(time, "sleep", call_the_first)
    with pytest.raises(OptionError, match="but they belong to two queries"):
        second.latest_offset(end(1), None)


def test_a_source_without_a_second_one_leaves_no_notes(source: Callable[..., FakeQuery], tmp_path: Path) -> None:
    first = source()
    plan(first, INITIAL, end(1))
    assert list(tmp_path.iterdir())
    first.running_ranges(INITIAL, end(1))
    plan(first, end(1), end(2))
    assert not list(tmp_path.iterdir())


def test_a_query_that_starts_later_waits_for_nobody(source: Callable[..., FakeQuery]) -> None:
    plan(source(), INITIAL, end(1))
    later = source()
    begin = time.monotonic()
    later.latest_offset(INITIAL, None)
    assert time.monotonic() - begin < 0.2
    assert not later._sources.secondary
    assert not later.begins_empty


def test_without_a_folder_for_temporary_files_it_does_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the query did not start."""

    def refuse() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", refuse)
    notes = Notes(parse({"kafka.bootstrap.servers": "a:1", "kafka.group.id": "g", "subscribe": "t"}), "one", 0.0)
    assert not notes.usable
    assert "Set TMPDIR to a folder that you may write to" in caplog.text


def test_a_folder_that_is_not_usable_is_reported(
    source: Callable[..., FakeQuery], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: -1)  # as if the folder belonged to another user
    first, second = source(), source()
    assert caplog.text.count("Set TMPDIR to a folder that you may write to") == 2
    for run in (first, second):
        run.latest_offset(INITIAL, None)
        assert not run._sources.secondary
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
    notes = Notes(parse(options), "one", 0.0, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [f"{os.getpid()}.json"]
    notes.close()
    assert not list(tmp_path.iterdir())


def test_sources_with_groups_of_their_own_share_something_only_if_they_are_equal(
    source: Callable[..., FakeQuery],
) -> None:
    """Regression: the two sides of a self-join with groupIdPrefix began at different offsets."""
    options = {"kafka.group.id": "", "groupIdPrefix": "etl"}
    one, same, other = (source(name, **options)._sources._notes.own for name in ("one", "one", "two"))
    assert one.shared_topics(same) == ["orders"]
    assert not one.shared_topics(other)


def test_given_partitions_are_shared_if_they_are_the_same(source: Callable[..., FakeQuery]) -> None:
    one, same, other = (
        source(subscribe="", assign=partitions)._sources._notes.own
        for partitions in ('{"orders": [0, 1]}', '{"orders": [1]}', '{"orders": [2]}')
    )
    assert one.shared_topics(same) == ["orders-1"]
    assert not one.shared_topics(other)
