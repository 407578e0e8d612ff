"""How often log ends are looked at, and who is asked whether they belong to the same logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.log_ends import TopicIds
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query import log_inspection, log_watch
from pyspark_kafka_group.query.direct_log_ends import UnknownPartitionsError
from pyspark_kafka_group.query.log_inspection import Changes
from pyspark_kafka_group.query.log_watch import LogWatch, Pace, pause_s
from pyspark_kafka_group.query.planning import Plannable
from pyspark_kafka_group.wire import deadline
from pyspark_kafka_group.wire.types import ProtocolError

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
    assert not pace.due_at.passed
    pace.news()
    assert pace.due_at.passed


def test_a_look_that_fails_is_followed_by_a_pause_too() -> None:
    pace = Pace()
    with pytest.raises(ValueError, match="no"), pace.look():
        raise ValueError("no")
    assert not pace.due_at.passed


# ------------------------------------------------------------------------------------------- watching


class Cluster:
    """Answers for librdkafka's client of log ends."""

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

    def ask_topic_ids(self, topics: Collection[str]) -> TopicIds:
        if self.problem is not None:
            raise self.problem
        future: Future[Any] = Future()
        self.asked_ids.append(future)
        if self.answers_ids:
            self.answer_ids()
        return TopicIds(dict.fromkeys(topics, future), lambda error: None)

    def answer_ids(self) -> None:
        self.asked_ids[-1].set_result(SimpleNamespace(topic_id=self.id))

    def close(self) -> None:
        self.answers_ids = False


Watching = Callable[..., tuple[LogWatch, Cluster]]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    watches: list[LogWatch] = []

    def make(ends: Mapping[int, int]) -> tuple[LogWatch, Cluster]:
        cluster = Cluster(ends)
        monkeypatch.setattr(log_watch, "LogEnds", lambda *_, **__: cluster)
        made = LogWatch(SETTINGS)
        watches.append(made)
        made.look(cluster.ends_now.keys())
        return made, cluster

    yield make
    for watch in watches:
        watch.close()


def at(*positions: int, topic: str = "orders", topic_id: str | None = "first") -> Plannable:
    return {
        TopicPartition(topic, n): Position(OwnershipEpoch(1), Offset(position), LeaderEpoch(4), topic_id)
        for n, position in enumerate(positions)
    }


RECREATED = Changes(recreated={"orders"})
NOTHING = Changes()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that the watch sees; it stands still."""
    now = SimpleNamespace(s=1000.0)
    fake = SimpleNamespace(monotonic=lambda: now.s, process_time=lambda: 0.0, thread_time=lambda: 0.0)
    monkeypatch.setattr(log_watch, "time", fake)
    monkeypatch.setattr(log_inspection, "time", fake)
    monkeypatch.setattr(deadline, "time", fake)
    return now


def test_the_id_of_a_topic_that_the_position_does_not_know_is_no_change(watching: Watching) -> None:
    logs, cluster = watching({0: 5})
    assert logs.inspect(at(3, topic_id=None), news=True) == NOTHING
    assert len(cluster.asked_ids) == 1
    assert logs.leader_epochs == {}, "librdkafka does not tell them"


def test_another_id_is_told_until_the_position_belongs_to_the_new_log(
    watching: Watching, clock: SimpleNamespace
) -> None:
    logs, cluster = watching({0: 5})
    assert logs.inspect(at(3), news=True) == NOTHING
    cluster.id = "second"
    assert logs.inspect(at(3), news=True) == RECREATED
    assert logs.inspect(at(3), news=True) == RECREATED
    assert logs.inspect(at(0, topic_id="second"), news=True) == NOTHING


def test_ids_are_asked_for_before_each_batch_and_not_otherwise(watching: Watching, clock: SimpleNamespace) -> None:
    logs, cluster = watching({0: 5})
    logs.inspect(at(5), news=False)
    assert not cluster.asked_ids
    for _ in range(5):
        logs.inspect(at(3), news=True)
    assert len(cluster.asked_ids) == 5


def test_a_log_that_ends_below_the_position_is_asked_about_at_once(watching: Watching, clock: SimpleNamespace) -> None:
    logs, cluster = watching({0: 5})
    logs.inspect(at(3), news=True)
    assert not logs.strange
    cluster.id = "second"
    assert logs.inspect(at(6), news=False) == RECREATED
    assert logs.strange


def test_a_log_of_the_same_id_that_ends_below_the_position_was_truncated(
    watching: Watching, clock: SimpleNamespace
) -> None:
    logs, _ = watching({0: 5, 1: 5})
    assert logs.inspect(at(5, 6), news=False) == Changes(unsure={TopicPartition("orders", 1)})
    clock.s += 10
    assert logs.inspect(at(5, 6), news=False) == Changes(truncated={TopicPartition("orders", 1)})


def test_with_very_many_partitions_a_batch_does_not_wait_for_ids(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come with the next one."""
    monkeypatch.setattr(log_inspection, "MANY_PARTITIONS", 1)
    logs, cluster = watching({0: 5, 1: 5})
    logs.inspect(at(3, 3), news=True)
    cluster.id, cluster.answers_ids = "second", False
    clock.s += 10
    assert logs.inspect(at(3, 3), news=True) == NOTHING
    cluster.answer_ids()
    clock.s += 10
    assert logs.inspect(at(3, 3), news=True) == RECREATED
    assert len(cluster.asked_ids) == 2, "the answer was that to the question of before"


def test_with_very_many_partitions_a_log_that_is_shorter_is_waited_for(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_inspection, "MANY_PARTITIONS", 1)
    logs, cluster = watching({0: 5, 1: 5})
    logs.inspect(at(3, 3), news=True)
    cluster.id = "second"
    assert logs.inspect(at(3, 6), news=False) == RECREATED


def test_ids_that_were_asked_of_other_topics_are_not_taken_for_an_answer(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that are not among them would look as if they were deleted."""
    monkeypatch.setattr(log_inspection, "MANY_PARTITIONS", 1)
    logs, cluster = watching({0: 5, 1: 5})
    cluster.answers_ids = False
    logs.inspect(at(3, 3), news=True)
    cluster.answer_ids()
    clock.s += 10
    more = {**at(3, 3), **at(0, topic="clicks")}
    logs.look(more)
    found = logs.inspect(more, news=True)
    assert (found.deleted, found.unsure, found.recreated) == (set(), set(), set())


def test_ids_that_do_not_come_are_no_change(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch, "_PATIENCE_S", 0.01)
    logs, cluster = watching({0: 5})
    logs.inspect(at(3), news=True)
    cluster.answers_ids = False
    assert logs.inspect(at(3), news=True) == NOTHING
    assert logs.inspect(at(6), news=True) == Changes(unsure=set(at(6))), "where it looks strange it has to wait"


def test_a_client_that_cannot_ask_for_ids_is_no_change(watching: Watching, clock: SimpleNamespace) -> None:
    logs, cluster = watching({0: 5})
    cluster.problem = TryAgainError("brokers are down")
    assert logs.inspect(at(3), news=True) == NOTHING


def test_without_an_answer_there_are_no_ends_and_one_warning(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    logs, cluster = watching({0: 5})
    cluster.problem = TryAgainError("brokers are down")
    with caplog.at_level(logging.WARNING, logger=log_watch.__name__):
        assert logs.look([]) == {}
        assert logs.look([]) == {}
    assert [record.getMessage() for record in caplog.records] == ["group etl: no log ends just now: brokers are down"]


def test_closing_twice_is_harmless(watching: Watching) -> None:
    logs, _ = watching({0: 5})
    logs.close()
    logs.close()
    LogWatch(SETTINGS).close()


# ------------------------------------------------------------------------------------------- directly

TP, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)


class Direct:
    """Log ends asked directly: fails as long as there is a problem."""

    def __init__(self) -> None:
        self.asked: list[list[TopicPartition]] = []
        self.problem: Exception | None = None
        self.unknown: set[str] = set()
        self.leader_epochs = {TP: LeaderEpoch(4)}
        self.ids: dict[str, str | None] = {"orders": "first"}
        self.epoch_ends_now: dict[TopicPartition, Offset] = {}
        self.epoch_errors: dict[TopicPartition, str] = {}
        self.searched = 0

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        self.asked.append([*partitions])
        self._fail()
        if unknown := self.unknown & {tp.topic for tp in partitions}:
            raise UnknownPartitionsError(unknown)
        return dict.fromkeys(partitions, Offset(77))

    def topic_ids(self, topics: Collection[str]) -> dict[str, str | None]:
        self._fail()
        return {topic: topic_id for topic, topic_id in self.ids.items() if topic in topics}

    def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, Offset]:
        self._fail()
        return self.epoch_ends_now

    def refind_leaders(self) -> None:
        self.searched += 1

    def close(self) -> None: ...

    def _fail(self) -> None:
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> Direct:
    made = Direct()
    monkeypatch.setattr(log_watch, "open_direct_log_ends", lambda *_, **__: made)
    return made


def test_a_partition_without_a_leader_is_named_and_its_last_end_stays(
    watching: Watching, clock: SimpleNamespace, direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it fell out of the lag, which sank while nothing was read."""
    logs, _ = watching({0: 77})
    direct.leader_epochs = dict.fromkeys((TP, CLICKS), LeaderEpoch(4))
    direct.ids = {"orders": "first", "clicks": "first"}
    logs.look([TP, CLICKS])
    positions = {**at(3), **at(5, topic="clicks")}
    assert logs.held_back(positions, logs.inspect(positions, news=True)) == {}
    monkeypatch.setattr(direct, "ends", lambda _: {TP: Offset(80)})
    assert logs.look([TP, CLICKS]) == {TP: 80}
    assert logs.known_ends == {TP: 80, CLICKS: 77}
    assert logs.held_back(positions, logs.inspect(positions, news=True)) == {CLICKS: "it has no leader"}
    logs.look([TP])
    assert logs.known_ends == {TP: 80}, "it has left"


def test_why_nothing_is_known_is_told_in_the_words_of_what_was_asked(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    logs, cluster = watching({0: 77})
    direct.problem = ConnectionError("gone")
    cluster.problem = TryAgainError("brokers are down")
    assert logs.look([TP]) == {}
    reasons = logs.held_back(at(3), logs.inspect(at(3), news=False))
    assert reasons == {TP: "its broker does not tell where the log ends: brokers are down"}


def test_a_leader_that_does_not_tell_where_an_epoch_ends_is_named_with_its_error(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    """Regression: the error was dropped, and the partition held back without a word."""
    logs, _ = watching({0: 77})
    direct.leader_epochs = {TP: LeaderEpoch(5)}
    direct.epoch_errors = {TP: "FENCED_LEADER_EPOCH"}
    logs.look([TP])
    positions = {TP: next(iter(at(3).values()))._replace(leader_epoch=LeaderEpoch(4))}
    changes = logs.inspect(positions, news=True)
    assert changes.unsure == {TP}
    assert logs.held_back(positions, changes) == {TP: "whether its log was truncated is not known: FENCED_LEADER_EPOCH"}
    assert direct.searched, "leaders are looked for anew"


PROBLEMS = pytest.mark.parametrize(
    "problem", [ConnectionError("gone"), ProtocolError("error 6"), TimeoutError("no answer")]
)


@PROBLEMS
def test_librdkafka_is_asked_for_a_while_where_leaders_do_not_answer_directly(
    watching: Watching, clock: SimpleNamespace, direct: Direct, problem: Exception
) -> None:
    logs, _ = watching({0: 5})
    assert logs.look([TP]) == {TP: 77}
    assert logs.leader_epochs == {TP: 4}
    direct.problem = problem
    before = len(direct.asked)
    assert logs.look([TP]) == {TP: 5}
    assert logs.leader_epochs == {}
    assert logs.look([TP]) == {TP: 5}
    assert len(direct.asked) == before + 1, "it rests"
    clock.s += 31
    assert logs.look([TP]) == {TP: 5}
    assert len(direct.asked) == before + 2
    clock.s += 31
    assert logs.look([TP]) == {TP: 5}
    assert len(direct.asked) == before + 2, "longer the second time"
    direct.problem = None
    clock.s += 31
    assert logs.look([TP]) == {TP: 77}


def test_the_version_rises_with_whatever_a_look_finds_and_only_then(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    logs, cluster = watching({0: 77})
    versions = [logs.version]

    def rises(partitions: list[TopicPartition]) -> bool:
        logs.look(partitions)
        versions.append(logs.version)
        assert versions[-2] <= versions[-1] <= versions[-2] + 1
        return versions[-1] > versions[-2]

    assert not rises([TP]), "the same ends in another mapping"
    assert rises([TP, CLICKS]), "other partitions"
    assert not rises([TP, CLICKS])
    assert rises([TP])
    direct.leader_epochs = {TP: LeaderEpoch(5)}
    assert rises([TP]), "another leader with the same end"
    assert not rises([TP])
    direct.problem = ConnectionError("gone")
    assert rises([TP]), "librdkafka tells the same end, and no leader epoch"
    assert not rises([TP])
    cluster.ends_now = {TP: Offset(78)}
    assert rises([TP]), "another end"
    assert not rises([TP])
    direct.problem, direct.leader_epochs = None, {}
    clock.s += 31
    assert rises([TP])


def test_the_version_tells_who_has_answered_also_where_nobody_knows_leader_epochs(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    """What was not sure by the word of librdkafka may be sure by that of a leader."""
    logs, _ = watching({0: 77})
    direct.leader_epochs = {}
    logs.look([TP])
    before = logs.version
    direct.problem = ConnectionError("gone")
    logs.look([TP])
    assert logs.version > before


def test_a_login_that_is_broken_off_is_not_left_to_librdkafka(watching: Watching, direct: Direct) -> None:
    """It would go through with it."""
    logs, _ = watching({0: 5})
    direct.problem = AuthenticationError("too few iterations")
    with pytest.raises(AuthenticationError, match="too few"):
        logs.look([TP])


def test_leaders_say_themselves_which_topics_they_have(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    logs, cluster = watching({0: 5})
    assert logs.inspect(at(3), news=True) == NOTHING
    direct.ids = {"orders": "second"}
    assert logs.inspect(at(3), news=True) == RECREATED
    assert cluster.asked_ids == []


@PROBLEMS
def test_librdkafka_is_asked_for_ids_that_leaders_do_not_tell(
    watching: Watching, clock: SimpleNamespace, direct: Direct, problem: Exception
) -> None:
    logs, cluster = watching({0: 5})
    direct.problem = problem
    cluster.id = "second"
    assert logs.inspect(at(3), news=True) == RECREATED
    assert len(cluster.asked_ids) == 1


def test_a_log_under_a_later_leader_is_compared_with_it(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    logs, _ = watching({0: 5})
    direct.leader_epochs = {TP: LeaderEpoch(5)}
    logs.look([TP])
    direct.epoch_ends_now = {TP: Offset(2)}
    assert logs.inspect(at(3), news=True) == Changes(truncated={TP})
    direct.epoch_ends_now = {TP: Offset(3)}
    assert logs.inspect(at(3), news=True) == NOTHING


def test_after_a_broker_has_failed_leaders_confirm_positions_before_anything_behind_them_is_planned(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    """Regression: a log that came back truncated and had grown again was read on from the old position.

    librdkafka tells no leader epochs.
    """
    logs, _ = watching({0: 5})
    direct.problem = ConnectionError("gone")
    assert logs.look([TP]) == {TP: 5}
    assert TP in logs.inspect(at(3), news=True).unsure, "nobody can tell yet"
    direct.problem = None
    direct.epoch_ends_now = {TP: Offset(2)}
    assert logs.inspect(at(3), news=True).truncated == {TP}
    direct.epoch_ends_now = {TP: Offset(3)}
    assert TP in logs.inspect(at(3), news=True).unsure, "the leader is to tell the end as well"
    assert logs.look([TP]) == {TP: 77}, "it is asked directly again"
    assert logs.inspect(at(3), news=True) == NOTHING


def test_where_leaders_do_not_answer_for_long_librdkafka_is_believed(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    logs, _ = watching({0: 5})
    direct.problem = ConnectionError("gone")
    logs.look([TP])
    assert TP in logs.inspect(at(3), news=True).unsure
    clock.s += 31
    logs.look([TP])
    assert logs.inspect(at(3), news=True) == NOTHING


def test_a_leader_that_does_not_say_where_an_epoch_ends_is_asked_again(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    logs, _ = watching({0: 5})
    direct.leader_epochs = {TP: LeaderEpoch(5)}
    logs.look([TP])
    direct.problem = TimeoutError("no answer")
    assert TP in logs.inspect(at(3), news=True).unsure
    assert logs.strange


def test_a_topic_that_brokers_do_not_know_does_not_hold_up_the_others(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    logs, _ = watching({0: 5})
    direct.unknown = {"clicks"}
    direct.asked.clear()
    assert logs.look([TP, CLICKS]) == {TP: 77}
    assert direct.asked == [[TP, CLICKS], [TP]]
    assert logs.look([TP, CLICKS]) == {TP: 77}
    assert direct.asked[2:] == [[TP]], "it is left out for a while"
    clock.s += 0.6
    direct.unknown = set()
    assert logs.look([TP, CLICKS]) == {TP: 77, CLICKS: 77}
    direct.unknown = {"orders", "clicks"}
    assert logs.look([TP, CLICKS]) == {}


def test_a_topic_that_was_created_again_with_fewer_partitions_is_not_taken_for_deleted(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    """Brokers do not know its last partitions any more, so it is not looked at, but it is asked about."""
    logs, _ = watching({0: 5})
    plannable = {**at(3), **at(3, 3, topic="clicks")}
    direct.ids = {"orders": "first", "clicks": "second"}
    direct.unknown = {"clicks"}
    logs.look(plannable)
    for _ in range(2):
        found = logs.inspect(plannable, news=False)
        assert (found.recreated, found.deleted) == ({"clicks"}, set())
        clock.s += 10


def test_without_a_leader_that_is_connected_librdkafka_is_asked_whether_a_topic_was_created_again(
    watching: Watching, clock: SimpleNamespace, direct: Direct
) -> None:
    """With fewer partitions, and no other topic is read."""
    logs, cluster = watching({0: 5})
    direct.unknown = {"orders"}
    cluster.id = "second"
    assert logs.look([TP]) == {}
    direct.problem = ProtocolError("no leader is connected")
    assert logs.inspect(at(3), news=False) == RECREATED
    assert len(cluster.asked_ids) == 1
