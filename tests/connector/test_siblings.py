"""Two sources of one query, told from two queries by the order of Spark's calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from pyspark_kafka_group import siblings
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options import parse
from pyspark_kafka_group.siblings import Calls, Siblings

FIRST = Calls(
    pid=1,
    parent=7,
    servers=["a:1"],
    group="etl",
    topics=["orders", "payments"],
    pattern=None,
    checkpoint=None,
    limit_at=0.0,
    first_at=1.0,
    answered_at=3.0,
)
SECOND = replace(FIRST, pid=2, topics=["orders"], limit_at=0.1, first_at=3.01, answered_at=None)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "_SILENCE_S", 0.4)
    monkeypatch.setattr(siblings, "_PAUSE_S", 0.01)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Siblings]:
    """Return a maker of sources, as if each had a process of its own."""
    pids = iter(range(900_000, 900_100))
    monkeypatch.setattr(siblings, "_runs", lambda _pid: True)

    def make(**options: str) -> Siblings:
        given = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "etl", "subscribe": "orders", **options}
        with monkeypatch.context() as patch:
            pid = next(pids)
            patch.setattr(os, "getpid", lambda: pid)
            return Siblings(parse(given), tmp_path)

    return make


def test_sources_that_are_asked_one_after_the_other_may_be_of_one_query() -> None:
    assert FIRST.may_come_before(SECOND)
    assert FIRST.competes_with(SECOND)


@pytest.mark.parametrize(
    "change",
    [
        {"pid": FIRST.pid},
        {"parent": 8},
        {"limit_at": 1.5},  # Spark asks all sources of a query for it first
        {"first_at": 2.9},  # a query has one thread
        {"first_at": 4.5},
        {"first_at": None},
    ],
)
def test_other_orders_of_calls_are_those_of_two_queries(change: dict[str, float | None]) -> None:
    assert not FIRST.may_come_before(replace(SECOND, **change))  # type: ignore[arg-type]


def test_checkpoints_that_differ_are_those_of_two_queries() -> None:
    first = replace(FIRST, checkpoint="/a")
    assert not first.may_come_before(replace(SECOND, checkpoint="/b"))
    assert first.may_come_before(replace(SECOND, checkpoint="/a"))
    assert first.may_come_before(SECOND)


@pytest.mark.parametrize(
    ("change", "competes"),
    [
        ({}, True),
        ({"group": "other"}, False),
        ({"servers": ["b:1"]}, False),
        ({"topics": ["clicks"]}, False),
        ({"topics": [], "pattern": "ord.*"}, True),
        ({"topics": [], "pattern": "ord"}, False),
    ],
)
def test_sources_compete_for_topics_of_one_group(change: dict[str, object], competes: bool) -> None:
    other = replace(SECOND, **change)  # type: ignore[arg-type]
    assert FIRST.competes_with(other) is competes
    assert other.competes_with(FIRST) is competes


def test_patterns_compete_if_they_are_the_same() -> None:
    first = replace(FIRST, topics=[], pattern="a.*")
    assert first.competes_with(replace(SECOND, topics=[], pattern="a.*"))
    assert not first.competes_with(replace(SECOND, topics=[], pattern="b.*"))


def test_second_source_of_a_query_is_refused(source: Callable[..., Siblings]) -> None:
    first, second = source(), source(subscribe="payments,orders")
    first.announce()
    second.announce()
    first.begin_first()
    first.end_first()
    with pytest.raises(OptionError) as refused:
        second.begin_first()
    assert str(refused.value) == (
        "Option 'kafka.group.id': two sources of this query are members of the group 'etl' and read the same topics "
        "(orders), so each would get only some of the partitions. Use one load() for both; if it is joined with "
        "itself, rename every column of one side before the join, or Spark reads it twice. Or give each load() a group "
        "of its own."
    )


def test_source_that_spark_calls_meanwhile_is_of_another_query(source: Callable[..., Siblings]) -> None:
    """Two queries started at the same time, and the second one was late."""
    first, second = source(), source()
    first.announce()
    second.announce()
    first.begin_first()
    first.end_first()
    batch_begins = Timer(0.1, first.called)
    batch_begins.start()
    begin = time.monotonic()
    second.begin_first()
    assert 0.05 < time.monotonic() - begin < 0.35
    batch_begins.join()


def test_source_that_leaves_meanwhile_does_not_matter(source: Callable[..., Siblings]) -> None:
    first, second = source(), source()
    first.announce()
    second.announce()
    first.begin_first()
    first.end_first()
    first.close()
    second.begin_first()


@pytest.mark.parametrize("running", ["before", "still"])
def test_other_queries_of_the_session_cost_nothing(source: Callable[..., Siblings], running: str) -> None:
    first, second = source(), source()
    first.announce()
    first.begin_first()
    if running == "before":
        first.end_first()
    second.announce()
    begin = time.monotonic()
    second.begin_first()
    assert time.monotonic() - begin < 0.2


def test_nothing_is_refused_where_the_folder_cannot_be_used(
    source: Callable[..., Siblings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: -1)  # as if the folder was somebody else's
    first, second = source(), source()
    for one in (first, second):
        one.announce()
        one.begin_first()
        one.end_first()
        one.called()
        one.close()
    assert not list(tmp_path.iterdir())


def test_what_the_dead_have_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.json").write_text("{}")
    monkeypatch.setattr(siblings, "_runs", lambda pid: pid != 1)
    options = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "etl", "subscribe": "orders"}
    one = Siblings(parse(options), tmp_path)
    one.announce()
    assert [file.name for file in tmp_path.iterdir()] == [f"{os.getpid()}.json"]
    one.close()
    assert not list(tmp_path.iterdir())
