"""How often the watch polls log ends, and whom it asks whether they belong to the same logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace

import pytest

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.coordinator.handover.state import Partition, Position
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query import log_watch
from pyspark_kafka_group.query.log_watch import Changes, LogWatch
from pyspark_kafka_group.query.planning import Plannable
from pyspark_kafka_group.wire import deadline

SETTINGS = GroupSettings(
    properties={},
    group_id="etl",
    topics=("orders",),
    commit_mode=CommitMode.TRANSACTION,
    drain_timeout_s=20.0,
    read_committed=True,
    start=StartPolicy(group_id="etl", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True),
)


# ------------------------------------------------------------------------------------------- watching

TP, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)


class Leaders:
    """Answers for the leaders."""

    def __init__(self, ends: Sequence[int]) -> None:
        self.ends_now = {TopicPartition("orders", n): Offset(end) for n, end in enumerate(ends)}
        self.leader_epochs = dict.fromkeys([*self.ends_now, CLICKS], LeaderEpoch(4))
        self.leaders: dict[TopicPartition, object] = {}
        self.ids: dict[str, str | None] | None = {"orders": "first", "clicks": "first"}
        self.asked_ids = 0
        self.problem: Exception | None = None
        self.epoch_ends_now: dict[TopicPartition, Offset] = {}
        self.epoch_errors: dict[TopicPartition, str] = {}
        self.reasons: dict[TopicPartition, str] = {}
        self.starts_now: dict[TopicPartition, Offset] = {}
        self.asked_starts: list[list[TopicPartition]] = []
        self.searched = 0
        self.closed = 0

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        if self.problem is not None:
            raise self.problem
        return {tp: end for tp, end in self.ends_now.items() if tp in partitions}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str | None] | None:
        self.asked_ids += 1
        return None if self.ids is None else {name: found for name, found in self.ids.items() if name in topics}

    def epoch_ends(self, _: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, Offset]:
        return self.epoch_ends_now

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        self.asked_starts.append([*partitions])
        return {tp: self.starts_now[tp] for tp in partitions if tp in self.starts_now}

    def refind_leaders(self) -> None:
        self.searched += 1

    def close(self) -> None:
        self.closed += 1


Watching = Callable[..., tuple[LogWatch, Leaders]]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    def make(*ends: int) -> tuple[LogWatch, Leaders]:
        leaders = Leaders(ends)
        monkeypatch.setattr(log_watch, "LogEnds", lambda *_, **__: leaders)
        made = LogWatch(SETTINGS)
        made.list_ends(leaders.ends_now.keys())
        return made, leaders

    return make


def at(*positions: int, topic: str = "orders", topic_id: str | None = "first") -> Plannable:
    return {
        TopicPartition(topic, n): Position(OwnershipEpoch(1), Offset(position), LeaderEpoch(4), topic_id)
        for n, position in enumerate(positions)
    }


RECREATED = Changes(recreated={"orders"})
NOTHING = Changes()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Fake the time that the watch sees.  It stands still."""
    now = SimpleNamespace(s=1000.0)
    fake = SimpleNamespace(monotonic=lambda: now.s, process_time=lambda: 0.0, thread_time=lambda: 0.0)
    monkeypatch.setattr(log_watch, "time", fake)
    monkeypatch.setattr(lasting, "time", fake)
    monkeypatch.setattr(deadline, "time", fake)
    return now


def test_the_id_of_a_topic_that_the_position_does_not_know_is_no_change(watching: Watching) -> None:
    logs, leaders = watching(5)
    assert logs.check(at(3, topic_id=None), news=True) == NOTHING
    assert leaders.asked_ids == 1


def test_another_id_is_told_until_the_position_belongs_to_the_new_log(
    watching: Watching, clock: SimpleNamespace
) -> None:
    logs, leaders = watching(5)
    assert logs.check(at(3), news=True) == NOTHING
    leaders.ids = {"orders": "second"}
    assert logs.check(at(3), news=True) == RECREATED
    assert logs.check(at(3), news=True) == RECREATED
    assert logs.check(at(0, topic_id="second"), news=True) == NOTHING


def test_ids_are_asked_for_before_each_batch_and_not_otherwise(watching: Watching, clock: SimpleNamespace) -> None:
    logs, leaders = watching(5)
    logs.check(at(5), news=False)
    before = leaders.asked_ids
    for _ in range(5):
        logs.check(at(3), news=True)
    assert (before, leaders.asked_ids) == (0, 5)


def test_a_log_that_ends_below_the_position_is_asked_about_at_once(watching: Watching, clock: SimpleNamespace) -> None:
    logs, leaders = watching(5)
    assert not logs.check(at(3), news=True).needs_recheck
    leaders.ids = {"orders": "second"}
    changes = logs.check(at(6), news=False)
    assert changes == RECREATED
    assert changes.needs_recheck


def test_a_log_of_the_same_id_that_ends_below_the_position_was_truncated(
    watching: Watching, clock: SimpleNamespace
) -> None:
    logs, _ = watching(5, 5)
    assert logs.check(at(5, 6), news=False) == Changes(unsure={TopicPartition("orders", 1)})
    clock.s += 10
    assert logs.check(at(5, 6), news=False) == Changes(truncated={TopicPartition("orders", 1)})


def test_with_very_many_partitions_ids_are_asked_for_less_often_unless_a_log_is_shorter(
    watching: Watching, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch, "MANY_PARTITIONS", 1)
    logs, leaders = watching(5, 5)
    for _ in range(3):
        assert logs.check(at(3, 3), news=True) == NOTHING
    assert leaders.asked_ids == 1
    clock.s += 10
    leaders.ids = {"orders": "second"}
    assert logs.check(at(3, 3), news=True) == RECREATED
    leaders.ids = {"orders": "third"}
    assert logs.check(at(3, 6, topic_id="second"), news=False) == RECREATED


def test_ids_that_do_not_come_are_no_change(watching: Watching, clock: SimpleNamespace) -> None:
    logs, leaders = watching(5)
    leaders.ids = None
    assert logs.check(at(3), news=True) == NOTHING
    assert logs.check(at(6), news=True) == Changes(unsure=set(at(6))), "where it looks strange it has to wait"


def test_without_an_answer_there_are_no_ends_and_one_warning(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    logs, leaders = watching(5)
    leaders.problem = TryAgainError("brokers are down")
    with caplog.at_level(logging.WARNING, logger=log_watch.__name__):
        assert logs.list_ends([TP]) == {}
        assert logs.list_ends([TP]) == {}
    assert [record.getMessage() for record in caplog.records] == ["group etl: cannot list log ends: brokers are down"]
    assert logs.leader_epochs == {}
    assert logs.check(at(3), news=False).reasons == {TP: "brokers are down"}


def test_closing_closes_the_connections(watching: Watching) -> None:
    logs, leaders = watching(5)
    logs.close()
    assert leaders.closed


def test_a_partition_without_a_leader_is_named_and_its_last_end_stays(
    watching: Watching, clock: SimpleNamespace
) -> None:
    """Regression: the partition disappeared from the lag, so the lag sank while the query read nothing."""
    logs, leaders = watching(77)
    leaders.ends_now[CLICKS] = Offset(77)
    logs.list_ends([TP, CLICKS])
    positions = {**at(3), **at(5, topic="clicks")}
    assert logs.check(positions, news=True).reasons == {}
    leaders.ends_now, leaders.reasons = {TP: Offset(80)}, {CLICKS: "it has no leader"}
    assert logs.list_ends([TP, CLICKS]) == {TP: 80}
    assert logs.known_ends == {TP: 80, CLICKS: 77}
    assert logs.check(positions, news=True).reasons == {CLICKS: "it has no leader"}
    logs.list_ends([TP])
    assert logs.known_ends == {TP: 80}, "it has left"


def committed(*offsets: int | None) -> dict[TopicPartition, Partition]:
    return {
        TopicPartition("orders", n): Partition(
            Phase.ACTIVE, OwnershipEpoch(1), committed=None if offset is None else Offset(offset)
        )
        for n, offset in enumerate(offsets)
    }


def test_log_starts_are_listed_once_a_minute_and_only_of_partitions_with_a_lag(
    watching: Watching, clock: SimpleNamespace
) -> None:
    """However many batches there are, they cost no further request."""
    logs, leaders = watching(50, 60, 70)
    leaders.starts_now = {TP: Offset(40), TopicPartition("orders", 1): Offset(55)}
    logs.list_starts({})
    for _ in range(5):
        logs.list_starts(committed(10, 60, None))
        clock.s += 11
    assert (leaders.asked_starts, logs.known_starts) == ([[TP]], {TP: 40})
    clock.s += 11
    logs.list_starts(committed(50, 60, 70))
    assert (leaders.asked_starts, logs.known_starts) == ([[TP]], {}), "no partition has a lag"


def test_the_log_starts_of_another_log_are_forgotten(watching: Watching, clock: SimpleNamespace) -> None:
    logs, leaders = watching(50)
    leaders.starts_now = {TP: Offset(40)}
    logs.list_starts(committed(10))
    leaders.ids = {"orders": "second"}
    assert logs.check(at(10), news=True) == RECREATED
    assert logs.known_starts == {}
    leaders.starts_now = {TP: Offset(0)}
    logs.list_starts(committed(10))
    assert logs.known_starts == {TP: 0}


def test_a_leader_that_does_not_tell_where_an_epoch_ends_is_named_with_its_error(
    watching: Watching, clock: SimpleNamespace
) -> None:
    """Regression: the query dropped the error, and held back the partition without a message."""
    logs, leaders = watching(77)
    leaders.leader_epochs = {TP: LeaderEpoch(5)}
    leaders.epoch_errors = {TP: "FENCED_LEADER_EPOCH"}
    logs.list_ends([TP])
    changes = logs.check(at(3), news=True)
    assert changes.unsure == {TP}
    assert changes.needs_recheck
    assert changes.reasons == {TP: "its log may have been truncated: FENCED_LEADER_EPOCH"}
    assert leaders.searched, "leaders are looked for again"


def test_the_version_rises_with_whatever_a_look_finds_and_only_then(watching: Watching) -> None:
    logs, leaders = watching(77)
    versions = [logs.version]

    def rises(partitions: list[TopicPartition]) -> bool:
        logs.list_ends(partitions)
        versions.append(logs.version)
        assert versions[-2] <= versions[-1] <= versions[-2] + 1
        return versions[-1] > versions[-2]

    assert not rises([TP]), "the same ends in another mapping"
    assert rises([TP, CLICKS]), "other partitions"
    assert not rises([TP, CLICKS])
    assert rises([TP])
    leaders.leader_epochs = {TP: LeaderEpoch(5)}
    assert rises([TP]), "another leader with the same end"
    assert not rises([TP])
    leaders.ends_now = {TP: Offset(78)}
    assert rises([TP]), "another end"
    leaders.problem = TryAgainError("gone")
    assert rises([TP]), "no end"
    assert not rises([TP])


def test_what_ends_the_query_passes_through(watching: Watching) -> None:
    logs, leaders = watching(5)
    leaders.problem = AuthenticationError("too few iterations")
    with pytest.raises(AuthenticationError, match="too few"):
        logs.list_ends([TP])


def test_a_log_under_a_later_leader_is_compared_with_it(watching: Watching, clock: SimpleNamespace) -> None:
    logs, leaders = watching(77)
    leaders.leader_epochs = {TP: LeaderEpoch(5)}
    logs.list_ends([TP])
    leaders.epoch_ends_now = {TP: Offset(2)}
    assert logs.check(at(3), news=True) == Changes(truncated={TP})
    leaders.epoch_ends_now = {TP: Offset(3)}
    assert logs.check(at(3), news=True) == NOTHING


def test_a_topic_that_was_created_again_with_fewer_partitions_is_not_taken_for_deleted(
    watching: Watching, clock: SimpleNamespace
) -> None:
    """The brokers do not have its last partitions, but its id shows that it exists."""
    logs, leaders = watching(5)
    plannable = {**at(3), **at(3, 3, topic="clicks")}
    leaders.ids = {"orders": "first", "clicks": "second"}
    logs.list_ends(plannable)
    for _ in range(2):
        found = logs.check(plannable, news=False)
        assert (found.recreated, found.deleted) == ({"clicks"}, set())
        clock.s += 10


def test_a_poll_without_an_answer_does_not_make_the_log_ends_newer(watching: Watching, clock: SimpleNamespace) -> None:
    """Regression: while no broker answered, the age of the log ends was 0 beside a lag of an hour ago."""
    watch, leaders = watching(5)
    at_first = watch.listed_at
    assert at_first is not None
    clock.s += 60
    leaders.problem = TryAgainError("no broker answers")
    assert watch.list_ends(leaders.ends_now.keys()) == {}
    assert watch.listed_at == at_first
