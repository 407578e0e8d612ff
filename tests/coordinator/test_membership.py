"""A membership with a real client, on librdkafka's mock cluster.

The members use KIP-848 and plain commits, because the mock cluster keeps no other commits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from pyspark_kafka_group.cluster import group_offsets
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.cluster.committer import TransactionalCommitter
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.plain_committer import PlainCommitter
from pyspark_kafka_group.cluster.start_answers import LeaderEpochs, StartAnswers
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover import events, inputs, outputs
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.membership import Membership, StoppingError
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.coordinator.start_up import start_up
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    DataLossError,
    GroupError,
    OptionError,
    OutdatedCheckpointError,
    UnknownTopicError,
)
from pyspark_kafka_group.offsets.skip_markers import Markers, SkipMarker
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.testing import MockKafka

PATIENCE_S = 30.0
OFFSET_COMMIT = 8  # the request's api key
COORDINATOR_LOAD_IN_PROGRESS = 14

Member = Callable[..., Membership]


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        mock.create_topic("orders", 2)
        for partition in (0, 1):
            produce(mock, "orders", 20, partition)
        yield mock


def produce(kafka: MockKafka, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(count):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def member(kafka: MockKafka, tmp_path: Path) -> Iterator[Member]:
    """Yield a factory of started members of one group."""
    made: list[Membership] = []
    logs: list[EventLog] = []

    def make(
        name: str,
        *,
        start: BatchOffset = INITIAL,
        topics: tuple[str, ...] = ("orders",),
        commit_mode: CommitMode = CommitMode.PLAIN,
        pattern: str | None = None,
        default: StartingOffset = StartingOffset.EARLIEST,
        assigned: tuple[TopicPartition, ...] = (),
        commits: bool = True,
        **properties: str,
    ) -> Membership:
        settings = GroupSettings(
            properties={
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.protocol": "consumer",
                **properties,
            },
            group_id="etl",
            topics=() if pattern else topics,
            pattern=pattern,
            partitions=assigned,
            commit_mode=commit_mode,
            drain_timeout_s=20.0,
            read_committed=True,
            start=StartPolicy(
                group_id="etl",
                default=default,
                explicit={},
                fail_on_data_loss=True,
                keeps_offsets=not assigned,
            ),
            commits=commits,
        )
        logs.append(EventLog(name, str(tmp_path / f"{name}.jsonl")))
        membership = start_up(
            settings,
            start=start,
            query_id=f"query-of-{name}",
            client_id=name,
            event_log=logs[-1],
        )
        made.append(membership)
        membership.start()
        return membership

    yield make
    for membership in made:
        if membership.alive:
            membership.begin_stop(1.0)
            membership.join(10.0)
    for log in logs:
        log.close()
    # Keep the brokers until the requests threads have ended.  Without brokers, their open requests would time out.
    for thread in threading.enumerate():
        if thread.name == "kafka-group-requests":
            thread.join(PATIENCE_S)


def plan(membership: Membership, count: int) -> BatchOffset:
    """Plan ``count`` records of each plannable partition."""
    ranges = {
        tp: inputs.PlannedRange(p.epoch, OffsetRange(p.offset, Offset(p.offset + count)), p.leader_epoch)
        for tp, p in membership.state.plannable().items()
    }
    end = membership.plan(ranges, always=False)
    assert end is not None
    return end


def committed(membership: Membership) -> dict[int, int | None]:
    return {tp.partition: p.committed for tp, p in membership.state.owned.items()}


def test_a_member_joins_and_starts_every_partition_durably(member: Member) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    assert membership.state.plannable().keys() == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert committed(membership) == {0: 0, 1: 0}


def test_who_waits_for_the_first_assignment_does_not_see_an_empty_one(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the first batch of a query was usually empty, and its rows came with the second."""

    def slow(state: State, given: inputs.Input) -> tuple[State, tuple[outputs.Output, ...]]:
        if isinstance(given, inputs.Assign):
            time.sleep(0.2)
        return step(state, given)

    monkeypatch.setattr("pyspark_kafka_group.coordinator.group_thread.step", slow)
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    assert len(membership.state.plannable()) == 2


def test_a_finished_batch_is_committed_and_an_unfinished_one_is_not(member: Member) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    end = plan(membership, 5)
    assert committed(membership) == {0: 0, 1: 0}
    membership.finish(end)
    assert membership.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    assert committed(membership) == {0: 5, 1: 5}


def test_a_query_with_an_old_copy_of_its_checkpoint_does_not_even_start(member: Member) -> None:
    """Regression: the query ran a batch with a number that the sink knew, before it noticed that the copy was old."""
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    copy = plan(membership, 5)
    membership.finish(copy)
    membership.finish(plan(membership, 5))
    assert membership.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    membership.begin_stop(5.0)
    membership.join(10.0)
    with pytest.raises(OutdatedCheckpointError, match=r"has committed 10 .* ends at 5"):
        member("one", start=copy)


def test_asked_again_with_a_batch_in_flight_the_answer_is_its_end(member: Member) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    end = plan(membership, 5)
    assert membership.plan({}, always=False) == end


def test_a_second_member_gets_its_partition_after_the_batch(member: Member) -> None:
    first = member("first")
    assert first.wait_for_assignment(PATIENCE_S)
    end = plan(first, 5)
    second = member("second")
    assert first.wait_until(lambda state: any(p.phase is Phase.DRAINING for p in state.owned.values()), PATIENCE_S)
    assert not second.state.owned, "the batch is still running"
    first.finish(end)
    assert second.wait_until(lambda state: len(state.plannable()) == 1, PATIENCE_S)
    [position] = second.state.plannable().values()
    assert position.offset == 5
    assert len(first.state.owned) == 1


def test_a_member_that_stops_leaves_its_partitions_to_the_others(member: Member) -> None:
    first, second = member("first"), member("second")
    # Wait for both, because the mock forgets a partition that is moving to a member that leaves.
    assert first.wait_until(lambda state: len(state.plannable()) == 1, PATIENCE_S)
    assert second.wait_until(lambda state: len(state.plannable()) == 1, PATIENCE_S)
    first.begin_stop(5.0)
    first.join(10.0)
    assert not first.alive
    assert second.wait_until(lambda state: len(state.plannable()) == 2, PATIENCE_S)


def test_a_wait_ends_when_the_member_is_told_to_stop(member: Member) -> None:
    membership = member("one")
    threading.Timer(0.3, membership.begin_stop, [1.0]).start()
    with pytest.raises(StoppingError):
        membership.wait_until(lambda _: False, PATIENCE_S)


def test_commands_after_the_end_do_not_hang(member: Member) -> None:
    membership = member("one")
    membership.begin_stop(1.0)
    membership.join(10.0)
    with pytest.raises(StoppingError):
        membership.finish(INITIAL)


def test_a_drain_waits_for_the_batch_and_says_whether_it_was_finished(member: Member) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    end = plan(membership, 5)
    assert not membership.stop_gracefully(0.3), "the batch is still running"
    assert not membership.state.plannable()
    membership.finish(end)
    assert membership.stop_gracefully(PATIENCE_S)
    assert not membership.alive


def test_a_drain_that_is_overtaken_by_a_stop_was_no_drain(member: Member) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    plan(membership, 5)
    threading.Timer(0.3, membership.begin_stop, [0.1]).start()
    assert not membership.stop_gracefully(PATIENCE_S)


def test_a_broker_that_does_not_know_a_partition_yet_is_asked_again(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the committed offset looks missing.  The partition starts at `startingOffsets`, and loses records."""
    first = member("first")
    assert first.wait_for_assignment(PATIENCE_S)
    first.finish(plan(first, 5))
    assert first.stop_gracefully(PATIENCE_S)
    ask = GroupOffsets.partition_info
    stale = [1, 1, 1]

    def one_partition_only(offsets: GroupOffsets, wanted: LeaderEpochs, _times_ms: object) -> StartAnswers:
        known = {tp: epochs for tp, epochs in wanted.items() if not stale or tp.partition < stale.pop()}
        return ask(offsets, known)

    monkeypatch.setattr(GroupOffsets, "partition_info", one_partition_only)
    second = member("second")
    assert second.wait_for_assignment(PATIENCE_S)
    assert {position.offset for position in second.state.plannable().values()} == {5}
    assert not stale


@pytest.mark.logs_errors("an unexpected error in the background")
def test_an_unexpected_error_while_asking_where_to_start_ends_the_query(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the membership swallows the error and never reads the partition."""

    def broken(*_: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "metadata of another program")

    monkeypatch.setattr(GroupOffsets, "partition_info", broken)
    membership = member("one")
    with pytest.raises(GroupError, match="Asking where partitions start failed"):
        membership.wait_for_assignment(PATIENCE_S)


def test_a_refused_commit_is_tried_again(kafka: MockKafka, member: Member) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    kafka.push_errors(OFFSET_COMMIT, *[COORDINATOR_LOAD_IN_PROGRESS] * 3)
    membership.finish(plan(membership, 5))
    assert membership.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    assert committed(membership) == {0: 5, 1: 5}


def test_an_unreachable_cluster_is_named_in_bounded_time(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "CONNECT_TIMEOUT_S", 2.0)
    begin = time.monotonic()
    with pytest.raises(BrokerError, match=r"no broker of '127\.0\.0\.1:1' answered"):
        member("one", **{"bootstrap.servers": "127.0.0.1:1"})
    assert time.monotonic() - begin < 15


def test_a_topic_that_does_not_exist_is_named(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_NEW_TOPIC_PATIENCE_S", 0.5)
    with pytest.raises(UnknownTopicError, match="topic not found: missing"):
        member("one", topics=("missing",))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_that_no_topic_matches_waits_for_one(
    kafka: MockKafka,
    member: Member,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    protocol: str,
) -> None:
    """Spark's own source waits too.  The query then reads all of the topic, even with startingOffsets=latest."""
    monkeypatch.setattr(group_offsets, "_NEW_TOPIC_PATIENCE_S", 0.5)
    refresh = {"topic.metadata.refresh.interval.ms": "200", "group.protocol": protocol}
    membership = member("one", pattern="click.*", default=StartingOffset.LATEST, **refresh)
    assert not membership.has_topics
    assert "no topic matches subscribePattern 'click.*' yet" in caplog.text
    empty = membership.plan({}, always=True)
    assert empty is not None
    membership.finish(empty)
    assert membership.wait_until(lambda state: state.batch is None, PATIENCE_S)
    kafka.create_topic("clicks", 1)
    produce(kafka, "clicks", 5)
    assert membership.wait_until(lambda state: len(state.plannable()) == 1, PATIENCE_S)
    assert {tp.topic: p.position for tp, p in membership.state.owned.items()} == {"clicks": 0}


def test_who_waits_for_a_first_topic_stops_at_once(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_NEW_TOPIC_PATIENCE_S", 0.1)
    membership = member("one", pattern="click.*", **{"group.protocol": "classic"})
    begin = time.monotonic()
    membership.begin_stop(5.0)
    membership.join(10.0)
    assert not membership.alive
    assert time.monotonic() - begin < 3


def test_a_batch_that_runs_again_needs_the_topics_that_it_has_read(
    kafka: MockKafka, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "_NEW_TOPIC_PATIENCE_S", 0.5)
    first = member("one")
    assert first.wait_for_assignment(PATIENCE_S)
    end = plan(first, 5)
    settings = first._settings
    with pytest.raises(UnknownTopicError, match=r"Option 'subscribePattern': no topic matches 'click.*'"):
        start_up(
            replace(settings, topics=(), pattern="click.*"),
            start=INITIAL,
            query_id="query-of-one",
            client_id="again",
            event_log=EventLog("again", None),
            unfinished=end,
        )


def test_topics_that_match_later_are_read_from_their_beginning(kafka: MockKafka, member: Member) -> None:
    """startingOffsets=latest applies only to topics that exist when the query starts.

    The test omits the classic protocol: the mock never answers a stable member that joins again.
    """
    kafka.create_topic("first", 1)
    kafka.create_topic("not-first", 1)
    produce(kafka, "first", 3)
    refresh = {"topic.metadata.refresh.interval.ms": "200"}
    membership = member("one", pattern="first.*", default=StartingOffset.LATEST, **refresh)
    assert membership.wait_for_assignment(PATIENCE_S)
    assert {tp.topic: p.position for tp, p in membership.state.owned.items()} == {"first": 3}
    kafka.create_topic("first-later", 1)
    produce(kafka, "first-later", 5)
    assert membership.wait_until(lambda state: len(state.plannable()) == 2, PATIENCE_S)
    assert {tp.topic: p.position for tp, p in membership.state.owned.items()} == {"first": 3, "first-later": 0}


def test_a_property_that_the_client_does_not_know_is_named(member: Member) -> None:
    with pytest.raises(OptionError, match=r"Option 'kafka\.socket\.nonsense': the Kafka client refuses it"):
        member("one", **{"socket.nonsense": "1"})


def test_who_says_that_a_batch_is_finished_does_not_wait_for_its_commit(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    end = plan(membership, 5)
    sent, answer = threading.Event(), threading.Event()

    def commit(self: object, offsets: object, group_metadata: object) -> None:
        sent.set()
        assert answer.wait(PATIENCE_S)

    monkeypatch.setattr(PlainCommitter, "commit", commit)
    membership.finish(end)
    assert membership.state.batch is None
    assert sent.wait(PATIENCE_S)
    assert committed(membership) == {0: 0, 1: 0}
    answer.set()
    assert membership.wait_until(lambda state: not state.uncommitted, PATIENCE_S)


def test_the_next_batch_is_planned_while_a_transaction_is_committed(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = member("one", commit_mode=CommitMode.TRANSACTION)
    assert membership.wait_for_assignment(PATIENCE_S)
    sent, answer = threading.Event(), threading.Event()

    def commit(self: object, offsets: object, group_metadata: object) -> None:
        sent.set()
        assert answer.wait(PATIENCE_S)

    monkeypatch.setattr(TransactionalCommitter, "commit", commit)
    membership.finish(plan(membership, 5))
    assert sent.wait(PATIENCE_S)
    plan(membership, 5)
    assert committed(membership) == {0: 0, 1: 0}
    answer.set()
    assert membership.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    assert committed(membership) == {0: 5, 1: 5}


# ------------------------------------------------------------------------------ answers that the test decides

MINE, ELSEWHERE = TopicPartition("orders", 0), TopicPartition("orders", 7)


def entry(start: int, until: int) -> PartitionEntry:
    return PartitionEntry(OffsetRange(Offset(start), Offset(until)), None, None, "l")


def joined(member: Member, monkeypatch: pytest.MonkeyPatch, by: str) -> Membership:
    """Return a member of a group where another member owns a partition that ``by`` has committed up to 5."""
    note = CommitNote(by, None, 8, Offset(0), "lineage").encode()
    stored = Answers({ELSEWHERE: CommittedOffset(Offset(5), None, note)}, {})
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    monkeypatch.setattr(GroupOffsets, "members_of_others", lambda *_, **__: [another(ELSEWHERE)])
    monkeypatch.setattr(GroupOffsets, "committed_offsets", lambda *_, **__: stored)
    monkeypatch.setattr(GroupOffsets, "missing_partitions", lambda *_: frozenset())
    return membership


def another(*partitions: TopicPartition, topics: frozenset[str] | None = None) -> GroupMember:
    """Return a member of another query that has these partitions, and subscribes to their topics if not said."""
    return GroupMember(
        member_id="two-1",
        instance_id=None,
        client_id="query-of-two",
        host="",
        assignment=frozenset(partitions),
        subscription=frozenset(tp.topic for tp in partitions) if topics is None else topics,
    )


LOGGED = BatchOffset("query-of-one", {MINE: entry(0, 3), ELSEWHERE: entry(0, 5)})


def test_a_replay_leaves_to_others_what_they_own(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    membership = joined(member, monkeypatch, by="another")
    stored: list[Markers] = []

    def store(_: object, markers: Markers) -> None:
        assert membership.state.batch is None, "durable before the batch runs"
        stored.append(markers)

    monkeypatch.setattr("pyspark_kafka_group.coordinator.membership.write_markers", store)
    assert membership.replay(LOGGED) == {MINE: OffsetRange(Offset(0), Offset(3))}
    assert stored == [membership.state.markers]
    assert membership.state.markers.keys() == {ELSEWHERE}


@pytest.mark.parametrize(("start", "read"), [(0, False), (5, True)], ids=["it has read a part", "it has read nothing"])
def test_range_that_nobody_can_get_is_left_to_the_group_if_another_query_has_read_of_it(
    member: Member, monkeypatch: pytest.MonkeyPatch, start: int, *, read: bool
) -> None:
    """Regression: the query read the range again, after it had unsubscribed the topic and the next owner had left."""
    membership = joined(member, monkeypatch, by="another")
    dropped = TopicPartition("dropped", 0)
    note = CommitNote("another", None, 8, Offset(0), "lineage").encode()
    stored = Answers({dropped: CommittedOffset(Offset(5), None, note)}, {})
    monkeypatch.setattr(GroupOffsets, "members_of_others", lambda *_, **__: [])
    monkeypatch.setattr(GroupOffsets, "committed_offsets", lambda *_, **__: stored)
    monkeypatch.setattr("pyspark_kafka_group.coordinator.membership.write_markers", lambda *_: None)
    end = BatchOffset("query-of-one", {MINE: entry(0, 3), dropped: entry(start, 9)})
    assert (dropped in (membership.replay(end) or {})) is read


def test_range_of_a_topic_that_another_query_subscribes_to_is_waited_for(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the query read the range, although its former owner still finished a batch of it."""
    membership = joined(member, monkeypatch, by="another")
    dropped = TopicPartition("dropped", 0)
    others = [another(topics=frozenset({"dropped"}))]
    monkeypatch.setattr(GroupOffsets, "members_of_others", lambda *_, **__: others)
    monkeypatch.setattr(GroupOffsets, "committed_offsets", lambda *_, **__: Answers({}, {}))
    end = BatchOffset("query-of-one", {MINE: entry(0, 3), dropped: entry(0, 9)})
    assert membership.replay(end) is None
    others[:] = [another(topics=frozenset({"orders"}))]
    assert dropped in (membership.replay(end) or {})


def test_range_of_a_topic_that_a_pattern_matches_is_waited_for(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the query read the range from the new topic of that name, before the group had assigned it."""
    membership = member("one", pattern="order.*|created")
    assert membership.wait_for_assignment(PATIENCE_S)
    monkeypatch.setattr(GroupOffsets, "missing_partitions", lambda *_: frozenset())
    end = BatchOffset("query-of-one", {TopicPartition("created", 0): entry(0, 3)})
    assert membership.replay(end) is None


def test_partitions_without_a_group_are_read_from_brokers_that_know_no_ends_of_leader_epochs(member: Member) -> None:
    """The mock cluster has such brokers.  In a group, its committed offsets show this earlier."""
    membership = member("one", assigned=(MINE,), commits=False)
    assert membership.wait_for_assignment(PATIENCE_S)
    assert membership.wait_until(lambda state: bool(state.plannable()), PATIENCE_S)
    assert membership.state.plannable().keys() == {MINE}


def test_a_partition_that_is_added_to_assign_is_read_from_its_beginning_also_with_a_group(member: Member) -> None:
    """Regression: it started at `latest`."""
    first, added = TopicPartition("orders", 0), TopicPartition("orders", 1)
    run = member("one", assigned=(first,))
    assert run.wait_for_assignment(PATIENCE_S)
    end = plan(run, 5)
    run.finish(end)
    assert run.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    run.begin_stop(5.0)
    run.join(10.0)
    run = member("one", start=end, assigned=(first, added), default=StartingOffset.LATEST)
    assert run.wait_for_assignment(PATIENCE_S)
    assert run.wait_until(lambda state: len(state.plannable()) == 2, PATIENCE_S)
    assert {tp: p.offset for tp, p in run.state.plannable().items()} == {first: 5, added: 0}


@pytest.mark.parametrize("keeps_offsets", [True, False])
def test_a_replay_with_assign_commits_no_markers(
    member: Member, monkeypatch: pytest.MonkeyPatch, keeps_offsets: bool
) -> None:
    """Otherwise a user without rights to a group could never restart the query."""
    membership = joined(member, monkeypatch, by="another")
    known = membership._settings
    given = replace(known, partitions=(MINE,), start=replace(known.start, keeps_offsets=keeps_offsets))
    monkeypatch.setattr(membership, "_settings", given)
    stored: list[Markers] = []
    monkeypatch.setattr(
        "pyspark_kafka_group.coordinator.membership.write_markers", lambda _, markers: stored.append(markers)
    )
    behind_the_log = BatchOffset("query-of-one", {MINE: entry(5, 8)})
    assert membership.replay(behind_the_log) == {}
    assert membership.state.markers.keys() == {MINE}
    assert [*map(set, stored)] == ([{MINE}] if keeps_offsets else [])


def test_what_was_left_to_others_is_not_finished_for_a_query_that_continues_with_assign(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: only a start in the group read the skip markers, so `assign` passed over such a range."""
    end = BatchOffset("query-of-one", {MINE: entry(10, 20)})
    markers = {MINE: (SkipMarker.of(end, MINE),)}
    monkeypatch.setattr("pyspark_kafka_group.coordinator.start_up.read_markers", lambda *_: markers)
    assert member("one", start=end, assigned=(MINE,)).state.processed[MINE].offset == 10

    def refuse(*_: object) -> Markers:
        raise AuthenticationError("not allowed")

    monkeypatch.setattr("pyspark_kafka_group.coordinator.start_up.read_markers", refuse)
    assert member("two", start=end, assigned=(MINE,)).state.processed[MINE].offset == 20


def test_a_replay_reads_what_this_query_has_committed_before_others_got_it(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = joined(member, monkeypatch, by="query-of-one")
    assert membership.replay(LOGGED) == LOGGED.ranges()
    assert membership.state.markers == {}


def test_an_empty_batch_runs_again_without_waiting_for_the_group(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it waited for a stable group, and could end the query with an AssignmentTimeoutError."""

    def refuse(*_: object, **__: object) -> None:
        raise TryAgainError("the group is rebalancing")

    monkeypatch.setattr(GroupOffsets, "members_of_others", refuse)
    monkeypatch.setattr(GroupOffsets, "partition_info", refuse)  # of the assignment, which may arrive before the replay
    start = BatchOffset("query-of-one", {MINE: entry(3, 3)})
    membership = member("one", start=start)
    assert membership.replay(replace(start, rewinds=1)) == {}


def test_a_replay_is_asked_for_again_while_the_group_is_rebalancing(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = joined(member, monkeypatch, by="another")

    def rebalancing(*_: object, **__: object) -> None:
        raise TryAgainError("the group is rebalancing")

    monkeypatch.setattr(GroupOffsets, "members_of_others", rebalancing)
    assert membership.replay(LOGGED) is None
    assert membership.state.batch is None


def test_a_replay_of_what_does_not_exist_any_more_ends_the_query(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = joined(member, monkeypatch, by="another")
    monkeypatch.setattr(GroupOffsets, "members_of_others", lambda *_, **__: [])
    monkeypatch.setattr(GroupOffsets, "missing_partitions", lambda *_: frozenset({ELSEWHERE}))
    assert membership.replay(LOGGED) is None  # a broker may not know it yet
    assert membership.replay(LOGGED) is None
    monkeypatch.setattr(membership._absence, "_limit_s", 0.0)
    with contextlib.suppress(DataLossError):  # the group thread may raise it first
        membership.replay(LOGGED)
    with pytest.raises(DataLossError, match="Topic deleted: orders"):
        membership.check()


def test_processed_offsets_of_topics_that_are_neither_subscribed_nor_there_are_forgotten(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = TopicPartition("gone", 0), TopicPartition("kept", 0)
    asked = []

    def missing(_: object, names: set[str]) -> frozenset[str]:
        asked.append(names)
        return frozenset({"gone"})

    monkeypatch.setattr(GroupOffsets, "missing_topics", missing)
    # For a missing topic, the mock refuses to answer, while Kafka answers that it has no offset.
    monkeypatch.setattr("pyspark_kafka_group.coordinator.start_up.read_markers", lambda *_: {})
    membership = member("one", start=BatchOffset("query-of-one", {gone: entry(0, 5), kept: entry(0, 5)}))
    assert membership.wait_until(lambda state: gone not in state.processed, PATIENCE_S)
    assert kept in membership.state.processed
    assert asked == [{"gone", "kept"}]


@pytest.mark.parametrize(
    ("state", "protocol"),
    [
        ("Stable", GroupProtocol.CLASSIC),
        ("PreparingRebalance", GroupProtocol.CLASSIC),
        ("Stable", GroupProtocol.CONSUMER),
        ("Assigning", GroupProtocol.CONSUMER),  # the member may have no target yet
    ],
)
def test_a_member_alone_has_settled_unless_its_group_rebalances(
    member: Member, monkeypatch: pytest.MonkeyPatch, state: str, protocol: GroupProtocol
) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    owned = frozenset(membership.state.owned)
    me = GroupMember(member_id=membership.member_id, instance_id=None, client_id="one", host="here", assignment=owned)
    group = GroupDescription(state=state, protocol=protocol, members=(me,))
    monkeypatch.setattr(GroupOffsets, "describe", lambda _: group)
    assert membership.is_stable(owned, owned) is (state == "Stable")
    assert not membership.is_stable(owned, {*owned, ELSEWHERE})


def test_a_partition_that_nobody_was_given_and_that_does_not_exist_ends_the_query(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a run with availableNow waited 330 s for a topic that was deleted before the group assigned it."""
    monkeypatch.setattr("pyspark_kafka_group.offsets.lasting.GONE_S", 0.0)
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    owned = frozenset(membership.state.owned)
    deleted = TopicPartition("deleted", 0)
    me = GroupMember(member_id=membership.member_id, instance_id=None, client_id="one", host="here", assignment=owned)
    group = GroupDescription(state="Stable", protocol=GroupProtocol.CONSUMER, members=(me,))
    monkeypatch.setattr(GroupOffsets, "describe", lambda _: group)
    monkeypatch.setattr(GroupOffsets, "missing_partitions", lambda _, asked: {*asked} & {deleted})
    assert not membership.is_stable(owned, {*owned, deleted})
    with pytest.raises(DataLossError, match="deleted"):
        membership.wait_until(lambda _: False, PATIENCE_S)


def test_a_group_that_cannot_be_described_has_not_settled(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)

    def nobody(_: object) -> None:
        raise TryAgainError("the coordinator does not answer")

    monkeypatch.setattr(GroupOffsets, "describe", nobody)
    assert not membership.is_stable(membership.state.owned, membership.state.owned)


def test_a_changed_log_is_decided_anew(member: Member) -> None:
    membership = member("one")
    assert membership.wait_for_assignment(PATIENCE_S)
    epoch = membership.state.owned[MINE].epoch
    membership.report_logs({inputs.LogChange.TRUNCATED: {MINE}}, {})
    assert membership.wait_for_assignment(PATIENCE_S)
    assert membership.state.owned[MINE].epoch > epoch


def test_a_partition_that_drains_is_released_when_its_batch_is_committed(member: Member) -> None:
    """The answer to the commit arrives during the revocation, which then need not wait for the deadline."""
    first = member("first")
    assert first.wait_for_assignment(PATIENCE_S)
    end = plan(first, 5)
    member("second")
    assert first.wait_until(lambda state: any(p.phase is Phase.DRAINING for p in state.owned.values()), PATIENCE_S)
    first.finish(end)
    assert first.wait_until(lambda state: len(state.owned) == 1, PATIENCE_S)
    assert first._group.emit.counts[events.Released.name] == 1
    assert first._group.emit.counts[events.Expired.name] == 0


def test_a_call_ends_if_the_group_thread_has_ended_without_a_reason() -> None:
    """Regression: it waited for ever."""
    ended = threading.Event()
    ended.set()
    thread: Any = SimpleNamespace(error=None, stopping=False, ended=ended, call=lambda _: Future())
    membership = Membership.__new__(Membership)
    membership.client_id = "c"
    membership._group = thread
    with pytest.raises(GroupError, match="has ended without a reason"):
        membership._call(lambda: None)
