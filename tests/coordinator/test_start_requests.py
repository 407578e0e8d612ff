"""The query asks where partitions start, until the cluster can answer or the partitions have left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    Forget,
    LogChange,
    LogChangeFound,
    PartitionInfoReceived,
    Restored,
    Revoke,
)
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.coordinator.start_requests import StartRequests
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import AuthenticationError, GroupError
from pyspark_kafka_group.offsets.start_inputs import PartitionInfo, QueryInfo, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.start_position import decide_start
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition
from tests.coordinator.fakes import FakeLoop, FakeOffsets, InlineWorker
from tests.coordinator.machine import LEADER, NEW_LOG, POLICY, A, B, Machine, entry, fed, info

OTHER = TopicPartition("u", 0)


class Asking:
    """Asks where the partitions of a machine start, one round at a time, by a clock that moves only in pauses."""

    def __init__(
        self,
        machine: Machine,
        *,
        pattern: str | None = None,
        first_topics: set[str] | None = None,
        added: set[TopicPartition] | None = None,
        start: StartPolicy = POLICY,
    ) -> None:
        self.machine = machine
        self.offsets = FakeOffsets()
        self.worker = InlineWorker(waits=True)
        loop = FakeLoop(lambda: machine.state)
        self.answers, self.failed = loop.fed, loop.failed
        self.now = 1000.0
        self.info = StartRequests(
            GroupSettings(
                properties={},
                group_id="g",
                topics=("t",),
                pattern=pattern,
                commit_mode=CommitMode.TRANSACTION,
                drain_timeout_s=1.0,
                read_committed=True,
                start=start,
            ),
            client_id="c",
            worker=self.worker,
            offsets=cast(GroupOffsets, self.offsets),
            loop=loop,
            first_topics=frozenset(first_topics or ()),
            added=frozenset(added or ()),
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        self.info.fetch({tp: p.epoch for tp, p in machine.state.owned.items()})

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run_for(self, seconds: float) -> None:
        until = self.now + seconds
        while self.worker.waiting and self.now < until:
            self.worker.run()

    def told(self) -> dict[TopicPartition, tuple[OwnershipEpoch, PartitionInfo]]:
        [answer] = self.answers
        assert isinstance(answer, PartitionInfoReceived)
        return dict(answer.info)


def assigned(*tps: TopicPartition) -> Machine:
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {A: entry(0, 5, leader=LeaderEpoch(2))}), "q"), Assign(tps))
    return machine


def test_info_are_told_with_the_epoch_under_which_they_were_asked_for() -> None:
    asking = Asking(assigned(A, B))
    asking.offsets.found = {A: info(5), B: info(7)}
    asking.worker.run()
    assert asking.told() == {A: (1, info(5)), B: (1, info(7))}
    assert asking.worker.waiting == []


def test_leader_epochs_that_the_query_knows_are_asked_about() -> None:
    asking = Asking(assigned(A, B))
    asking.worker.run()
    assert asking.offsets.wanted == [{A: {LeaderEpoch(2)}, B: set()}]
    assert LEADER not in asking.offsets.wanted[0][A]


def test_each_answer_brings_a_lineage_that_was_never_used() -> None:
    lineages = set()
    for _ in range(3):
        asking = Asking(assigned(A))
        asking.offsets.found = {A: info(5)}
        asking.worker.run()
        [answer] = asking.answers
        assert isinstance(answer, PartitionInfoReceived)
        lineages.add(answer.new_lineage)
    assert len(lineages) == 3


def test_what_the_cluster_cannot_tell_yet_is_asked_again_and_only_that() -> None:
    asking = Asking(assigned(A, B))
    asking.offsets.found = {A: info(5)}
    asking.worker.run()
    assert asking.told().keys() == {A}
    asking.worker.run()
    assert [set(wanted) for wanted in asking.offsets.wanted] == [{A, B}, {B}]


def test_partitions_that_get_no_answer_share_one_repeated_question() -> None:
    """Regression: each rebalance added a question of its own, and healthy partitions waited behind all of them."""
    asking = Asking(assigned(A, B))
    asking.info.fetch({B: asking.machine.state.owned[B].epoch})
    asking.worker.run()
    assert len(asking.worker.waiting) == 1
    asking.worker.run()
    assert [set(wanted) for wanted in asking.offsets.wanted] == [{A, B}, {B}, {A, B}]


def test_cluster_that_does_not_answer_is_asked_again_after_a_pause() -> None:
    asking = Asking(assigned(A))
    asking.offsets.problem = TryAgainError("nobody answers")
    asking.run_for(1.0)
    assert 5 <= len(asking.offsets.asked) <= 20
    asking.offsets.problem = None
    asking.offsets.found = {A: info(5)}
    asking.worker.run()
    assert asking.told().keys() == {A}
    assert asking.failed == []


def test_partition_that_has_left_is_not_asked_about_any_more() -> None:
    machine = assigned(A)
    asking = Asking(machine)
    asking.worker.run()
    machine.feed(Revoke((A,)), Assign((A,)))
    asking.worker.run()
    assert len(asking.offsets.asked) == 1
    assert asking.worker.waiting == []


def test_refusal_ends_the_query_and_is_not_asked_again() -> None:
    asking = Asking(assigned(A))
    asking.offsets.problem = AuthenticationError("not allowed")
    asking.worker.run()
    assert asking.failed == [asking.offsets.problem]
    assert asking.worker.waiting == []


@pytest.mark.logs_errors("an unexpected error in the background")
def test_unexpected_error_ends_the_query_by_name() -> None:
    asking = Asking(assigned(A))
    asking.offsets.problem = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "metadata of another program")
    asking.worker.run()
    [error] = asking.failed
    assert isinstance(error, GroupError)
    assert "Asking where partitions start failed" in str(error)


@pytest.mark.logs_errors("an unexpected error in the background")
def test_error_in_an_answer_ends_the_query_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the partition stayed without a start for ever, "the cluster has not answered yet"."""
    asking = Asking(assigned(A))
    asking.offsets.found = {A: info(5)}
    monkeypatch.setattr(asking.info, "_without_doubtful", lambda *_: 1 // 0)
    asking.worker.run()
    [error] = asking.failed
    assert "Asking where partitions start failed: ZeroDivisionError" in str(error)


# ------------------------------------------------------------------------------ deleted topics


@pytest.mark.parametrize(("topic", "fails"), [("t", True), ("unread", False)])
def test_lost_right_on_a_topic_ends_the_query_if_it_has_read_it(topic: str, fails: bool) -> None:
    """Regression: with subscribePattern under KIP-848, the query continued without the topic, and logged an INFO."""
    asking = Asking(assigned(A))
    asking.worker.waiting.clear()
    asking.offsets.problem = AuthenticationError("not allowed")
    asking.info.check({TopicPartition(topic, 0)})
    asking.run_for(5.0)
    assert asking.failed == ([asking.offsets.problem] if fails else [])


def test_a_topic_that_stays_deleted_is_asked_for_rarely() -> None:
    """Regression: ten times a second, for ever."""
    machine = assigned(A)
    machine.state = replace(machine.state, policy=replace(POLICY, fail_on_data_loss=False))
    machine.feed(LogChangeFound((A,), LogChange.DELETED))
    asking = Asking(machine)
    asking.offsets.missing = frozenset({"t"})
    asking.run_for(60.0)
    assert len(asking.offsets.wanted) <= 13
    asking.offsets.missing = frozenset()
    asking.offsets.found = {A: info(5)}
    asking.answers.clear()
    asking.run_for(6.0)
    assert [answer for answer in asking.answers if isinstance(answer, PartitionInfoReceived)]


def test_other_topics_do_not_wait_for_one_that_stays_deleted() -> None:
    machine = assigned(A, OTHER)
    machine.state = replace(machine.state, policy=replace(POLICY, fail_on_data_loss=False))
    machine.feed(LogChangeFound((A,), LogChange.DELETED))
    asking = Asking(machine)
    asking.offsets.missing = frozenset({"t"})
    asking.run_for(1.0)
    assert {A, OTHER} == asking.offsets.wanted[0].keys()
    assert len(asking.offsets.wanted) > 3
    assert {OTHER} == {tp for wanted in asking.offsets.wanted[1:] for tp in wanted}


def test_topic_that_is_missing_for_three_seconds_was_deleted() -> None:
    asking = Asking(assigned(A, B))
    asking.offsets.missing = frozenset({"t"})
    asking.run_for(2.9)
    assert asking.answers == []
    asking.run_for(0.4)
    assert asking.answers[0] == LogChangeFound((A, B), LogChange.DELETED)


def test_partition_that_its_topic_no_longer_has_was_deleted() -> None:
    """Regression: after a topic was created again with fewer partitions, it was asked for for ever."""
    asking = Asking(assigned(A, B))
    asking.offsets.found, asking.offsets.vanished = {A: info(5)}, frozenset({B})
    asking.run_for(2.9)
    assert [type(answer) for answer in asking.answers] == [PartitionInfoReceived]
    asking.run_for(0.4)
    assert asking.answers[1:] == [LogChangeFound((B,), LogChange.DELETED)]


def test_topic_that_is_there_again_in_between_was_not_deleted() -> None:
    """A topic that was created a moment ago has not reached every broker."""
    asking = Asking(assigned(A))
    for _ in range(3):
        asking.offsets.missing = frozenset({"t"})
        asking.run_for(2.0)
        asking.offsets.missing = frozenset()
        asking.run_for(0.2)
    assert asking.answers == []


def test_topic_that_is_known_but_does_not_answer_was_not_deleted() -> None:
    asking = Asking(assigned(A))
    asking.run_for(10.0)
    assert asking.answers == []


def test_other_topics_go_on_while_one_is_missing() -> None:
    asking = Asking(assigned(A, OTHER))
    asking.offsets.missing = frozenset({"t"})
    asking.offsets.found = {OTHER: info(7)}
    asking.run_for(3.5)
    received, changed, *_ = asking.answers
    assert isinstance(received, PartitionInfoReceived)
    assert received.info.keys() == {OTHER}
    assert changed == LogChangeFound((A,), LogChange.DELETED)


def test_topic_that_is_known_to_be_deleted_is_not_told_again() -> None:
    machine = assigned(A)
    asking = Asking(machine)
    asking.offsets.missing = frozenset({"t"})
    asking.run_for(3.0)
    machine.state = replace(machine.state, deleted=frozenset({A}))
    asking.run_for(3.0)
    assert asking.answers == []
    assert asking.worker.waiting, "it may be created again"


# ------------------------------------------------------------------------------ states that may soon end


def test_a_log_that_is_shorter_for_a_moment_under_the_same_leader_epoch_is_waited_for() -> None:
    """Regression: its end goes back while brokers hand the partition over, and the query ended with DataLossError."""
    asking = Asking(assigned(A))
    asking.offsets.found = {A: replace(info(5), high_watermark=Offset(3), log_end=Offset(3))}
    asking.run_for(5)
    assert asking.answers == []
    assert asking.info.reasons == {
        A: "its log ends at 3, below what was read, under the same leader epoch",
    }
    asking.offsets.found = {A: info(5)}
    asking.run_for(1)
    assert asking.told()[A][1] == info(5)


def test_a_log_that_stays_shorter_is_believed() -> None:
    asking = Asking(assigned(A))
    shorter = replace(info(5), high_watermark=Offset(3), log_end=Offset(3))
    asking.offsets.found = {A: shorter}
    asking.run_for(9.8)
    assert asking.answers == []
    asking.run_for(0.5)
    assert asking.told()[A][1] == shorter


def test_a_log_that_a_later_leader_says_was_truncated_is_believed_at_once() -> None:
    asking = Asking(assigned(A))
    ends = {LeaderEpoch(2): Offset(3)}
    cut = replace(info(5), high_watermark=Offset(3), leader_epoch=LeaderEpoch(3), epoch_ends=ends)
    asking.offsets.found = {A: replace(cut, committed_leader_epoch=LeaderEpoch(2))}
    asking.worker.run()
    assert asking.told()


def test_leader_epochs_that_stay_behind_are_those_of_a_restored_cluster() -> None:
    """Regression: the partition waited forever, and the query logged only an INFO line."""
    asking = Asking(assigned(A))
    old = replace(info(5), leader_epoch=LeaderEpoch(2), committed_leader_epoch=LeaderEpoch(3))
    asking.offsets.found = {A: old}
    asking.run_for(29)
    assert asking.answers == []
    assert "leader epoch 2, older than a known one" in asking.info.reasons[A]
    asking.run_for(2)
    assert asking.told()[A][1] == old


def test_leader_epochs_of_a_topic_that_was_created_again_begin_anew() -> None:
    """Regression: each query that knew the old topic took the new one for a topic of a restored cluster."""
    of_old_topic = BatchOffset("q", {A: entry(0, 50, leader=LeaderEpoch(9))})
    asking = Asking(fed(Machine(), Restored(of_old_topic, "q"), Assign((A,))))
    asking.offsets.found = {A: replace(info(5, log=NEW_LOG), leader_epoch=LeaderEpoch(2))}
    asking.worker.run()
    assert asking.told()


def test_each_partition_has_its_own_reason() -> None:
    asking = Asking(assigned(A, B))
    asking.offsets.failed = {A: "LEADER_NOT_AVAILABLE", B: "its offset is in an open transaction"}
    asking.worker.run()
    assert asking.info.reasons == asking.offsets.failed
    asking.offsets.problem = TryAgainError("COORDINATOR_NOT_AVAILABLE")
    asking.worker.run()
    assert asking.info.reasons == dict.fromkeys((A, B), "COORDINATOR_NOT_AVAILABLE")


# ------------------------------------------------------------------------------ topics that came later


@pytest.mark.parametrize(
    ("pattern", "first_topics", "later"),
    [("t.*", set(), True), ("t.*", {"t"}, False), (None, set(), True), (None, {"t"}, False)],
    ids=["matches later", "matched at first", "was added to subscribe", "was subscribed at first"],
)
def test_topic_that_came_later_is_read_from_its_beginning(
    pattern: str | None, first_topics: set[str], later: bool
) -> None:
    asking = Asking(assigned(A), pattern=pattern, first_topics=first_topics)
    asking.offsets.found = {A: info(None)}
    asking.worker.run()
    [(_, told)] = asking.told().values()
    assert (told.topic_started, told.initial_partition_count) == ((True, 0) if later else (False, None))


@pytest.mark.parametrize("keeps_offsets", [True, False], ids=["group", "no group"])
@pytest.mark.parametrize(
    "named",
    [
        {"topics": {"t": StartingOffset.LATEST}},
        {"explicit": {A: Offset(5)}},
        {"explicit": {B: Offset(5)}},
        {"times_ms": {A: 1000}},
    ],
    ids=["word", "offset", "another partition", "time"],
)
def test_a_topic_that_the_users_json_names_starts_there_also_if_it_came_later(
    named: dict[str, Any], *, keeps_offsets: bool
) -> None:
    """Regression: an added topic started at its beginning if `assign` had no group, or the JSON named its offsets."""
    asking = Asking(assigned(A), start=replace(POLICY, **named, keeps_offsets=keeps_offsets))
    asking.offsets.found = {A: info(None)}
    asking.worker.run()
    [(_, told)] = asking.told().values()
    assert not told.topic_started


@pytest.mark.parametrize("started", [True, False], ids=["a group that has started it", "no group"])
@pytest.mark.parametrize(
    ("named", "position"),
    [
        ({}, 0),
        ({"topics": {"t": StartingOffset.LATEST}}, 0),
        ({"explicit": {A: Offset(5), B: Offset(5)}}, 5),
        ({"explicit": {A: StartingOffset.LATEST, B: StartingOffset.LATEST}}, 100),
    ],
    ids=["nowhere", "word", "offset", "word for the partition"],
)
@pytest.mark.parametrize("tp", [A, B], ids=str)
def test_a_partition_that_was_added_to_assign_starts_at_its_beginning_unless_the_json_names_it(
    tp: TopicPartition, named: dict[str, Any], position: int, *, started: bool
) -> None:
    """Regression: with a group it started at `latest`, so no query read the records before that."""
    start = replace(POLICY, default=StartingOffset.LATEST, **named, keeps_offsets=False)
    asking = Asking(assigned(A, B), first_topics={"t"}, added={tp}, start=start)
    count = 2 if started else None
    asking.offsets.found = {tp: replace(info(None, end=100), topic_started=started, initial_partition_count=count)}
    asking.worker.run()
    [(_, told)] = asking.told().values()
    decided = decide_start(tp, told, QueryInfo("q", "new", read_before=True), start)
    assert decided.position == position


def test_a_new_query_with_assign_starts_where_the_user_says_also_if_the_group_has_others_of_the_topic() -> None:
    """Otherwise the partition would count as one that was added to the topic later."""
    start = replace(POLICY, default=StartingOffset.LATEST, keeps_offsets=False)
    asking = Asking(assigned(A, B), first_topics={"t"}, start=start)
    asking.offsets.found = {B: replace(info(None, end=100), topic_started=True, initial_partition_count=1)}
    asking.worker.run()
    [(_, told)] = asking.told().values()
    assert decide_start(B, told, QueryInfo("q", "new"), start).position == 100


def test_a_partition_that_was_added_to_assign_starts_at_the_offset_of_the_group() -> None:
    asking = Asking(assigned(A, B), first_topics={"t"}, added={B})
    asking.offsets.found = {B: info(7)}
    asking.worker.run()
    assert asking.told()[B][1] == info(7)


@pytest.mark.parametrize("started_by_others", [False, True], ids=["by nobody", "by a new query"])
def test_topic_that_was_gone_is_read_from_its_beginning(*, started_by_others: bool) -> None:
    """Regression: without its offsets, the query started at `latest`, in its first run or if others came first."""
    asking = Asking(assigned(A), pattern="t.*", first_topics={"t"})
    asking.offsets.missing = frozenset({"t"})
    asking.info.forget({"t", "u"})
    asking.worker.run()
    assert asking.answers == [Forget(frozenset({"t"}))]
    asking.answers.clear()
    asking.offsets.found = {A: replace(info(None), topic_started=started_by_others, initial_partition_count=3)}
    asking.worker.run()
    [(_, told)] = asking.told().values()
    assert (told.topic_started, told.initial_partition_count) == (True, 0)


def test_processed_offsets_of_topics_that_exist_are_not_forgotten() -> None:
    asking = Asking(assigned(A), pattern="t.*")
    asking.info.forget({"t"})
    asking.worker.run()
    assert not any(isinstance(answer, Forget) for answer in asking.answers)


def test_topic_that_the_group_has_started_before_did_not_come_later() -> None:
    asking = Asking(assigned(A), pattern="t.*")
    asking.offsets.found = {A: info(5)}
    asking.worker.run()
    [(_, told)] = asking.told().values()
    assert told == info(5)


@pytest.mark.parametrize("first_topics", [{"t"}, set()], ids=["new query", "restart"])
def test_without_a_group_what_the_checkpoint_does_not_know_came_later_except_at_first(first_topics: set[str]) -> None:
    """As with Spark's own source, the query reads a partition that it gets later from its beginning."""
    asking = Asking(assigned(A), first_topics=first_topics, start=replace(POLICY, keeps_offsets=False))
    asking.offsets.found = {A: info(None)}
    asking.worker.run()
    [(_, told)] = asking.told().values()
    assert told.topic_started == (not first_topics)


def test_the_time_of_each_partition_is_asked_about() -> None:
    asking = Asking(assigned(A, B), start=replace(POLICY, time_ms=5, times_ms={B: 7}))
    asking.worker.run()
    assert asking.offsets.times_ms == {A: 5, B: 7}
