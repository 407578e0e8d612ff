"""Check whether the logs are still the ones that were read: the requests, their times, and the conclusions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyspark_kafka_group.cluster.log_ends import LogEnds
from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query import log_watch
from pyspark_kafka_group.query.log_watch import MANY_PARTITIONS, Changes, LogInspection, TopicIds
from pyspark_kafka_group.query.planning import Plannable

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
OTHER = TopicPartition("clicks", 0)

NOTHING = Changes()


def position(offset: int = 5, leader_epoch: int | None = 4, topic_id: str | None = "id") -> Position:
    epoch = None if leader_epoch is None else LeaderEpoch(leader_epoch)
    return Position(OwnershipEpoch(1), Offset(offset), epoch, topic_id)


class Cluster:
    """Answers the inspection.  At first all positions are at the ends of their logs, so nothing is new."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.plannable: dict[TopicPartition, Position] = dict.fromkeys(partitions, position())
        self.ends = {tp: Offset(5) for tp in partitions}
        self.leader_epochs = {tp: LeaderEpoch(4) for tp in partitions}
        self.ids: dict[str, str | None] | None = {tp.topic: "id" for tp in partitions}
        self.epoch_ends_now: dict[TopicPartition, Offset] = {}
        self.asked_ids: list[set[str]] = []
        self.asked_epochs: list[dict[TopicPartition, LeaderEpoch]] = []
        self.epoch_errors: dict[TopicPartition, str] = {}
        self.inspection = LogInspection(cast(LogEnds, self))
        self.last = Changes()

    def topic_ids(self, topics: Collection[str]) -> TopicIds | None:
        self.asked_ids.append(set(topics))
        return self.ids

    def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> Mapping[TopicPartition, Offset]:
        self.asked_epochs.append(dict(epochs))
        return {tp: end for tp, end in self.epoch_ends_now.items() if tp in epochs}

    def inspect(self, *, news: bool = False, plannable: Plannable | None = None) -> Changes:
        self.last = self.inspection.inspect(plannable or self.plannable, self.ends, self.leader_epochs, news=news)
        return self.last

    @property
    def needs_recheck(self) -> bool:
        return self.last.needs_recheck


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Fake the time that the inspection sees.  It stands still."""
    now = SimpleNamespace(s=1000.0)
    for module in (log_watch, lasting):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(A, B)


# -- when the inspection requests ids


def test_without_news_nothing_is_asked(cluster: Cluster) -> None:
    assert cluster.inspect() == NOTHING
    assert not cluster.needs_recheck
    assert cluster.asked_ids == []
    assert cluster.asked_epochs == []


def test_before_each_batch_the_ids_are_compared(cluster: Cluster) -> None:
    """This holds twice within one second, because the query must never plan a batch of another log."""
    assert cluster.inspect(news=True) == NOTHING
    assert cluster.inspect(news=True) == NOTHING
    assert cluster.asked_ids == [{"orders"}] * 2
    assert not cluster.needs_recheck


@pytest.fixture
def many() -> Cluster:
    return Cluster(*(TopicPartition("orders", n) for n in range(MANY_PARTITIONS + 1)))


def test_with_more_than_2000_partitions_ids_are_not_asked_for_with_each_batch(
    many: Cluster, clock: SimpleNamespace
) -> None:
    many.ids = None  # the answer is on its way
    assert many.inspect(news=True) == NOTHING
    assert many.inspect(news=True) == NOTHING
    assert many.asked_ids == [{"orders"}]
    clock.s += 2
    many.ids = {"orders": "another"}
    assert many.inspect(news=True).recreated == {"orders"}
    assert many.asked_ids == [{"orders"}] * 2


def test_with_exactly_2000_partitions_they_are() -> None:
    cluster = Cluster(*(TopicPartition("orders", n) for n in range(MANY_PARTITIONS)))
    cluster.inspect(news=True)
    assert cluster.asked_ids == [{"orders"}]


def test_with_more_than_2000_partitions_something_strange_is_asked_about_at_once(many: Cluster) -> None:
    many.ends[B] = Offset(4)
    many.ids = {"orders": "another"}
    assert many.inspect().recreated == {"orders"}
    assert many.asked_ids == [{"orders"}]


# -- topics that were created again


def test_a_topic_with_another_id_was_created_again(cluster: Cluster) -> None:
    cluster.ids = {"orders": "another"}
    assert cluster.inspect(news=True) == Changes(recreated={"orders"})


def test_ids_that_are_not_known_are_no_change(cluster: Cluster) -> None:
    cluster.ids = {"orders": None}
    assert cluster.inspect(news=True) == NOTHING
    cluster.ids = {"orders": "id"}
    assert cluster.inspect(news=True, plannable={A: position(topic_id=None)}) == NOTHING


def test_a_log_that_ends_below_the_position_is_asked_about_at_once(cluster: Cluster) -> None:
    cluster.ends[A] = Offset(4)
    cluster.ids = {"orders": "another"}
    assert cluster.inspect() == Changes(recreated={"orders"}), "and so it was not truncated"
    assert cluster.asked_ids == [{"orders"}]
    assert cluster.needs_recheck


# -- topics that were deleted


def missing(cluster: Cluster) -> None:
    """Let the brokers forget the topic."""
    cluster.ids = {}
    cluster.ends.clear()
    cluster.leader_epochs.clear()


def test_a_topic_is_deleted_if_no_broker_has_known_it_for_3_s(cluster: Cluster, clock: SimpleNamespace) -> None:
    missing(cluster)
    assert cluster.inspect() == Changes(unsure={A, B})
    assert cluster.needs_recheck
    clock.s += 2.9
    assert cluster.inspect() == Changes(unsure={A, B})
    clock.s += 1.1
    assert cluster.inspect().deleted == {"orders"}


def test_a_topic_that_is_back_within_that_time_is_not_deleted(cluster: Cluster, clock: SimpleNamespace) -> None:
    missing(cluster)
    cluster.inspect()
    clock.s += 2
    cluster.ids = {"orders": "id"}
    assert cluster.inspect() == NOTHING
    clock.s += 2
    cluster.ids = {}
    assert cluster.inspect() == Changes(unsure={A, B}), "the time begins anew"
    clock.s += 2
    assert cluster.inspect().deleted == set()


def test_a_topic_that_is_back_with_another_id_was_created_again_and_not_deleted(
    cluster: Cluster, clock: SimpleNamespace
) -> None:
    missing(cluster)
    cluster.inspect()
    clock.s += 5
    cluster.ids = {"orders": "another"}
    assert cluster.inspect() == Changes(recreated={"orders"})


def test_one_topic_that_is_deleted_does_not_hold_up_the_others(clock: SimpleNamespace) -> None:
    cluster = Cluster(A, OTHER)
    del cluster.ends[A]
    cluster.ids = {"clicks": "id"}
    assert cluster.inspect(news=True) == Changes(unsure={A})
    clock.s += 3
    found = cluster.inspect(news=True)
    assert (found.deleted, found.unsure) == ({"orders"}, {A})


def test_a_partition_without_an_end_is_asked_about_once_a_second(cluster: Cluster, clock: SimpleNamespace) -> None:
    """Its broker may be away for a moment."""
    del cluster.ends[B]
    for _ in range(3):
        assert cluster.inspect() == NOTHING
        assert cluster.needs_recheck
    assert cluster.asked_ids == [{"orders"}]
    clock.s += 1
    cluster.inspect()
    assert len(cluster.asked_ids) == 2


# -- truncated logs


def test_a_log_that_ends_below_the_position_for_10_s_and_is_still_the_same_was_truncated(
    cluster: Cluster, clock: SimpleNamespace
) -> None:
    cluster.ends[A] = Offset(4)
    assert cluster.inspect() == Changes(unsure={A})
    assert cluster.last.reasons == {A: "its log ends at 4, below its position 5"}
    assert cluster.needs_recheck
    clock.s += 9.9
    assert cluster.inspect() == Changes(unsure={A})
    clock.s += 0.1
    assert cluster.inspect() == Changes(truncated={A})


def test_an_end_that_goes_back_for_a_moment_under_the_same_leader_epoch_is_no_loss(
    cluster: Cluster, clock: SimpleNamespace
) -> None:
    """Regression: the query ended, because brokers that hand over a partition report an older end for a moment."""
    for _ in range(3):
        cluster.ends[A] = Offset(4)
        assert cluster.inspect() == Changes(unsure={A})
        clock.s += 6
        cluster.ends[A] = Offset(8)
        assert cluster.inspect(news=True) == NOTHING
        assert not cluster.needs_recheck


def test_a_leader_epoch_that_has_gone_back_for_a_minute_is_that_of_a_restored_cluster(
    cluster: Cluster, clock: SimpleNamespace
) -> None:
    """Regression: the query held back such a partition for ever, without a message."""
    cluster.leader_epochs[A] = LeaderEpoch(3)
    cluster.ends[A] = Offset(9)
    assert cluster.inspect(news=True) == Changes(unsure={A})
    assert cluster.last.reasons == {A: "its leader has leader epoch 3, older than the known 4"}
    clock.s += 59
    assert cluster.inspect(news=True) == Changes(unsure={A})
    clock.s += 1
    assert cluster.inspect(news=True) == Changes(truncated={A})


def test_a_log_under_a_later_leader_is_compared_with_the_end_of_the_leader_epoch_of_the_position(
    cluster: Cluster,
) -> None:
    cluster.ends |= {A: Offset(9), B: Offset(9)}
    cluster.leader_epochs |= {A: LeaderEpoch(5), B: LeaderEpoch(6)}
    cluster.epoch_ends_now = {A: Offset(3), B: Offset(5)}
    assert cluster.inspect(news=True) == Changes(truncated={A})
    assert cluster.asked_epochs == [{A: 4, B: 4}]
    assert not cluster.needs_recheck


def test_without_an_answer_to_that_it_is_not_known(cluster: Cluster) -> None:
    cluster.ends |= {A: Offset(9), B: Offset(9)}
    cluster.leader_epochs[A] = LeaderEpoch(5)
    assert cluster.inspect(news=True) == Changes(unsure={A})
    assert cluster.needs_recheck, "so that it is asked again"


def test_a_log_under_a_later_leader_that_belongs_to_another_topic_was_not_truncated(cluster: Cluster) -> None:
    cluster.leader_epochs[A] = LeaderEpoch(5)
    cluster.epoch_ends_now = {A: Offset(0)}
    cluster.ids = {"orders": "another"}
    assert cluster.inspect(news=True) == Changes(recreated={"orders"})


def test_an_end_that_a_former_leader_has_told_is_not_believed(cluster: Cluster) -> None:
    """A former leader does not know that it was replaced.

    Its log may have been truncated, so its answer may be wrong.
    """
    cluster.ends[A] = Offset(4)
    cluster.leader_epochs[A] = LeaderEpoch(3)
    assert cluster.inspect(news=True) == Changes(unsure={A})
    assert cluster.needs_recheck
    assert cluster.asked_epochs == []


def test_a_former_leader_may_be_the_leader_of_another_log_that_counts_anew(cluster: Cluster) -> None:
    cluster.leader_epochs[A] = LeaderEpoch(0)
    cluster.ids = {"orders": "another"}
    assert cluster.inspect().recreated == {"orders"}
    assert cluster.asked_ids == [{"orders"}]


def test_where_leader_epochs_are_not_known_only_the_ends_tell(cluster: Cluster, clock: SimpleNamespace) -> None:
    cluster.leader_epochs.clear()
    assert cluster.inspect(news=True) == NOTHING
    cluster.ends[A] = Offset(4)
    cluster.inspect(news=True)
    clock.s += 10
    assert cluster.inspect(news=True) == Changes(truncated={A})
    assert cluster.asked_epochs == []


# -- no broker answers


@pytest.mark.parametrize("strange", [False, True])
def test_if_nobody_tells_the_ids_only_what_looks_strange_has_to_wait(cluster: Cluster, strange: bool) -> None:
    cluster.ids = None
    if strange:
        cluster.ends[A] = Offset(4)
    found = cluster.inspect(news=True)
    assert found == (Changes(unsure={A, B}) if strange else NOTHING)


def test_if_nobody_answers_at_all_nothing_is_deleted(cluster: Cluster, clock: SimpleNamespace) -> None:
    missing(cluster)
    cluster.ids = None
    for _ in range(10):
        found: Any = cluster.inspect()
        assert (found.deleted, found.recreated, found.truncated) == (set(), set(), set())
        clock.s += 10
    assert cluster.needs_recheck


# -- reports that must not repeat


def test_an_end_below_a_position_that_was_confirmed_is_told_once(cluster: Cluster, clock: SimpleNamespace) -> None:
    """Under read_committed, the end is before an open transaction.  The group's offset may be after it."""
    cluster.ends[A] = Offset(4)
    cluster.inspect()
    clock.s += 10
    assert cluster.inspect() == Changes(truncated={A})
    assert cluster.inspect() == NOTHING
    assert not cluster.needs_recheck
    assert cluster.inspect(plannable={A: position(6)}) == Changes(unsure={A})
    clock.s += 10
    assert cluster.inspect(plannable={A: position(6)}) == Changes(truncated={A})


def test_a_partition_that_a_new_leader_has_up_to_its_position_is_not_compared_for_each_batch(cluster: Cluster) -> None:
    cluster.leader_epochs[A] = LeaderEpoch(5)
    cluster.epoch_ends_now[A] = Offset(9)
    assert cluster.inspect(news=True) == NOTHING
    assert cluster.inspect(news=True) == NOTHING
    assert cluster.asked_epochs == [{A: LeaderEpoch(4)}]
    cluster.leader_epochs[A] = LeaderEpoch(6)
    cluster.epoch_ends_now[A] = Offset(3)
    assert cluster.inspect(news=True) == Changes(truncated={A})


def test_a_topic_that_was_unknown_for_a_moment_is_not_deleted_an_hour_later(
    cluster: Cluster, clock: SimpleNamespace
) -> None:
    ends = dict(cluster.ends)
    for _ in range(2):
        cluster.ids, cluster.ends = {}, {}
        assert cluster.inspect().deleted == set()
        clock.s += 1
        cluster.ids, cluster.ends = {"orders": "id"}, dict(ends)
        assert cluster.inspect() == NOTHING
        clock.s += 3600


def test_without_topic_ids_a_leader_that_counts_anew_for_long_is_that_of_another_log(
    cluster: Cluster, clock: SimpleNamespace
) -> None:
    cluster.ids = {"orders": None}
    cluster.leader_epochs = dict.fromkeys((A, B), LeaderEpoch(0))
    plannable = dict.fromkeys((A, B), position(topic_id=None))
    assert cluster.inspect(plannable=plannable) == Changes(unsure={A, B}), "or it does not know of the new one yet"
    clock.s += 3
    assert cluster.inspect(plannable=plannable) == Changes(truncated={A, B})


def test_partitions_that_have_left_are_forgotten() -> None:
    """Regression: what was known of them stayed for ever."""
    cluster = Cluster(A, B)
    cluster.leader_epochs = dict.fromkeys((A, B), LeaderEpoch(5))
    cluster.epoch_ends_now = {A: Offset(5), B: Offset(5)}
    cluster.ends = {A: Offset(6), B: Offset(6)}
    cluster.inspect(news=True)
    assert cluster.inspection._validated.keys() == {A, B}
    cluster.leader_epochs[A] = LeaderEpoch(6)
    cluster.inspect(news=True, plannable={A: position()})
    assert cluster.inspection._validated.keys() == {A}
