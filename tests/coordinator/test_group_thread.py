"""The group thread with a real client, on librdkafka's mock cluster (KIP-848, plain commits: it keeps no others)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pyspark_kafka_group.coordinator import assignment as core
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.group_thread import GroupThread, StoppingError
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets import cluster
from pyspark_kafka_group.offsets.committer import TransactionalCommitter
from pyspark_kafka_group.offsets.document import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.errors import BrokerError, GroupError, OptionError, UnknownTopicError
from pyspark_kafka_group.offsets.start import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.testing import MockKafka

PATIENCE_S = 30.0
OFFSET_COMMIT = 8  # the request's api key
COORDINATOR_LOAD_IN_PROGRESS = 14

Member = Callable[..., GroupThread]


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
    """Yield a maker of started members, all of one group."""
    made: list[GroupThread] = []

    def make(
        name: str,
        *,
        start: BatchOffset = INITIAL,
        topics: tuple[str, ...] = ("orders",),
        commit_mode: CommitMode = CommitMode.PLAIN,
        pattern: str | None = None,
        default: StartingOffset = StartingOffset.EARLIEST,
        **properties: str,
    ) -> GroupThread:
        settings = GroupSettings(
            properties={"bootstrap.servers": kafka.bootstrap_servers, "group.protocol": "consumer", **properties},
            group_id="etl",
            topics=() if pattern else topics,
            pattern=pattern,
            commit_mode=commit_mode,
            drain_timeout_s=20.0,
            read_committed=True,
            start=StartPolicy(group_id="etl", default=default, explicit={}, fail_on_data_loss=True),
        )
        thread = GroupThread(
            settings,
            start=start,
            query_id=f"query-of-{name}",
            client_id=name,
            event_log=EventLog(name, str(tmp_path / f"{name}.jsonl")),
        )
        made.append(thread)
        thread.start()
        return thread

    yield make
    for thread in made:
        if thread.alive:
            thread.begin_stop(1.0)
            thread.join(10.0)


def plan(thread: GroupThread, count: int) -> BatchOffset:
    """Plan ``count`` records of each partition that may be planned."""
    ranges = {
        tp: (epoch, OffsetRange(position, Offset(position + count)))
        for tp, (epoch, position) in thread.state.plannable().items()
    }
    end = thread.plan(ranges, always=False)
    assert end is not None
    return end


def committed(thread: GroupThread) -> dict[int, int | None]:
    return {tp.partition: p.committed for tp, p in thread.state.owned.items()}


def test_a_member_joins_and_starts_every_partition_durably(member: Member) -> None:
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    assert thread.state.plannable().keys() == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert committed(thread) == {0: 0, 1: 0}


def test_who_waits_for_the_first_assignment_does_not_see_an_empty_one(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the first batch of a query was most often empty, and its rows came with the second."""
    step = core.step

    def slow(state: core.State, given: core.Input) -> tuple[core.State, tuple[core.Output, ...]]:
        if isinstance(given, core.Assign):
            time.sleep(0.2)
        return step(state, given)

    monkeypatch.setattr(core, "step", slow)
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    assert len(thread.state.plannable()) == 2


def test_a_finished_batch_is_committed_and_an_unfinished_one_is_not(member: Member) -> None:
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    end = plan(thread, 5)
    assert committed(thread) == {0: 0, 1: 0}
    thread.finish(end)
    assert thread.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    assert committed(thread) == {0: 5, 1: 5}


def test_asked_again_with_a_batch_in_flight_the_answer_is_its_end(member: Member) -> None:
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    end = plan(thread, 5)
    assert thread.plan({}, always=False) == end


def test_a_second_member_gets_its_partition_after_the_batch(member: Member) -> None:
    first = member("first")
    assert first.wait_for_assignment(PATIENCE_S)
    end = plan(first, 5)
    second = member("second")
    assert first.wait_until(lambda state: any(p.phase is core.Phase.DRAINING for p in state.owned.values()), PATIENCE_S)
    assert not second.state.owned, "the batch is still running"
    first.finish(end)
    assert second.wait_until(lambda state: len(state.plannable()) == 1, PATIENCE_S)
    ((_, position),) = second.state.plannable().values()
    assert position == 5
    assert len(first.state.owned) == 1


def test_a_member_that_stops_leaves_its_partitions_to_the_others(member: Member) -> None:
    first, second = member("first"), member("second")
    # Both: the mock forgets a partition that is on its way to a member that leaves.
    assert first.wait_until(lambda state: len(state.plannable()) == 1, PATIENCE_S)
    assert second.wait_until(lambda state: len(state.plannable()) == 1, PATIENCE_S)
    first.begin_stop(5.0)
    first.join(10.0)
    assert not first.alive
    assert second.wait_until(lambda state: len(state.plannable()) == 2, PATIENCE_S)


def test_a_wait_ends_when_the_member_is_told_to_stop(member: Member) -> None:
    thread = member("one")
    threading.Timer(0.3, thread.begin_stop, [1.0]).start()
    with pytest.raises(StoppingError):
        thread.wait_until(lambda _: False, PATIENCE_S)


def test_commands_after_the_end_do_not_hang(member: Member) -> None:
    thread = member("one")
    thread.begin_stop(1.0)
    thread.join(10.0)
    with pytest.raises(StoppingError):
        thread.finish(INITIAL)


def test_a_drain_waits_for_the_batch_and_says_whether_it_was_finished(member: Member) -> None:
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    end = plan(thread, 5)
    assert not thread.drain(0.3), "the batch is still running"
    assert not thread.state.plannable()
    thread.finish(end)
    assert thread.drain(PATIENCE_S)
    assert not thread.alive


def test_a_drain_that_is_overtaken_by_a_stop_was_no_drain(member: Member) -> None:
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    plan(thread, 5)
    threading.Timer(0.3, thread.begin_stop, [0.1]).start()
    assert not thread.drain(PATIENCE_S)


def test_a_broker_that_does_not_know_a_partition_yet_is_asked_again(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its committed offset would look like none: the partition would start at `startingOffsets`, and lose records."""
    first = member("first")
    assert first.wait_for_assignment(PATIENCE_S)
    first.finish(plan(first, 5))
    assert first.drain(PATIENCE_S)
    known = cluster.GroupOffsets.partition_count
    stale = [1, 1, 1]
    monkeypatch.setattr(
        cluster.GroupOffsets, "partition_count", lambda *a, **k: stale.pop() if stale else known(*a, **k)
    )
    second = member("second")
    assert second.wait_for_assignment(PATIENCE_S)
    assert {position for _, position in second.state.plannable().values()} == {5}
    assert not stale


def test_an_unexpected_error_while_asking_where_to_start_ends_the_query(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not swallowed by the thread that asks, with the partition never read."""

    def broken(*_: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "metadata of another program")

    monkeypatch.setattr(cluster.GroupOffsets, "facts", broken)
    thread = member("one")
    with pytest.raises(GroupError, match="Asking where partitions start failed"):
        thread.wait_for_assignment(PATIENCE_S)


def test_a_refused_commit_is_tried_again(kafka: MockKafka, member: Member) -> None:
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    kafka.push_errors(OFFSET_COMMIT, *[COORDINATOR_LOAD_IN_PROGRESS] * 3)
    thread.finish(plan(thread, 5))
    assert thread.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    assert committed(thread) == {0: 5, 1: 5}


def test_an_unreachable_cluster_is_named_in_bounded_time(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT_S", 2.0)
    begin = time.monotonic()
    with pytest.raises(BrokerError, match=r"no broker of '127\.0\.0\.1:1' answered"):
        member("one", **{"bootstrap.servers": "127.0.0.1:1"})
    assert time.monotonic() - begin < 15


def test_a_topic_that_does_not_exist_is_named(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_NEW_TOPIC_PATIENCE_S", 0.5)
    monkeypatch.setattr(cluster.GroupOffsets, "partition_count", lambda *_, **__: 0)  # the mock creates any topic
    with pytest.raises(UnknownTopicError, match="topic not found: missing"):
        member("one", topics=("missing",))


def test_a_pattern_that_no_topic_matches_is_named(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_NEW_TOPIC_PATIENCE_S", 0.5)
    with pytest.raises(UnknownTopicError, match=r"Option 'subscribePattern': no topic matches 'rder.*'"):
        member("one", pattern="rder.*")


def test_topics_that_match_later_are_read_from_their_beginning(kafka: MockKafka, member: Member) -> None:
    """Also with startingOffsets=latest, which is for what was there when the query was started.

    Not with the classic protocol: the mock never answers a stable member that joins again.
    """
    kafka.create_topic("first", 1)
    kafka.create_topic("not-first", 1)
    produce(kafka, "first", 3)
    refresh = {"topic.metadata.refresh.interval.ms": "200"}
    thread = member("one", pattern="first.*", default=StartingOffset.LATEST, **refresh)
    assert thread.wait_for_assignment(PATIENCE_S)
    assert {tp.topic: p.position for tp, p in thread.state.owned.items()} == {"first": 3}
    kafka.create_topic("first-later", 1)
    produce(kafka, "first-later", 5)
    assert thread.wait_until(lambda state: len(state.plannable()) == 2, PATIENCE_S)
    assert {tp.topic: p.position for tp, p in thread.state.owned.items()} == {"first": 3, "first-later": 0}


def test_a_property_that_the_client_does_not_know_is_named(member: Member) -> None:
    with pytest.raises(OptionError, match=r"Option 'kafka\.socket\.nonsense': the Kafka client refuses it"):
        member("one", **{"socket.nonsense": "1"})


def test_who_says_that_a_batch_is_finished_does_not_wait_for_its_commit(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = member("one")
    assert thread.wait_for_assignment(PATIENCE_S)
    end = plan(thread, 5)
    sent, answer = threading.Event(), threading.Event()

    def commit(self: object, offsets: object) -> None:
        sent.set()
        assert answer.wait(PATIENCE_S)

    monkeypatch.setattr("pyspark_kafka_group.coordinator.member.Member.commit", commit)
    thread.finish(end)
    assert thread.state.batch is None
    assert sent.wait(PATIENCE_S)
    assert committed(thread) == {0: 0, 1: 0}
    answer.set()
    assert thread.wait_until(lambda state: not state.uncommitted, PATIENCE_S)


def test_the_next_batch_is_planned_while_a_transaction_is_committed(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = member("one", commit_mode=CommitMode.TRANSACTION)
    assert thread.wait_for_assignment(PATIENCE_S)
    sent, answer = threading.Event(), threading.Event()

    def commit(self: object, offsets: object, group_metadata: object) -> None:
        sent.set()
        assert answer.wait(PATIENCE_S)

    monkeypatch.setattr(TransactionalCommitter, "commit", commit)
    thread.finish(plan(thread, 5))
    assert sent.wait(PATIENCE_S)
    plan(thread, 5)
    assert committed(thread) == {0: 0, 1: 0}
    answer.set()
    assert thread.wait_until(lambda state: not state.uncommitted, PATIENCE_S)
    assert committed(thread) == {0: 5, 1: 5}
