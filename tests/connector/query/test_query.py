"""Drive a query as Spark's runner does, with JSON, on librdkafka's mock cluster (which has no topic ids)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.control.client import ask_for_report, ask_to_stop
from pyspark_kafka_group.coordinator.handover.inputs import Lose
from pyspark_kafka_group.coordinator.handover.lifecycle import Lifecycle
from pyspark_kafka_group.coordinator.member import Member, Standing
from pyspark_kafka_group.coordinator.membership import Membership, StoppingError
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.errors import AssignmentTimeoutError, AuthenticationError, ConfigurationError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query import query as query_module
from pyspark_kafka_group.query import stream_planner
from pyspark_kafka_group.query.query import Query
from pyspark_kafka_group.query.second_source import SourceCheck
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.wire.deadline import Deadline

PATIENCE_S = 30.0

Produce = Callable[[int], None]


OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.group.id": "etl",
    "kafka.group.protocol": "consumer",
    "subscribe": "orders",
    "startingOffsets": "earliest",
    "commitMode": "plain",
}


def not_decided(*_: object, **__: object) -> frozenset[TopicPartition]:
    """Answer as a group does that rebalances."""
    raise TryAgainError("the group rebalances")


class Spark:
    """Calls the query as Spark's runner does, with JSON text."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.offset = json.dumps(INITIAL.to_json())

    def poll(self) -> bool:
        """Ask for the next batch, and return whether there is one."""
        start = json.loads(self.offset)
        answer = self.query.latest_offset(start, None)
        if answer is start:
            return False
        self.logged, self.offset = self.offset, json.dumps(answer)
        assert self.offset != self.logged, "Spark would not see that this is a new batch"
        return True

    def ranges(self) -> dict[int, str]:
        """Return the ranges of the batch."""
        running = self.query.running_ranges(json.loads(self.logged), json.loads(self.offset))
        return {tp.partition: str(r) for tp, r in running.items()}

    def commit(self, offset: str) -> None:
        self.query.finish(json.loads(offset))

    def wait_for_batch(self) -> dict[int, str]:
        deadline = time.monotonic() + PATIENCE_S
        while not self.poll():
            assert time.monotonic() < deadline, "nothing was planned"
        return self.ranges()


def wait_until_committed(query: Query) -> None:
    assert query._group is not None
    assert query._group.wait_until(lambda state: not state.uncommitted, PATIENCE_S)


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        mock.create_topic("orders", 2)
        yield mock


@pytest.fixture
def produce(kafka: MockKafka) -> Produce:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def produce(partition: int) -> None:
        producer.produce("orders", b"x", partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    return produce


def made(options: Mapping[str, str]) -> Query:
    settings = parse(options)
    return Query(settings, SourceCheck(settings, time.monotonic()))


@pytest.fixture
def spark(kafka: MockKafka) -> Iterator[Spark]:
    options = {
        **OPTIONS,
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
    }
    query = made(options)
    yield Spark(query)
    query.stop()


def test_batches_follow_each_other_without_a_gap(spark: Spark, produce: Produce) -> None:
    produce(0)
    assert spark.wait_for_batch() == {0: "[0, 1)"}
    produce(0)
    produce(1)
    assert spark.wait_for_batch() == {0: "[1, 2)", 1: "[0, 1)"}


def test_only_the_batch_that_runs_has_records(spark: Spark, produce: Produce) -> None:
    """Spark asks for those of an earlier one if a DataFrame of foreachBatch is used after its function has returned."""
    start = json.loads(spark.offset)
    produce(0)
    spark.wait_for_batch()
    first = json.loads(spark.offset)
    produce(0)
    spark.wait_for_batch()
    with pytest.raises(ConfigurationError, match="a batch that is not running"):
        spark.query.running_ranges(start, first)


def test_what_a_batch_says_of_its_partitions_stays_when_they_have_left(spark: Spark, produce: Produce) -> None:
    """Regression: an offset table ended the query, because the batch had lost the finished offsets before it."""
    produce(0)
    spark.wait_for_batch()
    before = spark.query._batch_report(json.loads(spark.offset))
    assert before is not None
    assert {fields[-1] for partitions in before.values() for fields in partitions.values()} == {"etl"}
    group = spark.query._group
    assert group is not None
    group._group.call(lambda: group._group.feed(Lose(tuple(group.state.owned)))).result(PATIENCE_S)
    assert not group.state.owned
    spark.ranges()
    assert spark.query._batch_report(json.loads(spark.offset)) == before
    assert spark.query._batch_report(json.loads(spark.logged)) is None, "of another batch"


def test_a_query_with_offsets_of_its_own_names_no_group(kafka: MockKafka, produce: Produce) -> None:
    """Otherwise an offset table would take its rows for those of a group with this name."""
    assigned = {**OPTIONS, "assign": '{"orders": [0, 1]}', "kafka.bootstrap.servers": kafka.bootstrap_servers}
    spark = Spark(
        made({name: value for name, value in assigned.items() if name not in ("subscribe", "kafka.group.id")})
    )
    produce(0)
    spark.wait_for_batch()
    report = spark.query._batch_report(json.loads(spark.offset))
    spark.query.stop()
    assert report is not None
    assert {fields[-1] for partitions in report.values() for fields in partitions.values()} == {None}


def test_a_query_that_nobody_stops_after_its_member_has_left_fails(
    spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a client of Spark Connect died before it stopped the query, which then idled for ever."""
    monkeypatch.setattr(query_module, "_ABANDONED_S", 0.5)
    produce(0)
    spark.wait_for_batch()
    spark.commit(spark.offset)
    report = spark.query.report()
    assert report is not None
    assert ask_to_stop(report["control"], Deadline.after(2))
    assert not spark.poll(), "its caller is about to stop it"
    time.sleep(0.6)
    assert not spark.poll(), "its caller may still wait for another source of the query"
    time.sleep(2)
    with pytest.raises(StoppingError, match="but did not stop the query"):
        spark.poll()


def test_a_query_that_stop_lets_leave_while_it_replays_does_not_run_its_batch(
    spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: stop() returned True, then Spark ran the batch, and the next owner read the same records."""
    monkeypatch.setattr(query_module, "_ABANDONED_S", 0.5)
    monkeypatch.setattr(GroupOffsets, "members_of_others", not_decided)
    produce(0)
    spark.wait_for_batch()
    spark.query.stop()  # like a killed process, it has not finished the batch
    restarted = made(
        {**OPTIONS, "kafka.bootstrap.servers": spark.query._settings.group.properties["bootstrap.servers"]}
    )
    answers: list[object] = []

    def replay() -> None:
        try:
            answers.append(restarted.running_ranges(json.loads(spark.logged), json.loads(spark.offset)))
        except StoppingError as problem:
            answers.append(problem)

    call = threading.Thread(target=replay)
    call.start()
    try:
        deadline = Deadline.after(PATIENCE_S)
        while (report := restarted.report()) is None or not report["control"]:
            assert not deadline.passed
            time.sleep(0.05)
        assert ask_to_stop(report["control"], Deadline.after(6))
        call.join(0.3)
        assert not answers, "its caller is about to stop it"
        call.join(2 * PATIENCE_S)  # its caller has 6 s, and some more
        (answer,) = answers
        assert isinstance(answer, StoppingError)
        assert "but did not stop the query" in str(answer)
    finally:
        restarted.stop()


def test_a_replay_that_cannot_be_decided_names_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: "the group has not decided", although a partition had no leader."""
    monkeypatch.setattr(query_module, "_REPLAY_MARGIN_S", 0.0)
    query = made(OPTIONS)
    group = replace(query._settings.group, session_timeout_s=0.0, drain_timeout_s=0.0)
    monkeypatch.setattr(query, "_settings", replace(query._settings, group=group))
    member: Any = SimpleNamespace(
        replay=lambda _: None, replay_waits_for="orders-0: it has no leader", wait_until=lambda *_: False
    )
    with pytest.raises(AssignmentTimeoutError, match=r"The last reason: orders-0: it has no leader\. Correct this"):
        query._replay(member, BatchOffset("q"))
    member.replay_waits_for = ""
    with pytest.raises(AssignmentTimeoutError, match="has not decided who owns"):
        query._replay(member, BatchOffset("q"))
    query.stop()


def test_an_empty_first_batch_names_the_topics_that_exist(
    spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after a restart, a query with subscribePattern and `latest` read the whole history."""
    monkeypatch.setattr(stream_planner, "_JOIN_PATIENCE_S", 0.0)
    poll, answers = Member.poll, threading.Event()  # the group takes long: not even a slow test is slower
    monkeypatch.setattr(Member, "poll", lambda member: poll(member) if answers.is_set() else time.sleep(0.01))
    produce(0)
    assert spark.poll()
    answers.set()
    offset = json.loads(spark.offset)
    assert offset["topics"] == {}
    assert offset["first"] == ["orders"]
    spark.commit(spark.offset)
    assert spark.wait_for_batch() == {0: "[0, 1)"}
    assert "first" not in json.loads(spark.offset), "all of them have started"


def test_a_batch_that_is_not_running_has_no_ranges(spark: Spark, produce: Produce) -> None:
    """Regression: a DataFrame of foreachBatch that was used after its function read its records once more."""
    produce(0)
    spark.wait_for_batch()
    old = spark.logged, spark.offset
    assert spark.ranges() == {0: "[0, 1)"}, "Spark may ask again while the batch runs"
    spark.commit(spark.offset)
    with pytest.raises(ConfigurationError, match="of a batch that is not running"):
        spark.query.running_ranges(json.loads(old[0]), json.loads(old[1]))


def test_a_signal_to_a_run_that_ends_by_itself_does_not_look_like_its_end(spark: Spark, produce: Produce) -> None:
    """Regression: SIGTERM to the source process ended a run with availableNow as a success, with unread records."""
    produce(0)
    spark.query.fix_target()
    spark.wait_for_batch()
    spark.commit(spark.offset)
    threading.Timer(0.3, spark.query.interrupt).start()  # the mock cluster never says that the group has settled
    with pytest.raises(StoppingError, match="A signal"):
        spark.poll()


def test_an_idle_call_gives_the_start_back_and_lasts_no_longer_than_promised(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_planner, "_CALL_S", 0.05)
    spark.wait_for_batch()
    begin = time.monotonic()
    assert not spark.poll()
    assert not spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2


def test_a_record_ends_a_call_that_waits(spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_planner, "_CALL_S", PATIENCE_S)
    assert spark.wait_for_batch() == {}, "batch 0 runs in any case"
    threading.Timer(0.3, produce, [0]).start()
    begin = time.monotonic()
    assert spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2
    assert spark.ranges() == {0: "[0, 1)"}


def test_the_process_can_be_stopped_while_a_call_waits(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.wait_for_batch()
    monkeypatch.setattr(stream_planner, "_CALL_S", PATIENCE_S)
    threading.Timer(0.3, spark.query.interrupt).start()
    begin = time.monotonic()
    assert not spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_signal_that_comes_while_the_group_thread_starts_lets_the_member_leave(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Regression: an exception interrupted the start of a thread that was about to join, and the query lost it."""
    start = threading.Thread.start
    interrupted: list[bool] = []

    def interrupted_start(thread: threading.Thread) -> None:
        if thread.name != "kafka-group":
            start(thread)
            return
        with monkeypatch.context() as patched:
            if when == "after":
                start(thread)
                patched.setattr(thread, "is_alive", lambda: False)  # until the starting thread sees it
            interrupted.append(spark.query.interrupt())
        if when == "before":
            start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    assert not spark.poll()
    spark.query.stop()
    assert interrupted == [True]
    assert spark.query._group is not None
    assert spark.query._group.state.lifecycle is Lifecycle.LEFT


def others(*client_ids: str) -> Callable[[GroupOffsets], GroupDescription]:
    """Return a group whose members have a partition of the topic.  The mock cluster cannot describe groups."""
    members = tuple(
        GroupMember(
            member_id=name,
            instance_id=None,
            client_id=name,
            host="",
            assignment=frozenset({TopicPartition("orders", 0)}),
        )
        for name in client_ids
    )
    return lambda _: GroupDescription(state="Stable", protocol=GroupProtocol.CONSUMER, members=members)


def test_a_query_joins_after_an_empty_batch_if_others_read_its_topics(
    spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(0)
    monkeypatch.setattr(GroupOffsets, "describe", others("one"))
    committed = {TopicPartition("orders", n): CommittedOffset(Offset(0), None, "") for n in (0, 1)}
    monkeypatch.setattr(GroupOffsets, "committed_offsets", lambda *_, **__: Answers(committed, {}))
    assert spark.poll()
    assert spark.ranges() == {}
    assert spark.query.warming_tasks == 1
    assert spark.query._group is not None
    assert spark.query._group._group.standing is Standing.WARMING
    assert spark.wait_for_batch() == {0: "[0, 1)"}
    assert spark.query.warming_tasks == 0
    assert spark.query._event_log.counts["warming"] == 1


def offset_log(checkpoint: Path, *begins_s: float) -> None:
    """Write the parts of an offset log that the rule reads: the time at which each batch began."""
    (checkpoint / "offsets").mkdir(parents=True)
    for number, begin_s in enumerate(begins_s):
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int(begin_s * 1000), "conf": {}})
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{metadata}\n{{}}")


@pytest.mark.parametrize(("begins_s", "warms_up"), [((0, 60, 180), False), ((0, 60, 65), True), ((0,), True)])
def test_a_restart_does_not_warm_up_if_that_would_cost_a_long_trigger(
    spark: Spark,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    begins_s: tuple[float, ...],
    warms_up: bool,
) -> None:
    """Regression: with a trigger of an hour, each query that started beside other members read nothing for an hour."""
    produce(0)
    monkeypatch.setattr(GroupOffsets, "describe", others("one"))
    known = {TopicPartition("orders", n): CommittedOffset(Offset(0), None, "") for n in (0, 1)}
    monkeypatch.setattr(GroupOffsets, "committed_offsets", lambda *_, **__: Answers(known, {}))
    offset_log(tmp_path / "checkpoint", *begins_s)
    settings = replace(spark.query._settings, checkpoint=tmp_path / "checkpoint")
    monkeypatch.setattr(spark.query, "_settings", settings)
    assert spark.poll()
    assert (spark.query.warming_tasks > 0) == warms_up
    assert spark.ranges() == ({} if warms_up else {0: "[0, 1)"})


def test_a_warm_up_that_has_cost_a_long_trigger_is_reported(
    spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    produce(0)
    monkeypatch.setattr(GroupOffsets, "describe", others("one"))
    known = {TopicPartition("orders", n): CommittedOffset(Offset(0), None, "") for n in (0, 1)}
    monkeypatch.setattr(GroupOffsets, "committed_offsets", lambda *_, **__: Answers(known, {}))
    assert spark.poll()
    spark.query._warm_up_began -= 3600
    assert spark.wait_for_batch() == {0: "[0, 1)"}
    assert "joins its group only with this trigger, 36" in caplog.text
    assert "set the option warmUp to false" in caplog.text


@pytest.mark.parametrize("why", ["alone", "undecided", "unknown", "refused", "off", "availableNow"])
def test_a_query_that_has_nothing_to_wait_for_joins_at_once(
    spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """``undecided``: the query decides where a partition starts.  `latest` must not be later than its first batch."""
    produce(0)

    def unknown(_: GroupOffsets) -> GroupDescription:
        raise TryAgainError("nobody knows")

    def refused(_: GroupOffsets) -> GroupDescription:
        raise AuthenticationError("the right to describe the group is missing")

    describe = {"alone": others(), "unknown": unknown, "refused": refused}.get(why, others("one"))
    monkeypatch.setattr(GroupOffsets, "describe", describe)
    partitions = (0,) if why == "undecided" else (0, 1)
    known = {TopicPartition("orders", n): CommittedOffset(Offset(0), None, "") for n in partitions}
    monkeypatch.setattr(GroupOffsets, "committed_offsets", lambda *_, **__: Answers(known, {}))
    if why == "availableNow":
        spark.query.fix_target()
    if why == "off":
        spark.query._settings = replace(spark.query._settings, warm_up=False)
    assert spark.poll()
    assert spark.ranges() == {0: "[0, 1)"}
    assert spark.query.warming_tasks == 0


def test_calls_are_short_while_the_query_runs_batches_of_its_other_sources(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the other sources would wait for this one, which has nothing to read."""
    spark.wait_for_batch()
    assert not spark.poll()
    monkeypatch.setattr(stream_planner, "_CALL_S", PATIENCE_S)
    spark.commit(spark.offset)  # Spark commits to every source whenever a batch begins
    begin = time.monotonic()
    assert not spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2


def test_the_commit_of_our_own_last_batch_does_not_make_calls_short(
    spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(0)
    spark.wait_for_batch()
    before = spark.offset
    produce(0)
    spark.wait_for_batch()
    spark.commit(before)
    monkeypatch.setattr(stream_planner, "_SHORT_CALL_S", PATIENCE_S)
    monkeypatch.setattr(stream_planner, "_CALL_S", 0.05)
    begin = time.monotonic()
    assert not spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2


def test_there_is_no_report_while_the_query_asks_where_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: another thread that asked for the report then got an AssertionError."""
    query = made(OPTIONS)
    reports: list[object] = []

    def start_up(*_args: object, **_options: object) -> Membership:
        reports.append(query.report())
        raise TryAgainError("no broker answers")

    monkeypatch.setattr(query_module, "start_up", start_up)
    with pytest.raises(TryAgainError):
        query.latest_offset(INITIAL.to_json(), None)
    assert reports == [None]
    query.stop()


def test_the_report_of_an_idle_query_is_not_made_anew(spark: Spark, produce: Produce) -> None:
    def made(report: dict[str, Any] | None) -> Any:
        assert report is not None
        return report["logEnd"]

    produce(0)
    spark.wait_for_batch()
    assert not spark.poll()
    wait_until_committed(spark.query)
    first = spark.query.report()
    assert not spark.poll()
    assert made(spark.query.report()) is made(first)
    produce(0)
    assert spark.poll()
    assert made(spark.query.report()) is not made(first)
    assert made(spark.query.report())["orders"]["0"] == 2


def test_the_source_process_says_what_is_so_now(spark: Spark, produce: Produce) -> None:
    """Spark's progress keeps the values from before the batch.  On an idle topic no newer progress follows."""
    produce(0)
    spark.wait_for_batch()
    before = spark.query.report()
    assert before is not None
    assert before["totalLag"] == 1
    assert not spark.poll(), "the batch is finished"
    wait_until_committed(spark.query)
    now = ask_for_report(before["control"])
    assert now is not None
    assert now["totalLag"] == 0
    assert now.keys() == before.keys()
    assert now["committedAt"] >= now["assignedAt"]
    assert now["commitAgeMs"] < 1000 * PATIENCE_S
    assert now["moved"] == {"assigned": 2}
    assert now["ownershipEpoch"] == 1
    assert sum(now["timeMs"].values()) > 0
    assert time.time() - now["logEndAt"] < PATIENCE_S


def test_the_event_log_has_the_lag_whenever_it_has_changed(
    kafka: MockKafka, produce: Produce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_kafka_group.query.query._LAG_PAUSE_S", 0.0)
    log = tmp_path / "events.jsonl"
    options = {**OPTIONS, "kafka.bootstrap.servers": kafka.bootstrap_servers, "eventLog": str(log)}
    query = made(options)
    try:
        spark = Spark(query)
        produce(0)
        spark.wait_for_batch()
        assert not spark.poll()
        wait_until_committed(query)
        assert not spark.poll()
        assert not spark.poll()
    finally:
        query.stop()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    lags = [event["topics"].get("orders", 0) for event in events if event["event"] == "lag"]
    assert lags[-1] == 0
    assert 1 in lags
    assert all(one != other for one, other in pairwise(lags)), "only changes"
