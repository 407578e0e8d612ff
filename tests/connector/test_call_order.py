"""The query gets the same calls from Spark 4.0 and 4.1 as from Spark 4.2, wherever it is killed.

Both engines below make the calls that were logged on 4.0.1, 4.1.1 and 4.3.0, in that order.  Each call and each write
to the checkpoint is a step, and a run may end after any step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.stream_reader_40 import CallOrder, OlderStreamReader

Json = dict[str, Any]
START = INITIAL.to_json()


class Checkpoint:
    """Spark's logs, with the offsets that the source has returned so far."""

    def __init__(self) -> None:
        self.offsets: list[Json] = []
        self.commits = 0

    def end(self, batch: int) -> Json:
        return START if batch < 0 else self.offsets[batch]

    @property
    def unfinished(self) -> bool:
        return len(self.offsets) > self.commits


class FakeQuery:
    """Records its calls.  ``news`` decides which polls find something to read."""

    def __init__(self, checkpoint: Checkpoint, news: Iterator[bool]) -> None:
        self.checkpoint = checkpoint
        self.news = news
        self.calls: list[tuple[str, Json, Json]] = []
        self.triggers = 0

    def latest_offset(self, start: Json) -> Json:
        finished = self.checkpoint.end(self.checkpoint.commits - 1)
        assert start == finished, "what it passes for finished is finished, and nothing else"
        assert not self.checkpoint.unfinished
        new = start == START or next(self.news)
        end = {"n": len(self.checkpoint.offsets)} if new else start
        self.calls.append(("latestOffset", start, end))
        return end

    def partitions(self, start: Json, end: Json) -> None:
        self.calls.append(("partitions", start, end))

    def commit(self, end: Json) -> None:
        self.calls.append(("commit", end, end))


class OlderReader:
    """Makes the same calls as :class:`~pyspark_kafka_group.stream_reader_40.OlderStreamReader`."""

    def __init__(self, query: FakeQuery) -> None:
        self._query = query
        self._order = CallOrder()

    def latestOffset(self) -> Json:
        self._query.triggers += 1
        return self._order.latest_offset(self._query.latest_offset)

    def partitions(self, start: Json, end: Json) -> None:
        if not self._order.names_newest_batch(start, end):
            self._query.partitions(start, end)

    def commit(self, end: Json) -> None:
        self._order.logged_after(end)
        self._query.commit(end)


def older_spark(checkpoint: Checkpoint, query: FakeQuery, *, scans: bool) -> Iterator[None]:
    """Run as Spark 4.0 and 4.1 do, one step at a time."""
    reader = OlderReader(query)
    if checkpoint.offsets:
        newest = checkpoint.offsets[-1]
        reader.partitions(newest, newest)
        yield
    yield from batches(checkpoint, reader, reader.latestOffset, scans=scans)


def newer_spark(checkpoint: Checkpoint, query: FakeQuery, *, scans: bool) -> Iterator[None]:
    """Run as Spark 4.2 and newer do, one step at a time."""

    def latest_offset() -> Json:
        query.triggers += 1
        return query.latest_offset(checkpoint.end(len(checkpoint.offsets) - 1))

    yield from batches(checkpoint, query, latest_offset, scans=scans)


def batches(
    checkpoint: Checkpoint, calls: OlderReader | FakeQuery, latest_offset: Callable[[], Json], *, scans: bool
) -> Iterator[None]:
    """Run batches without end, as all versions of Spark do."""
    while True:
        if not checkpoint.unfinished:
            end = latest_offset()
            yield
            if end == checkpoint.end(len(checkpoint.offsets) - 1):
                continue
            checkpoint.offsets.append(end)
            yield
            if len(checkpoint.offsets) > 1:
                calls.commit(checkpoint.offsets[-2])
                yield
        batch = len(checkpoint.offsets) - 1
        if scans:
            calls.partitions(checkpoint.end(batch - 1), checkpoint.end(batch))
            yield
        checkpoint.commits += 1
        yield


STEPS = 14
"""Enough for two batches and idle triggers in between."""


def runs(engine: Any, news: tuple[bool, ...], kills: tuple[int, ...], *, scans: bool) -> list[list[Any]]:
    """Return the calls of three runs over one checkpoint.

    The first two runs are killed after this many writes and calls.  A run dies before its query sees the next call.
    Naming the newest batch is no call to the query, so the kills count only what reaches the query or the checkpoint.
    """
    checkpoint, found = Checkpoint(), []
    polls = itertools.cycle(news)
    for kill in (*kills, STEPS):
        query = FakeQuery(checkpoint, polls)
        begun = len(checkpoint.offsets) + checkpoint.commits
        steps = engine(checkpoint, query, scans=scans)
        while len(query.calls) + len(checkpoint.offsets) + checkpoint.commits - begun < kill:
            next(steps)
        found.append([*query.calls, query.triggers, len(checkpoint.offsets), checkpoint.commits])
    return found


@pytest.mark.parametrize("news", [(True,), (True, False), (False, True, True)])
def test_a_query_sees_the_same_calls_wherever_it_is_killed(news: tuple[bool, ...]) -> None:
    for kills in itertools.product(range(STEPS), repeat=2):
        assert runs(older_spark, news, kills, scans=True) == runs(newer_spark, news, kills, scans=True), kills


def test_a_batch_that_needs_no_partitions_is_finished_with_the_next_trigger_too() -> None:
    """In all logged runs, Spark asks for the partitions of each batch.  But the query does not depend on it."""
    for kills in itertools.product(range(STEPS), repeat=2):
        found = runs(older_spark, (True,), kills, scans=False)
        assert found[-1][-1] >= 2, (kills, "the third run does not go on")


def test_a_batch_is_planned_once_if_spark_asks_again_before_it_runs() -> None:
    checkpoint = Checkpoint()
    query = FakeQuery(checkpoint, itertools.repeat(True))
    reader = OlderReader(query)
    assert reader.latestOffset() == reader.latestOffset() == {"n": 0}
    reader.partitions(START, {"n": 0})
    assert query.calls == [("latestOffset", START, {"n": 0}), ("partitions", START, {"n": 0})]


REFUSED = r"unset spark\.sql\.streaming\.triggerAvailableNowWrapper\.enabled"


def test_the_wrapper_for_available_now_is_refused_before_its_first_batch() -> None:
    """Regression: it drops answers of latestOffset.  The query took their batches for finished, and committed them."""
    settings = parse({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"})
    reader = OlderStreamReader(settings)
    reader._query = cast(Any, SimpleNamespace(check_running=lambda: None, latest_offset=lambda *_: {"n": 0}))
    end = reader.latestOffset()
    assert reader.initialOffset() == START
    assert reader.latestOffset() == end  # a report
    with pytest.raises(ConfigurationError, match=REFUSED):
        reader.initialOffset()


def test_a_query_that_was_stopped_in_its_first_call_starts_again() -> None:
    """Regression: Spark had logged a batch 0 that ends at the initial offset, and every restart ended with an error."""
    checkpoint = Checkpoint()
    checkpoint.offsets = [START]
    query = FakeQuery(checkpoint, itertools.repeat(True))
    reader = OlderReader(query)
    reader.partitions(START, START)  # names the newest batch
    reader.partitions(START, START)  # repeats it
    checkpoint.commits = 1
    assert reader.latestOffset() == {"n": 1}
    reader.commit(START)
    reader.partitions(START, {"n": 1})
    assert query.calls == [
        ("latestOffset", START, {"n": 1}),
        ("commit", START, START),
        ("partitions", START, {"n": 1}),
    ]


@pytest.mark.parametrize("start", [{"n": 4}, START], ids=["too late", "a restart of the wrapper"])
def test_another_start_behind_the_first_call_is_refused(start: Json) -> None:
    reader = OlderReader(FakeQuery(Checkpoint(), itertools.repeat(True)))
    reader.latestOffset()
    with pytest.raises(ConfigurationError, match=REFUSED):
        reader.partitions(start, start)
