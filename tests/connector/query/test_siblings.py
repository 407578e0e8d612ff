"""Two sources of one query, told from two queries by the order of calls; the second reads what the first plans."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query import siblings, source_calls
from pyspark_kafka_group.query.guest_query import GuestQuery
from pyspark_kafka_group.query.siblings import Host, Siblings
from pyspark_kafka_group.query.source_calls import LATEST_OFFSET, PARTITIONS, Calls

FIRST = Calls(
    pid=1,
    parent=7,
    servers=["a:1"],
    group="etl",
    topics=["orders", "payments"],
    pattern=None,
    plans="",
    checkpoint=None,
    limit_at=0.0,
    first_at=1.0,
    answered_at=3.0,
)
SECOND = replace(FIRST, pid=2, topics=["orders"], limit_at=0.1, first_at=3.01, answered_at=None)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "_SILENCE_S", 0.4)
    monkeypatch.setattr(siblings, "_NEXT_SILENCE_S", 0.1)
    monkeypatch.setattr(siblings, "_PAUSE_S", 0.01)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Siblings]:
    """Return a maker of sources, as if each had a process of its own."""
    pids = iter(range(900_000, 900_100))
    monkeypatch.setattr(source_calls, "runs", lambda _pid: True)
    monkeypatch.setattr(siblings, "runs", lambda _pid: True)

    def make(**options: str) -> Siblings:
        usual = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "etl", "subscribe": "orders", **options}
        given = {key: value for key, value in usual.items() if value}
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


def test_sources_that_are_asked_later_are_of_one_query_if_they_have_its_name() -> None:
    first, second = replace(FIRST, query_id="q"), replace(SECOND, query_id="q", first_at=60.0)
    assert first.may_come_before(second)
    assert not replace(first, query_id="r").may_come_before(second)
    assert not replace(first, query_id=None).may_come_before(second)
    assert not first.may_come_before(replace(second, limit_at=1.5))  # of the run before


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


INITIAL = {"n": 0}
FIRST_END = {"n": 1}
SECOND_END = {"n": 2}
RANGES = {TopicPartition("orders", 0): OffsetRange.checked(5, 9)}


def started(first: Siblings, second: Siblings, query_id: str | None = None) -> Host | None:
    """Two sources of one query: what the second one finds when the first one has answered."""
    first.announce()
    second.announce()
    with first.call(LATEST_OFFSET):
        assert first.find_host(query_id) is None
        first.answer(INITIAL, FIRST_END)
    return second.find_host(query_id)


def test_second_source_of_a_query_reads_what_the_first_one_plans(source: Callable[..., Siblings]) -> None:
    first, second = source(), source()
    host = started(first, second)
    assert host is not None
    guest = GuestQuery(host)
    assert first.may_have_guests
    assert guest.latest_offset(INITIAL, None) == FIRST_END
    with first.call(LATEST_OFFSET):
        first.answer(FIRST_END, SECOND_END)
    assert guest.latest_offset(FIRST_END, None) == SECOND_END
    with first.call(LATEST_OFFSET):
        first.answer(SECOND_END, SECOND_END)
    assert guest.latest_offset(SECOND_END, None) == SECOND_END


def test_third_source_is_a_guest_of_the_first(source: Callable[..., Siblings]) -> None:
    first, second, third = source(), source(), source()
    third.announce()
    assert started(first, second) is not None
    second.answer(INITIAL, FIRST_END)
    host = third.find_host(None)
    assert host is not None
    assert GuestQuery(host).latest_offset(INITIAL, None) == FIRST_END


def test_batch_that_runs_again_is_the_same_on_both_sides(source: Callable[..., Siblings]) -> None:
    first, second = source(), source()
    first.announce()
    second.announce()
    with first.call(PARTITIONS):
        assert first.find_host("q") is None
        first.answer(INITIAL, FIRST_END, RANGES)
    host = second.find_host("q")
    assert host is not None
    assert GuestQuery(host).running_ranges(INITIAL, FIRST_END) == RANGES


def test_host_whose_batch_runs_is_of_another_query(source: Callable[..., Siblings]) -> None:
    """Spark runs a batch only when it has asked all sources of the query for its end."""
    first, second = source(), source()
    host = started(first, second)
    assert host is not None
    guest = GuestQuery(host)
    guest.latest_offset(INITIAL, None)
    with first.call(PARTITIONS):
        pass
    with pytest.raises(OptionError, match="it turns out that they are not"):
        guest.latest_offset(FIRST_END, None)


def test_host_that_is_called_meanwhile_is_of_another_query(source: Callable[..., Siblings]) -> None:
    first, second = source(), source()
    host = started(first, second)
    assert host is not None
    with first.call(LATEST_OFFSET), pytest.raises(OptionError, match="it turns out that they are not"):
        GuestQuery(host).latest_offset(INITIAL, None)

    def poll() -> None:
        with first.call(LATEST_OFFSET):
            first.answer(FIRST_END, FIRST_END)

    polls = Timer(0.03, poll)
    polls.start()
    with pytest.raises(OptionError, match="it turns out that they are not"):
        GuestQuery(host).latest_offset(INITIAL, None)
    polls.join()


def test_host_that_has_planned_something_else_is_of_another_query(source: Callable[..., Siblings]) -> None:
    first, second = source(), source()
    host = started(first, second)
    assert host is not None
    with pytest.raises(OptionError, match="it turns out that they are not"):
        GuestQuery(host).latest_offset({"n": 7}, None)
    with pytest.raises(OptionError, match="it turns out that they are not"):
        GuestQuery(host).running_ranges(INITIAL, {"n": 7})
    first.close()
    with pytest.raises(OptionError, match="one of them has ended"):
        GuestQuery(host).latest_offset(INITIAL, None)


def test_what_a_host_told_before_it_was_asked_again_is_not_believed(source: Callable[..., Siblings]) -> None:
    """Regression: its disk was full, or it had stopped to tell, and the guest took that for nothing new."""
    first, second = source(), source()
    host = started(first, second)
    assert host is not None
    guest = GuestQuery(host)
    assert guest.latest_offset(INITIAL, None) == FIRST_END
    with pytest.raises(OptionError, match="it turns out that they are not"):
        guest.latest_offset(FIRST_END, None)


def test_guest_whose_file_was_tidied_up_is_still_told(source: Callable[..., Siblings], tmp_path: Path) -> None:
    first, second = source(), source()
    host = started(first, second)
    assert host is not None
    guest = GuestQuery(host)
    guest.latest_offset(INITIAL, None)
    newest = FIRST_END
    (tmp_path / "900001.json").unlink()
    for n in (2, 3, 4):
        with first.call(LATEST_OFFSET):
            first.answer(newest, {"n": n})
        newest, before = {"n": n}, newest
        assert guest.latest_offset(before, None) == newest


def test_second_source_that_would_plan_other_batches_is_refused(source: Callable[..., Siblings]) -> None:
    with pytest.raises(OptionError) as refused:
        started(source(), source(subscribe="payments,orders"))
    assert str(refused.value) == (
        "Option 'kafka.group.id': two sources of this query are members of the group 'etl' and read the same topics "
        "(orders) with different options, so each would get only some of the partitions. Give both the same topics, "
        "starting offsets and limits, and they read the same batches; use one load() for both; or give each load() a "
        "group of its own."
    )


def test_source_that_spark_calls_meanwhile_is_of_another_query(source: Callable[..., Siblings]) -> None:
    """Two queries started at the same time, and the second one was late."""
    first, second = source(), source()

    def begin_batch() -> None:
        with first.call(PARTITIONS):
            pass

    batch_begins = Timer(0.1, begin_batch)
    batch_begins.start()
    begin = time.monotonic()
    assert started(first, second) is None
    assert 0.05 < time.monotonic() - begin < 0.35
    batch_begins.join()


def test_source_that_leaves_meanwhile_does_not_matter(source: Callable[..., Siblings]) -> None:
    first, second = source(), source()
    leaves = Timer(0.1, first.close)
    leaves.start()
    assert started(first, second) is None
    leaves.join()


def test_nobody_waits_for_guests_that_are_not(source: Callable[..., Siblings], tmp_path: Path) -> None:
    first, second = source(), source()
    first.announce()
    second.announce()
    first.find_host(None)
    at_first = first.may_have_guests
    second.find_host(None)
    first.answer(INITIAL, FIRST_END)
    first.answer(FIRST_END, SECOND_END)
    assert (at_first, first.may_have_guests) == (True, False)
    before = sorted((file, file.stat().st_mtime_ns) for file in tmp_path.iterdir())
    with first.call(LATEST_OFFSET):
        first.answer(SECOND_END, {"n": 3})
    assert sorted((file, file.stat().st_mtime_ns) for file in tmp_path.iterdir()) == before


@pytest.mark.parametrize("running", ["before", "still"])
def test_other_queries_of_the_session_cost_nothing(source: Callable[..., Siblings], running: str) -> None:
    first, second = source(), source()
    first.announce()
    first.find_host(None)
    if running == "before":
        first.answer(INITIAL, FIRST_END)
    second.announce()
    begin = time.monotonic()
    assert second.find_host(None) is None
    assert time.monotonic() - begin < 0.2
    assert not first.may_have_guests
    assert not second.may_have_guests


def test_nothing_is_told_where_the_folder_cannot_be_used(
    source: Callable[..., Siblings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: -1)  # as if the folder was somebody else's
    first, second = source(), source()
    assert started(first, second) is None
    assert not first.may_have_guests
    for one in (first, second):
        one.close()
    assert not list(tmp_path.iterdir())


def test_secrets_are_not_told(source: Callable[..., Siblings], tmp_path: Path) -> None:
    options = {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "etl", "kafka.sasl.mechanism": "PLAIN"}
    first, second = source(**{**options, "kafka.security.protocol": "SASL_PLAINTEXT"}), source()
    started(first, second)
    assert list(tmp_path.iterdir())
    assert not [file for file in tmp_path.iterdir() if "hunter2" in file.read_text()]


def test_what_the_dead_have_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.json").write_text("{}")
    (tmp_path / "1.plan").write_text("[]")
    monkeypatch.setattr(source_calls, "runs", lambda pid: pid != 1)
    options = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "etl", "subscribe": "orders"}
    one = Siblings(parse(options), tmp_path)
    one.announce()
    assert [file.name for file in tmp_path.iterdir()] == [f"{os.getpid()}.json"]
    one.close()
    assert not list(tmp_path.iterdir())


def test_sources_with_groups_of_their_own_do_not_compete(source: Callable[..., Siblings]) -> None:
    options = {"kafka.group.id": "", "groupIdPrefix": "etl"}
    one, other = (source(**options)._files.own for _ in range(2))
    assert not one.competes_with(other)


def test_given_partitions_compete_with_the_same_ones_only(source: Callable[..., Siblings]) -> None:
    one, same, other = (
        source(subscribe="", assign=partitions)._files.own
        for partitions in ('{"orders": [0, 1]}', '{"orders": [1]}', '{"orders": [2]}')
    )
    assert one.competes_with(same)
    assert not one.competes_with(other)
