"""How often log ends are looked at, and how a topic that is created again is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group import watch
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.kafka_protocol import ProtocolError
from pyspark_kafka_group.offsets.cluster import TryAgainError
from pyspark_kafka_group.offsets.log_ends import TopicIds
from pyspark_kafka_group.offsets.start import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.planning import Plannable
from pyspark_kafka_group.watch import LogWatch, Pace, pause_s

SETTINGS = GroupSettings(
    properties={},
    group_id="etl",
    topics=("orders",),
    commit_mode=CommitMode.TRANSACTION,
    drain_timeout_s=20.0,
    read_committed=True,
    start=StartPolicy(group_id="etl", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True),
)


# ---------------------------------------------------------------------------------------------- pace


def test_right_after_something_came_the_pause_is_the_shortest() -> None:
    assert pause_s(idle_s=0.0, cost_s=0.0002) == 0.005


def test_a_cheap_look_is_repeated_soon_however_long_nothing_came() -> None:
    assert pause_s(idle_s=3600.0, cost_s=0.0002) == pytest.approx(0.05)


def test_an_expensive_look_becomes_rare_step_by_step() -> None:
    assert pause_s(idle_s=0.0, cost_s=0.005) == 0.005
    assert pause_s(idle_s=2.0, cost_s=0.005) == pytest.approx(0.2)
    assert pause_s(idle_s=60.0, cost_s=0.005) == pytest.approx(0.5)


def test_whatever_a_look_costs_there_is_one_each_second() -> None:
    assert pause_s(idle_s=3600.0, cost_s=10.0) == 1.0


@given(idle_s=st.floats(0, 1e5), cost_s=st.floats(0, 10))
def test_looks_take_at_most_half_of_a_core_at_once_and_one_percent_in_the_end(idle_s: float, cost_s: float) -> None:
    pause = pause_s(idle_s, cost_s)
    assert 0.005 <= pause <= 1.0
    assert pause >= min(cost_s, 1.0)
    assert pause_s(1e6, cost_s) >= min(99 * cost_s, 1.0)


def test_news_make_the_next_look_due_at_once() -> None:
    pace = Pace()
    with pace.look():
        pass
    assert pace.due_at > 0
    pace.news()
    assert pace.due_at == 0


def test_a_look_that_fails_is_followed_by_a_pause_too() -> None:
    pace = Pace()
    with pytest.raises(ValueError, match="no"), pace.look():
        raise ValueError("no")
    assert pace.due_at > 0


# ------------------------------------------------------------------------------------------- watching


class Cluster:
    """Answers for the client of log ends."""

    def __init__(self, ends: Mapping[int, int]) -> None:
        self.ends_now = {TopicPartition("orders", n): Offset(end) for n, end in ends.items()}
        self.id = "first"
        self.problem: Exception | None = None
        self.answers_ids = True
        self.asked_ids: list[Future[Any]] = []

    def ends(self, partitions: object) -> Mapping[TopicPartition, Offset]:
        if self.problem is not None:
            raise self.problem
        return self.ends_now

    def ask_topic_ids(self, topics: object) -> TopicIds:
        future: Future[Any] = Future()
        self.asked_ids.append(future)
        if self.answers_ids:
            self.answer_ids()
        return TopicIds({"orders": future}, lambda error: None)

    def answer_ids(self) -> None:
        self.asked_ids[-1].set_result(SimpleNamespace(topic_id=self.id))

    def close(self) -> None:
        self.answers_ids = False


Watching = Callable[..., tuple[LogWatch, Cluster]]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    def make(ends: Mapping[int, int]) -> tuple[LogWatch, Cluster]:
        cluster = Cluster(ends)
        monkeypatch.setattr(watch, "LogEnds", lambda *_, **__: cluster)
        made = LogWatch(SETTINGS)
        made.look(cluster.ends_now.keys())
        return made, cluster

    return make


def at(*positions: int) -> Plannable:
    return {TopicPartition("orders", n): (OwnershipEpoch(1), Offset(position)) for n, position in enumerate(positions)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that the watch sees; it stands still."""
    now = SimpleNamespace(s=1000.0)
    fake = SimpleNamespace(monotonic=lambda: now.s, process_time=lambda: 0.0, thread_time=lambda: 0.0)
    monkeypatch.setattr(watch, "time", fake)
    return now


def test_the_first_id_of_a_topic_is_no_change(watching: Watching) -> None:
    logs, cluster = watching({0: 5})
    assert logs.other_logs(at(3), news=True) == set()
    assert len(cluster.asked_ids) == 1


def test_another_id_is_told_once(watching: Watching, clock: SimpleNamespace) -> None:
    logs, cluster = watching({0: 5})
    logs.other_logs(at(3), news=True)
    cluster.id = "second"
    clock.s += 2
    assert logs.other_logs(at(3), news=True) == {"orders"}
    clock.s += 2
    assert logs.other_logs(at(3), news=True) == set()


def test_ids_are_asked_for_once_a_second_and_only_before_a_batch(watching: Watching, clock: SimpleNamespace) -> None:
    logs, cluster = watching({0: 5})
    logs.other_logs(at(5), news=False)
    assert not cluster.asked_ids
    for _ in range(5):
        logs.other_logs(at(3), news=True)
        clock.s += 0.1
    assert len(cluster.asked_ids) == 1
    clock.s += 1
    logs.other_logs(at(3), news=True)
    assert len(cluster.asked_ids) == 2


def test_a_log_that_ends_below_the_position_is_asked_about_at_once(watching: Watching, clock: SimpleNamespace) -> None:
    logs, cluster = watching({0: 5})
    logs.other_logs(at(3), news=True)
    assert not logs.shorter
    cluster.id = "second"
    assert logs.other_logs(at(6), news=False) == {"orders"}
    assert logs.shorter


def test_with_very_many_partitions_a_batch_does_not_wait_for_ids(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come with the next one."""
    monkeypatch.setattr(watch, "_MANY_PARTITIONS", 1)
    logs, cluster = watching({0: 5, 1: 5})
    logs.other_logs(at(3, 3), news=True)
    cluster.id, cluster.answers_ids = "second", False
    clock.s += 10
    assert logs.other_logs(at(3, 3), news=True) == set()
    cluster.answer_ids()
    assert logs.other_logs(at(3, 3), news=True) == {"orders"}


def test_with_very_many_partitions_a_log_that_is_shorter_is_waited_for(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MANY_PARTITIONS", 1)
    logs, cluster = watching({0: 5, 1: 5})
    logs.other_logs(at(3, 3), news=True)
    cluster.id = "second"
    assert logs.other_logs(at(3, 6), news=False) == {"orders"}


def test_ids_that_do_not_come_are_no_change(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_PATIENCE_S", 0.01)
    logs, cluster = watching({0: 5})
    logs.other_logs(at(3), news=True)
    cluster.answers_ids = False
    clock.s += 2
    assert logs.other_logs(at(3), news=True) == set()


def test_without_an_answer_there_are_no_ends_and_one_warning(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    logs, cluster = watching({0: 5})
    cluster.problem = TryAgainError("brokers are down")
    with caplog.at_level(logging.WARNING, logger=watch.__name__):
        assert logs.look([]) == {}
        assert logs.look([]) == {}
    assert [record.getMessage() for record in caplog.records] == ["group etl: no log ends just now: brokers are down"]


def test_closing_twice_is_harmless(watching: Watching) -> None:
    logs, _ = watching({0: 5})
    logs.close()
    logs.close()
    LogWatch(SETTINGS).close()


class Direct:
    """Log ends asked directly: fails as long as there is a problem."""

    def __init__(self) -> None:
        self.asked = 0
        self.problem: Exception | None = None

    def ends(self, partitions: object) -> Mapping[TopicPartition, Offset]:
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        return {TopicPartition("orders", 0): Offset(77)}

    def close(self) -> None: ...


@pytest.mark.parametrize("problem", [ConnectionError("gone"), ProtocolError("error 6"), TimeoutError("no answer")])
def test_librdkafka_is_asked_for_a_while_where_leaders_do_not_answer_directly(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    direct = Direct()
    monkeypatch.setattr(watch, "open_direct_log_ends", lambda *_, **__: direct)
    logs, _ = watching({0: 5})
    tp = TopicPartition("orders", 0)
    assert logs.look([tp]) == {tp: 77}
    direct.problem = problem
    before = direct.asked
    assert logs.look([tp]) == {tp: 5}
    assert logs.look([tp]) == {tp: 5}
    assert direct.asked == before + 1, "it rests"
    clock.s += 31
    assert logs.look([tp]) == {tp: 5}
    assert direct.asked == before + 2
    clock.s += 31
    assert logs.look([tp]) == {tp: 5}
    assert direct.asked == before + 2, "longer the second time"
    direct.problem = None
    clock.s += 31
    assert logs.look([tp]) == {tp: 77}
