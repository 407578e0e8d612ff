"""The group thread, with a fake member, fake commits and a fake cluster.

The tests in ``test_membership.py`` and ``integration/`` use real clients.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from pyspark_kafka_group.cluster.committer import CommitRefusedError
from pyspark_kafka_group.cluster.error_remedies import TryAgainError, explanation
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator import commits, group_thread, held_back
from pyspark_kafka_group.coordinator.activity import Time
from pyspark_kafka_group.coordinator.commits import Commits
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.group_thread import GroupThread
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import Finish, Lose, PlanBatch, PlannedRange, Restored
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending, Lifecycle
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.member import Callbacks, Standing
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.errors import (
    ActiveGroupError,
    AuthenticationError,
    DataLossError,
    GroupError,
    OffsetFormatError,
)
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline
from tests.coordinator.fakes import FakeOffsets, InlineWorker
from tests.coordinator.machine import LEADER, POLICY, A, B, info, span

PATIENCE_S = 20.0
LONG_S = 1000.0


class FakeMember:
    """Runs the test's callbacks inside ``poll``, as the real member does."""

    def __init__(self, _: GroupSettings, *, client_id: str, callbacks: Callbacks) -> None:
        self.callbacks = callbacks
        self.standing = Standing.OUTSIDE
        self.member_id = "m1"
        self.pending: list[Callable[[], None]] = []
        self.subscribed: list[list[str]] = []
        self.subscribed_anew = threading.Event()
        self.closed = False

    def assigned(self, tps: tuple[TopicPartition, ...]) -> None:
        self.callbacks.assigned(tps)
        self.standing = Standing.MEMBER

    def lost(self, tps: tuple[TopicPartition, ...]) -> None:
        self.standing = Standing.LOST
        self.callbacks.lost(tps)

    def subscribe(self, topics: list[str]) -> None:
        self.standing = Standing.JOINING
        self.subscribed.append(topics)
        if len(self.subscribed) > 1:
            self.subscribed_anew.set()

    def poll(self) -> None:
        while self.pending:
            self.pending.pop(0)()

    def identity(self) -> str:
        return self.member_id

    def generation(self) -> int | None:
        return 7

    def close(self) -> None:
        self.closed = True


class KeptEvents(EventLog):
    """An event log that keeps its events."""

    def __init__(self, client_id: str, path: str | None) -> None:
        super().__init__(client_id, path)
        self.said: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.said.append(event)
        super().__call__(event)


class FakeCommitter:
    """Is only closed."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        pass


class FakeCommits(Commits):
    """Holds each commit until the test answers it; with ``succeeds``, answers at once."""

    def __init__(self, settings: GroupSettings, **others: Any) -> None:
        super().__init__(settings, **others)
        self.read: list[tuple[TopicPartition, ...]] = []
        self.sent: list[Commit] = []
        self.succeeds = True
        self.closed = False

    def prepare(self) -> None:
        pass

    def send(self, commit: Commit) -> None:
        self.sent.append(commit)
        if self.succeeds:
            self.answered(None)

    def read_back(self, partitions: Collection[TopicPartition]) -> None:
        self.read.append(tuple(partitions))

    def serve(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        super().close()


class Group:
    """A group thread, with fakes for everything that it calls."""

    def __init__(self, *, fail_on_data_loss: bool = True, may_join: bool = True, **changes: Any) -> None:
        settings = GroupSettings(
            properties={"group.instance.id": "static"},  # sends no request to leave, so waits for no rebalance
            group_id="g",
            topics=("t",),
            commit_mode=CommitMode.TRANSACTION,
            drain_timeout_s=LONG_S,
            read_committed=True,
            start=replace(POLICY, fail_on_data_loss=fail_on_data_loss),
        )
        settings = replace(settings, **changes)
        self.offsets = FakeOffsets()
        self.offsets.found = {A: info(0), B: info(0)}
        state, _ = step(State(policy=settings.start), Restored(INITIAL, "q"))
        self.log = KeptEvents("c", None)
        self.said = self.log.said
        self.worker = InlineWorker()
        self.thread = GroupThread(
            settings,
            client_id="c",
            query_id="q",
            state=state,
            topics=frozenset({"t"}),
            first_topics=frozenset({"t"}),
            added=frozenset(),
            offsets=cast(GroupOffsets, self.offsets),
            worker=self.worker,
            emit=self.log,
            may_join=may_join,
        )
        self.member = cast(FakeMember, self.thread._member)
        self.commits = cast(FakeCommits, self.thread._commits)

    def start(self, *assigned: TopicPartition) -> Group:
        """Run the thread, assign the partitions, and wait until they can be planned."""
        self.thread.thread.start()
        if assigned:
            self.assign(*assigned)
            self.wait(lambda state: state.plannable().keys() == {*assigned})
        return self

    def assign(self, *tps: TopicPartition) -> None:
        self.member.pending.append(lambda: self.member.assigned(tps))

    def revoke(self, *tps: TopicPartition) -> threading.Event:
        """Revoke partitions, and return an event that is set when the callback has returned."""
        returned = threading.Event()

        def call() -> None:
            self.member.callbacks.revoked(tps)
            returned.set()

        self.member.pending.append(call)
        return returned

    def wait(self, condition: Callable[[State], bool]) -> None:
        with self.thread.changed:
            assert self.thread.changed.wait_for(lambda: condition(self.thread.state), PATIENCE_S)

    def call(self, command: Callable[[], object]) -> None:
        self.thread.call(command).result(PATIENCE_S)

    def plan(self, until: int = 5) -> None:
        ranges = {
            tp: PlannedRange(p.epoch, span(p.offset, until), LEADER) for tp, p in self.thread.state.plannable().items()
        }
        self.call(lambda: self.thread.plan(PlanBatch(ranges)))

    def finish(self) -> None:
        batch = self.thread.state.batch
        assert batch is not None
        self.call(lambda: self.thread.feed(Finish(batch.end)))

    def join(self) -> None:
        self.thread.thread.join(PATIENCE_S)
        assert not self.thread.thread.is_alive()

    def stop(self) -> None:
        self.thread.end(Ending.STOP, 0.0)
        self.join()

    def names(self) -> list[str]:
        return [event.name for event in self.said]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Group]]:
    """Yield a factory of groups whose threads do not run yet."""
    monkeypatch.setattr("pyspark_kafka_group.coordinator.rebalances.Member", FakeMember)
    monkeypatch.setattr("pyspark_kafka_group.coordinator.group_thread.Commits", FakeCommits)
    monkeypatch.setattr("pyspark_kafka_group.coordinator.commits.TransactionalCommitter", FakeCommitter)
    monkeypatch.setattr("pyspark_kafka_group.coordinator.commits.PlainCommitter", FakeCommitter)
    monkeypatch.setattr("pyspark_kafka_group.coordinator.commits.connect", lambda *_, **__: None)
    made: list[Group] = []

    def make(**changes: Any) -> Group:
        made.append(Group(**changes))
        return made[-1]

    yield make
    for one in made:
        if one.thread.thread.is_alive():
            one.commits.succeeds = True
            one.stop()


Make = Callable[..., Group]

# ------------------------------------------------------------------------------ leaving


@pytest.mark.logs_errors("could not leave the group cleanly")
def test_a_member_leaves_the_group_whatever_goes_wrong_before(group: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: an error during the release of partitions kept the client open, and the member in the group."""
    one = group().start(A)

    def broken(_: object) -> None:
        raise ValueError("wrong")

    one.call(lambda: monkeypatch.setattr(one.thread, "feed", broken))
    one.thread.error = GroupError("over")  # so the thread waits for nothing
    monkeypatch.setattr(one.thread, "state", replace(one.thread.state, lifecycle=Lifecycle.LEAVING))
    one.join()
    assert one.member.closed
    assert one.commits.closed
    assert one.names()[-1] == "left"
    assert one.thread.ended.is_set()


# ------------------------------------------------------------------------------ outside


def test_a_member_outside_runs_a_batch_and_joins_when_it_may(group: Make) -> None:
    one = group(may_join=False).start()
    one.call(lambda: one.thread.plan(PlanBatch({}, always=True)))
    batch = one.thread.state.batch
    assert batch is not None
    one.call(lambda: one.thread.feed(Finish(batch.end)))
    assert one.member.subscribed == []
    one.call(one.thread.join_group)
    one.call(one.thread.join_group)
    assert one.member.subscribed == [["t"]]
    one.assign(A)
    one.wait(lambda state: state.plannable().keys() == {A})


@pytest.mark.parametrize("properties", [{}, {"group.instance.id": "i"}])
def test_a_member_outside_that_ends_has_never_been_in_the_group(group: Make, properties: dict[str, str]) -> None:
    """It does not ask whether the group rebalances either, because it would then wait for the others."""
    one = group(may_join=False, properties=properties).start()
    one.offsets.rebalances = 1000
    one.thread.end(Ending.STOP, 0.0)
    one.thread.post(one.thread.join_group)
    one.join()
    assert one.member.subscribed == []
    assert "rebalancing" not in one.offsets.asked
    assert one.names() == ["left"]


def test_a_member_outside_that_is_asked_to_finish_does_not_join_any_more(group: Make) -> None:
    """Regression: Spark's next call joined a group that the query was about to leave, and made the others rebalance."""
    one = group(may_join=False).start()
    one.call(lambda: one.thread.plan(PlanBatch({}, always=True)))
    batch = one.thread.state.batch
    assert batch is not None
    one.thread.end(Ending.FINISH)

    def finish_and_join() -> None:
        one.thread.feed(Finish(batch.end))
        one.thread.join_group()  # before the thread checks whether it is finished

    one.call(finish_and_join)
    one.join()
    assert one.member.subscribed == []
    assert one.names() == ["left"]


def test_a_member_outside_follows_its_pattern_once_it_joins(group: Make) -> None:
    one = group(may_join=False).start()
    one.call(lambda: one.thread._follow(frozenset({"t", "u"})))
    assert one.member.subscribed == []
    one.call(one.thread.join_group)
    assert one.member.subscribed == [["t", "u"]]


# ------------------------------------------------------------------------------ assigned, lost


def test_partitions_that_are_given_are_asked_about_and_started(group: Make) -> None:
    one = group().start(A, B)
    assert one.member.subscribed == [["t"]]
    assert one.names() == ["joined", "assigned", "started"]
    assert one.thread.standing is Standing.MEMBER
    assert one.thread.member_id == "m1"


def test_the_generation_of_the_newest_assignment_and_the_time_of_commits_are_known(group: Make) -> None:
    one = group()
    before = one.log.activity.generation
    one.start(A)
    assert (before, one.log.activity.generation) == (None, 7)
    one.plan()
    batch = one.thread.state.batch
    assert batch is not None
    one.call(lambda: one.thread.feed(Finish(batch.end)))
    one.wait(lambda state: not state.uncommitted)
    assert one.log.activity.committed_at is not None
    assert one.log.activity.spent()[Time.COMMITTING] > 0


def test_what_is_given_anew_was_lost_before(group: Make) -> None:
    """The thread reports the loss even if librdkafka has not reported it."""
    one = group().start(A)
    epoch = one.thread.state.owned[A].epoch
    one.assign(A)
    one.wait(lambda state: A in state.owned and state.owned[A].epoch > epoch)
    assert one.names()[3:5] == ["lost", "assigned"]


def test_member_with_another_id_has_lost_everything(group: Make) -> None:
    """If the session ends inside a rebalance, librdkafka reports the lost partitions as revoked."""
    one = group().start(A, B)
    one.member.member_id = "m2"
    one.wait(lambda state: not state.owned)
    assert one.said[-1] == events.Lost(partitions=(A, B), ranges={})
    assert one.thread.standing is Standing.LOST


def test_what_the_group_takes_away_is_lost(group: Make) -> None:
    one = group().start(A)
    one.plan()
    one.member.pending.append(lambda: one.member.lost((A,)))
    one.wait(lambda state: not state.owned)
    assert one.said[-1] == events.Lost(partitions=(A,), ranges={A: span(0, 5)})


# ------------------------------------------------------------------------------ revoked


def test_revocation_of_an_idle_partition_is_acknowledged_at_once(group: Make) -> None:
    one = group().start(A, B)
    assert one.revoke(A).wait(PATIENCE_S)
    assert one.thread.state.owned.keys() == {B}


def test_revocation_waits_for_the_batch_and_its_commit(group: Make) -> None:
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    returned = one.revoke(A)
    one.wait(lambda state: state.owned[A].phase is Phase.DRAINING)
    one.finish()
    assert not returned.is_set()
    one.commits.answered(None)
    assert returned.wait(PATIENCE_S)
    assert one.names()[-2:] == ["committed", "released"]


def test_revocation_ends_when_the_time_to_drain_is_over(group: Make) -> None:
    one = group(drain_timeout_s=0.1).start(A)
    one.plan()
    assert one.revoke(A).wait(PATIENCE_S)
    assert one.said[-1] == events.Expired(ranges={A: span(0, 5)})


def test_revocation_ends_at_once_when_the_query_is_stopped_in_the_middle_of_a_batch(group: Make) -> None:
    one = group().start(A)
    one.plan()
    returned = one.revoke(A)
    one.wait(lambda state: state.owned[A].phase is Phase.DRAINING)
    one.thread.end(Ending.STOP, LONG_S)
    assert returned.wait(PATIENCE_S)
    assert "expired" in one.names()


def test_revocation_waits_for_the_commit_when_the_query_is_stopped(group: Make) -> None:
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    returned = one.revoke(A)
    one.wait(lambda state: state.owned[A].phase is Phase.DRAINING)
    one.finish()
    one.thread.end(Ending.STOP, LONG_S)
    one.wait(lambda state: state.lifecycle is Lifecycle.LEAVING)
    assert not returned.is_set()
    one.commits.answered(None)
    assert returned.wait(PATIENCE_S)
    assert "released" in one.names()


def test_revocation_ends_at_once_when_the_query_fails(group: Make) -> None:
    """Regression: the next owners waited all of drainTimeoutMs for a commit that cannot succeed."""
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    returned = one.revoke(A)
    one.wait(lambda state: state.owned[A].phase is Phase.DRAINING)
    one.finish()
    one.commits.answered(AuthenticationError("not allowed"))
    assert returned.wait(PATIENCE_S)
    assert "expired" in one.names()


# ------------------------------------------------------------------------------ commits


def test_commit_is_sent_after_the_answer_to_the_command_that_decides_it(group: Make) -> None:
    one = group().start(A)
    one.plan()
    batch = one.thread.state.batch
    assert batch is not None
    sent: list[int] = []

    def finish() -> None:
        one.thread.feed(Finish(batch.end))
        sent.append(len(one.commits.sent))

    one.call(finish)
    one.wait(lambda state: not state.uncommitted)
    assert sent == [0]


def test_commit_is_sent_before_the_next_input_which_may_take_its_partitions(group: Make) -> None:
    """Regression: a commit was sent after its partition had expired, and the simulation found that."""
    one = group().start(A)
    one.plan()
    batch = one.thread.state.batch
    assert batch is not None
    owned: list[bool] = []
    send = one.commits.send

    def noted(commit: Commit) -> None:
        owned.append(A in one.thread.state.owned)
        send(commit)

    one.commits.send = noted  # type: ignore[method-assign]

    def finish_and_lose() -> None:
        one.thread.feed(Finish(batch.end))
        one.thread.feed(Lose((A,)))

    one.call(finish_and_lose)
    assert owned == [True]
    assert len(one.commits.sent) == 1


def test_nothing_is_read_back_of_given_partitions(group: Make) -> None:
    """A late commit does no harm there, because the checkpoint decides."""
    made = group(partitions=(A,)).start()
    made.wait(lambda state: bool(state.plannable()))
    made.commits.succeeds = False
    made.plan()
    made.finish()
    made.wait(lambda state: state.committing is not None)
    made.commits.answered(CommitRefusedError("_TIMED_OUT", "no answer", unclear=True))
    made.commits.succeeds = True
    made.wait(lambda state: not state.uncommitted)
    made.thread.end(Ending.STOP, LONG_S)
    assert made.thread.ended.wait(PATIENCE_S)
    assert made.thread.state.clean
    assert made.commits.read == []


def test_a_note_of_a_newer_version_ends_a_query_that_reads_its_offsets_back(group: Make) -> None:
    """Regression: the query asked again and again, and said so only at level DEBUG."""
    one = group().start(A)
    one.commits.found(OffsetFormatError("its format version is 9, not 1."))
    one.join()
    assert isinstance(one.thread.error, OffsetFormatError)


def test_member_that_leaves_first_reads_back_what_a_late_commit_may_have_changed(group: Make) -> None:
    """Regression: the member left cleanly, then its late commit arrived, and the next owner repeated a batch."""
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    one.commits.answered(CommitRefusedError("_TIMED_OUT", "no answer", unclear=True))
    one.commits.succeeds = True
    one.wait(lambda state: not state.uncommitted)
    one.thread.end(Ending.STOP, LONG_S)
    one.wait(lambda _: bool(one.commits.read))
    assert not one.thread.ended.is_set()
    end = one.commits.sent[-1].entries[A]
    one.commits.found({A: GroupOffset(end.offset, end.note)})
    assert one.thread.ended.wait(PATIENCE_S)
    assert one.thread.state.clean


def test_refused_commit_is_tried_again(group: Make) -> None:
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    one.commits.succeeds = True
    one.commits.answered(CommitRefusedError("REBALANCE_IN_PROGRESS", "later"))
    one.wait(lambda state: not state.uncommitted)
    assert one.names()[-2:] == ["commitFailed", "committed"]


def test_what_drains_is_lost_when_the_group_has_thrown_the_member_out(group: Make) -> None:
    """Otherwise the callback waits for the deadline, and delays the next owners."""
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    returned = one.revoke(A)
    one.wait(lambda state: state.owned[A].phase is Phase.DRAINING)
    one.finish()
    one.commits.answered(CommitRefusedError("UNKNOWN_MEMBER_ID", "gone"))
    assert returned.wait(PATIENCE_S)
    assert one.said[-1] == events.Lost(partitions=(A,), ranges={A: span(0, 5)})


def test_commit_that_finds_a_topic_deleted_ends_the_query_once_that_is_sure(
    group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_kafka_group.offsets.lasting.GONE_S", 0.0)
    one = group().start(A)
    one.offsets.missing = frozenset({"t"})
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    one.commits.answered(CommitRefusedError("UNKNOWN_TOPIC_OR_PART", "t", missing=frozenset({A})))
    one.join()
    assert isinstance(one.thread.error, DataLossError)
    assert str(one.thread.error).startswith("Topic deleted: t. ")
    assert "missing t-0" in one.offsets.asked


def test_processed_offsets_of_a_topic_that_is_gone_and_matches_no_more_are_dropped(
    group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_kafka_group.offsets.lasting.GONE_S", 0.0)
    monkeypatch.setattr(group_thread, "_SERVE_PAUSE_S", 0.0)
    properties = {"group.instance.id": "static", "topic.metadata.refresh.interval.ms": "0"}
    one = group(fail_on_data_loss=False, pattern="[tu]", properties=properties)
    one.offsets.topics = {"t": 2, "u": 1}
    one.start(A)
    assert A in one.thread.state.processed
    one.offsets.missing = frozenset({"t"})
    one.offsets.topics = {"u": 1}
    one.wait(lambda _: "logChanged" in one.names())
    assert A in one.thread.state.processed, "the group has not taken it back yet"
    one.revoke(A)
    one.wait(lambda state: not state.processed)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_coordinator_that_does_not_know_a_topic_yet_deletes_nothing(group: Make, fail_on_data_loss: bool) -> None:
    """Regression: without failOnDataLoss one answer counted, and a run with availableNow ended with nothing read."""
    one = group(fail_on_data_loss=fail_on_data_loss).start(A)
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    one.commits.answered(CommitRefusedError("UNKNOWN_TOPIC_OR_PART", "t", missing=frozenset({A})))
    one.wait(lambda _: "missing t-0" in one.offsets.asked)
    one.commits.succeeds = True
    one.wait(lambda _: "committed" in one.names())
    assert not one.thread.state.deleted
    assert "logChanged" not in one.names()


def test_commit_that_finds_a_topic_deleted_lets_the_others_go_on_if_loss_is_accepted(
    group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_kafka_group.offsets.lasting.GONE_S", 0.0)
    one = group(fail_on_data_loss=False)
    one.start(A)
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    one.offsets.found, one.offsets.missing = {}, frozenset({"t"})
    one.commits.answered(CommitRefusedError("UNKNOWN_TOPIC_OR_PART", "t", missing=frozenset({A})))
    one.wait(lambda state: state.deleted == {A})
    one.worker.waits = True
    assert one.said[-1] == events.LogChanged(partitions=(A,), change="deleted", ranges={A: span(0, 5)})
    assert one.thread.error is None


def test_commit_of_a_partition_that_its_topic_no_longer_has_lets_the_others_go_on(
    group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was refused for ever, and nothing was planned any more, of no topic."""
    monkeypatch.setattr("pyspark_kafka_group.offsets.lasting.GONE_S", 0.0)
    one = group(fail_on_data_loss=False).start(A, B)
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    one.offsets.vanished = frozenset({B})
    one.worker.waits = True  # it would ask for B for ever
    one.commits.answered(CommitRefusedError("UNKNOWN_TOPIC_OR_PART", "t", missing=frozenset({B})))
    one.wait(lambda _: bool(one.worker.waiting))
    one.commits.succeeds = True
    one.worker.run()
    one.wait(lambda state: state.deleted == {B})
    one.wait(lambda state: state.owned[A].committed == 5 and not state.uncommitted)


def test_commit_that_no_retry_can_help_ends_the_query(group: Make) -> None:
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    refused = AuthenticationError("not allowed")
    one.commits.answered(refused)
    one.join()
    assert one.thread.error is refused


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (ValueError("other bytes"), "other bytes"),
        (
            CommitRefusedError("_BAD_MSG", "id is not safe"),
            r"_BAD_MSG: id is not safe. Try commitMode=plain",
        ),
    ],
)
def test_commit_that_keeps_failing_with_an_error_that_no_retry_cures_ends_the_query(
    group: Make, monkeypatch: pytest.MonkeyPatch, problem: Exception, said: str
) -> None:
    """Regression: the query retried the commit forever."""
    monkeypatch.setattr(commits, "_UNEXPECTED_S", 0.0)
    one = group().start(A)
    one.commits.succeeds = False
    one.plan()
    one.finish()
    one.wait(lambda state: state.committing is not None)
    one.commits.answered(problem)
    one.wait(lambda state: state.retry_pending)
    one.wait(lambda state: state.committing is not None)
    error = one.thread.error
    assert error is None
    one.commits.answered(problem)
    one.join()
    assert isinstance(one.thread.error, GroupError)
    assert said in str(one.thread.error)


# ------------------------------------------------------------------------------ the end


def test_stopped_member_gives_everything_back_and_closes_its_clients(group: Make) -> None:
    one = group().start(A, B)
    one.stop()
    assert one.said[-2:] == [events.Released(partitions=(A, B)), events.Left(clean=True)]
    assert one.member.closed
    assert one.commits.closed
    assert one.offsets.asked[-1] == "close"


def test_member_that_is_asked_to_finish_leaves_when_its_batch_is_committed(group: Make) -> None:
    one = group().start(A)
    one.plan()
    one.thread.end(Ending.FINISH)
    one.wait(lambda state: state.lifecycle is Lifecycle.FINISHING)
    assert not one.thread.stopping
    one.finish()
    one.join()
    assert one.names()[-3:] == ["committed", "released", "left"]
    assert one.thread.state.clean


def test_member_that_is_stopped_in_the_middle_of_a_batch_has_not_left_cleanly(group: Make) -> None:
    one = group().start(A)
    one.plan()
    one.stop()
    assert one.said[-2:] == [events.Expired(ranges={A: span(0, 5)}), events.Left(clean=False)]


def test_member_that_has_another_id_when_it_leaves_has_lost_everything_and_releases_nothing(group: Make) -> None:
    one = group().start(A)

    def end_as_another() -> None:
        one.member.member_id = "m2"
        raise GroupError("the query fails")

    one.thread.post(end_as_another)
    one.join()
    assert one.said[-2:] == [events.Lost(partitions=(A,), ranges={}), events.Left(clean=False)]


@pytest.mark.logs_errors("the group thread has failed")
def test_unexpected_error_ends_the_query_by_name(group: Make) -> None:
    one = group().start(A)

    def broken() -> None:
        raise ZeroDivisionError("unexpected")

    one.thread.post(broken)
    one.join()
    assert isinstance(one.thread.error, GroupError)
    assert "This is a bug" in str(one.thread.error)
    assert one.said[-1] == events.Left(clean=False)
    assert one.member.closed


def test_group_that_refuses_because_of_other_members_names_them(group: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = group().start(A)
    old = GroupMember(
        member_id="m", instance_id=None, client_id="old-consumer", host="/10.0.0.1", assignment=frozenset({A})
    )
    described = GroupDescription(state="Stable", protocol=GroupProtocol.CLASSIC, members=(old,), assignor="range")
    monkeypatch.setattr(one.offsets, "describe", lambda: described)

    def refused() -> None:
        raise explanation("INCONSISTENT_GROUP_PROTOCOL", "refused", group_id="g", properties={})

    one.member.pending.append(refused)
    one.join()
    assert "its other members (old-consumer at 10.0.0.1, with the assignor 'range') use another" in str(
        one.thread.error
    )


def test_error_of_a_command_goes_to_its_caller_and_ends_nothing(group: Make) -> None:
    one = group().start(A)

    def broken() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        one.call(broken)
    assert one.thread.thread.is_alive()
    assert one.thread.error is None


def test_member_leaves_when_the_process_that_spark_runs_in_has_died(
    group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = group().start(A)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    one.join()
    assert one.thread.state.lifecycle is Lifecycle.LEFT


def test_classic_member_leaves_when_the_rebalance_is_over(group: Make) -> None:
    """The broker does not read its request to leave earlier, and would keep a ghost in the group."""
    one = group(properties={}).start(A)
    one.offsets.rebalances = 2
    one.stop()
    assert one.offsets.asked.count("rebalancing") == 3


@pytest.mark.parametrize("properties", [{"group.instance.id": "static"}, {"group.protocol": "consumer"}])
def test_member_that_leaves_without_a_request_of_its_own_waits_for_no_rebalance(
    group: Make, properties: dict[str, str]
) -> None:
    one = group(properties=properties).start(A)
    one.offsets.rebalances = 2
    one.stop()
    assert "rebalancing" not in one.offsets.asked


def test_member_that_the_cluster_has_failed_waits_for_no_rebalance(group: Make) -> None:
    one = group(properties={}).start(A)
    one.thread.post(lambda: one.commits.answered(AuthenticationError("not allowed")))
    one.join()
    assert "rebalancing" not in one.offsets.asked


# ------------------------------------------------------------------------------ topics


def test_topics_that_match_now_are_subscribed_to(group: Make) -> None:
    one = group(topics=(), pattern="t.*", properties={"topic.metadata.refresh.interval.ms": "10"})
    one.offsets.topics = {"t": 2}
    one.start(A)
    one.offsets.topics = {"t": 2, "t2": 1}
    assert one.member.subscribed_anew.wait(PATIENCE_S)
    assert one.member.subscribed == [["t"], ["t", "t2"]]


def test_member_stays_subscribed_when_nothing_matches_any_more(group: Make) -> None:
    """A member without a subscription is no longer a member of the group."""
    one = group(topics=(), pattern="t.*", properties={"topic.metadata.refresh.interval.ms": "1"})
    one.start(A)
    for _ in range(3):
        one.call(lambda: None)
    assert one.member.subscribed == [["t"]]


# ------------------------------------------------------------------------------ partitions that are given


def test_given_partitions_are_owned_at_once_and_committed(group: Make) -> None:
    """The thread waits for no group, and creates no member that could join one."""
    one = group(partitions=(A, B))
    one.thread.thread.start()
    one.wait(lambda state: state.plannable().keys() == {A, B})
    assert one.thread.standing is Standing.MEMBER
    assert one.thread.member_id == ""
    assert not [event for event in one.said if isinstance(event, events.Joined)]
    one.plan()
    one.finish()
    one.wait(lambda state: not state.uncommitted)
    assert one.commits.sent[-1].entries.keys() == {A, B}
    one.stop()


def test_a_group_that_has_members_ends_a_query_whose_partitions_are_given(group: Make) -> None:
    one = group(partitions=(A,))
    one.offsets.found = {A: info(None)}
    one.commits.succeeds = False
    one.thread.thread.start()
    one.wait(lambda _: bool(one.commits.sent))
    one.commits.answered(CommitRefusedError("UNKNOWN_MEMBER_ID", "commit of t-0"))
    one.join()
    assert isinstance(one.thread.error, ActiveGroupError)


# -- held back


def test_what_the_group_thread_knows_of_partitions_that_cannot_be_planned(
    group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_back, "HELD_BACK_S", 0.0)
    monkeypatch.setattr(held_back, "_CHECK_PAUSE_S", 0.0)
    running = group()
    running.offsets.found = {B: info(0)}
    running.offsets.failed = {A: "LEADER_NOT_AVAILABLE"}
    running.worker.waits = True
    running.thread.thread.start()
    running.assign(A, B)
    deadline = Deadline.after(PATIENCE_S)
    while running.thread.held_back.partitions.get(A) != "LEADER_NOT_AVAILABLE":
        running.worker.run()
        time.sleep(0.01)
        assert not deadline.passed
    assert B not in running.thread.held_back.partitions
    running.offsets.found = {A: info(0), B: info(0)}
    while running.thread.held_back.partitions:
        running.worker.run()
        time.sleep(0.01)
        assert not deadline.passed
    running.thread.end(Ending.STOP, 0)
    running.join()
    names = [event.name for event in running.said]
    assert names.index("heldBack") < names.index("heldBackEnded") < names.index("left")


def test_a_commit_without_an_answer_is_named_and_short_ones_are_not(
    group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_back, "_CHECK_PAUSE_S", 0.0)
    running = group().start(A)
    running.plan(5)
    running.finish()
    running.commits.succeeds = False
    running.plan(6)
    running.finish()
    running.plan(7)
    running.finish()
    assert not running.thread.state.may_plan
    monkeypatch.setattr(held_back, "HELD_BACK_S", 0.0)
    deadline = Deadline.after(PATIENCE_S)
    while running.thread.held_back.partitions != {A: "its finished batch is not committed yet"}:
        assert not deadline.passed
        time.sleep(0.01)


def test_a_group_that_does_not_answer_is_named(group: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: without a coordinator, a query waited forever and logged only an INFO line."""
    monkeypatch.setattr(held_back, "HELD_BACK_S", 0.0)
    monkeypatch.setattr(held_back, "_CHECK_PAUSE_S", 0.0)
    monkeypatch.setattr(held_back, "_ASK_PAUSE_S", 0.0)
    running = group()
    running.offsets.problem = TryAgainError("COORDINATOR_NOT_AVAILABLE")
    running.thread.thread.start()
    deadline = Deadline.after(PATIENCE_S)
    while not any(isinstance(event, events.HeldBack) for event in running.said):
        assert not deadline.passed
        time.sleep(0.01)
    (told,) = [event for event in running.said if isinstance(event, events.HeldBack)]
    assert told.partitions == ()
    assert "COORDINATOR_NOT_AVAILABLE" in told.reason
    running.thread.end(Ending.STOP, 0)
    running.join()
