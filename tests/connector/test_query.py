"""A query as Spark's runner drives it, JSON in and JSON out, on librdkafka's mock cluster (which has no topic ids)."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from pyspark_kafka_group import query as query_module
from pyspark_kafka_group.coordinator.handover.inputs import LogChange, PlannedRange
from pyspark_kafka_group.coordinator.handover.state import Batch, Partition, State
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.log_inspection import Changes
from pyspark_kafka_group.offsets.document import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.errors import AssignmentTimeoutError, NoPartitionsError
from pyspark_kafka_group.offsets.start import Mark, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.options import parse
from pyspark_kafka_group.query import Query
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.watch import LogWatch

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


class Spark:
    """Calls the query like Spark's runner, through JSON text."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.offset = json.dumps(INITIAL.to_json())

    def poll(self) -> bool:
        """Ask for the next batch; tell whether there is one."""
        start = json.loads(self.offset)
        answer = self.query.latest_offset(start, None)
        if answer is start:
            return False
        self.logged, self.offset = self.offset, json.dumps(answer)
        assert self.offset != self.logged, "Spark would not see that this is a new batch"
        return True

    def ranges(self) -> dict[int, str]:
        """Return what the batch reads."""
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


@pytest.fixture
def spark(kafka: MockKafka) -> Iterator[Spark]:
    options = {
        **OPTIONS,
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
    }
    thresholds = gc.get_threshold()
    query = Query(parse(options))
    yield Spark(query)
    query.stop()
    gc.set_threshold(*thresholds)


def test_batches_follow_each_other_without_a_gap(spark: Spark, produce: Produce) -> None:
    produce(0)
    assert spark.wait_for_batch() == {0: "[0, 1)"}
    produce(0)
    produce(1)
    assert spark.wait_for_batch() == {0: "[1, 2)", 1: "[0, 1)"}


def test_an_idle_call_gives_the_start_back_and_lasts_no_longer_than_promised(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "_CALL_S", 0.05)
    spark.wait_for_batch()
    begin = time.monotonic()
    assert not spark.poll()
    assert not spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2


def test_a_record_ends_a_call_that_waits(spark: Spark, produce: Produce, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_module, "_CALL_S", PATIENCE_S)
    assert spark.wait_for_batch() == {}, "batch 0 runs in any case"
    threading.Timer(0.3, produce, [0]).start()
    begin = time.monotonic()
    assert spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2
    assert spark.ranges() == {0: "[0, 1)"}


def test_the_process_can_be_stopped_while_a_call_waits(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.wait_for_batch()
    monkeypatch.setattr(query_module, "_CALL_S", PATIENCE_S)
    threading.Timer(0.3, spark.query.interrupt).start()
    begin = time.monotonic()
    assert not spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2


def test_calls_are_short_while_the_query_runs_batches_of_its_other_sources(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wait for this source, which has nothing."""
    spark.wait_for_batch()
    assert not spark.poll()
    monkeypatch.setattr(query_module, "_CALL_S", PATIENCE_S)
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
    monkeypatch.setattr(query_module, "_SHORT_CALL_S", PATIENCE_S)
    monkeypatch.setattr(query_module, "_CALL_S", 0.05)
    begin = time.monotonic()
    assert not spark.poll()
    assert time.monotonic() - begin < PATIENCE_S / 2


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


def test_plans_do_not_set_off_the_search_for_cyclic_garbage(spark: Spark, produce: Produce) -> None:
    """A plan for 10,000 partitions would be searched a hundred times while it is made."""
    spark.wait_for_batch()
    gc.collect()
    before = gc.get_stats()
    kept = [[] for _ in range(20_000)]  # type: ignore[var-annotated]  # what they hold does not matter
    assert gc.get_stats() == before
    assert len(kept) == 20_000


# -- availableNow, with a group and logs that do what the test says

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
END = BatchOffset("q")
POLICY = StartPolicy(group_id="etl", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True)


class FakeGroup:
    """A membership whose state is what the test makes it; time passes only where the query waits."""

    def __init__(self, now: SimpleNamespace) -> None:
        self.now = now
        self.state = State(policy=POLICY, query_id="q")
        self.settled = True
        self.answers = True
        self.assigned_later: list[dict[TopicPartition, int]] = []
        self.assigned_while_asked: dict[TopicPartition, int] | None = None
        self.asked_settled: list[set[TopicPartition]] = []
        self.planned: list[dict[TopicPartition, str]] = []
        self.changed: list[tuple[set[TopicPartition], LogChange]] = []

    def own(self, positions: Mapping[TopicPartition, int]) -> None:
        owned = {
            tp: Partition(Phase.ACTIVE, OwnershipEpoch(1), Offset(at), finished=Offset(at), committed=Offset(at))
            for tp, at in positions.items()
        }
        self.state = replace(self.state, owned=owned, last_epoch=OwnershipEpoch(1))

    def wait_for_assignment(self, timeout_s: float) -> bool:
        if not self.answers:
            self.now.s += timeout_s
        return self.answers

    def wait_until(self, condition: Callable[[State], bool], timeout_s: float) -> bool:
        if condition(self.state):
            return True
        self.now.s += timeout_s
        if self.assigned_later:
            self.own(self.assigned_later.pop(0))
        return condition(self.state)

    def is_settled(self, owned: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> bool:
        """Answer as the group does: for what this member has by the end of the question."""
        self.asked_settled.append(set(partitions))
        if self.assigned_while_asked is not None:
            self.own(self.assigned_while_asked)
            self.assigned_while_asked = None
        return self.settled and not self.assigned_later and set(owned) == self.state.owned.keys()

    def plan(self, ranges: Mapping[TopicPartition, PlannedRange], *, always: bool) -> BatchOffset | None:
        self.planned.append({tp: str(planned.range) for tp, planned in ranges.items()})
        self.state = replace(self.state, batch=Batch(end=END, running={}, epochs={}))
        return END

    def change_logs(self, partitions: Collection[TopicPartition], change: LogChange) -> None:
        """Decide at once: what was created again is read from its beginning, what was deleted not at all."""
        self.changed.append((set(partitions), change))
        kept = {tp: p.position or 0 for tp, p in self.state.owned.items() if tp not in partitions}
        self.own(kept if change is LogChange.DELETED else kept | dict.fromkeys(partitions, 0))


class FakeWatch:
    """Logs that end where the test says; changes are told once."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, Offset] = {}
        self.changes: list[Changes] = []
        self.leader_epochs: dict[TopicPartition, int] = {}

    def look(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return {tp: end for tp, end in self.ends.items() if tp in partitions}

    strange = False

    def inspect(self, plannable: object, *, news: bool) -> Changes:
        assert news, "the end of a run is as final as a batch"
        return self.changes.pop(0) if self.changes else Changes()

    def close(self) -> None: ...


class Run:
    """A run with availableNow."""

    def __init__(self, target: dict[TopicPartition, int], now: SimpleNamespace) -> None:
        self.query = Query(parse(OPTIONS))
        self.target = {tp: Offset(end) for tp, end in target.items()}
        self.group = FakeGroup(now)
        self.watch = FakeWatch()
        self.watch.ends = {tp: Offset(end + 50) for tp, end in target.items()}  # more has come since
        self.query._watch.close()
        self.query._watch = cast(LogWatch, self.watch)

    def plan(self, *, always: bool = False) -> BatchOffset | None:
        return self.query._plan_to(self.target, cast(Membership, self.group), None, always=always)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that the query sees."""
    made = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(query_module, "time", SimpleNamespace(monotonic=lambda: made.s))
    return made


@pytest.fixture
def run(now: SimpleNamespace) -> Run:
    return Run({A: 10, B: 20}, now)


def test_a_run_reads_up_to_the_ends_of_its_beginning(run: Run) -> None:
    run.group.own({A: 3, B: 20})
    assert run.plan() is END
    assert run.group.planned == [{A: "[3, 10)"}]
    assert run.group.asked_settled == [], "who has something to read goes on"


def test_a_run_ends_when_its_share_is_read_and_the_group_has_settled(run: Run) -> None:
    run.group.own({A: 10})
    assert run.plan() is None
    assert run.group.planned == []
    assert run.group.asked_settled == [{A, B}]


def test_an_empty_first_assignment_is_not_taken_for_nothing_to_read(run: Run) -> None:
    """Cooperative joins begin with one."""
    run.group.assigned_later = [{}, {}, {A: 0, B: 0}]
    assert run.plan() is END
    assert run.group.planned == [{A: "[0, 10)", B: "[0, 20)"}]


def test_a_run_that_has_read_its_share_waits_for_what_others_give_back(run: Run) -> None:
    run.group.own({A: 10})
    run.group.assigned_later = [{A: 10}, {A: 10, B: 5}]
    assert run.plan() is END
    assert run.group.planned == [{B: "[5, 20)"}]


@pytest.mark.parametrize("always", [False, True])
def test_first_partitions_that_come_while_the_group_is_asked_are_read(run: Run, always: bool) -> None:
    """The group answers for them, while the query has looked at nothing yet."""
    run.group.assigned_while_asked = {A: 0, B: 5}
    assert run.plan(always=always) is END
    assert run.group.planned == [{A: "[0, 10)", B: "[5, 20)"}]


def test_partitions_that_are_added_while_the_group_is_asked_are_read(run: Run) -> None:
    run.group.own({A: 10})
    run.group.assigned_while_asked = {A: 10, B: 5}
    assert run.plan() is END
    assert run.group.planned == [{B: "[5, 20)"}]


def test_batch_0_of_an_empty_first_assignment_waits_as_well(run: Run) -> None:
    run.group.assigned_later = [{}, {A: 0}]
    assert run.plan(always=True) is END
    assert run.group.planned == [{A: "[0, 10)"}]


def test_batch_0_runs_though_there_is_nothing_to_read(run: Run) -> None:
    run.group.own({A: 10})
    assert run.plan(always=True) is END
    assert run.group.planned == [{}]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("always", [False, True])
def test_a_run_that_is_given_no_partition_in_a_settled_group_is_an_error_after_5_s(
    run: Run, now: SimpleNamespace, restarted: bool, always: bool
) -> None:
    """Also one that was restarted: what former runs have read says nothing about this one."""
    if restarted:
        run.group.state = replace(run.group.state, marks={A: Mark(Offset(5), Offset(5))})
    with pytest.raises(NoPartitionsError, match="'etl'"):
        run.plan(always=always)
    assert 1005 < now.s < 1006
    assert run.group.planned == []


@pytest.mark.parametrize("always", [False, True])
def test_a_run_to_which_the_group_never_says_anything_is_an_error_as_soon(
    run: Run, now: SimpleNamespace, always: bool
) -> None:
    """Under KIP-848 a member that is given nothing is told nothing."""
    run.group.answers = False
    with pytest.raises(NoPartitionsError, match="'etl'"):
        run.plan(always=always)
    assert 1005 < now.s < 1006
    assert run.group.planned == []


def test_the_5_s_begin_anew_when_the_group_is_not_settled_meanwhile(run: Run, now: SimpleNamespace) -> None:
    settled = iter([True] * 40 + [False] + [True] * 1000)
    run.group.is_settled = lambda *_: next(settled)  # type: ignore[method-assign]
    with pytest.raises(NoPartitionsError):
        run.plan()
    assert now.s > 1009


def test_a_run_that_had_partitions_and_has_given_them_to_others_ends(run: Run) -> None:
    run.group.own({A: 10})
    run.group.own({})
    assert run.plan() is None


@pytest.mark.parametrize("answers", [False, True])
def test_a_group_that_does_not_settle_is_an_error_in_the_end(run: Run, now: SimpleNamespace, answers: bool) -> None:
    run.group.answers, run.group.settled = answers, False
    with pytest.raises(AssignmentTimeoutError, match="'etl' has not given each partition"):
        run.plan()
    assert run.group.planned == []
    if answers:
        assert 1330 < now.s < 1331


def test_a_log_that_was_created_again_gets_a_new_target(run: Run) -> None:
    """It is read up to where it ended when that was found."""
    run.group.own({A: 3, B: 20})
    run.watch.ends[A] = Offset(7)
    run.watch.changes = [Changes(recreated={"orders"})]
    run.watch.ends[B] = Offset(2)
    assert run.plan() is END
    assert run.group.changed == [({A, B}, LogChange.RECREATED)]
    assert run.target == {A: 7, B: 2}
    assert run.group.planned == [{A: "[0, 7)", B: "[0, 2)"}]


def test_a_log_that_was_truncated_gets_a_new_target_and_no_other_does(run: Run) -> None:
    run.group.own({A: 8, B: 5})
    run.watch.ends[A] = Offset(6)
    run.watch.changes = [Changes(truncated={A})]
    assert run.plan() is END
    assert run.group.changed == [({A}, LogChange.TRUNCATED)]
    assert run.target == {A: 6, B: 20}


def test_a_deleted_topic_has_nothing_left_to_read(run: Run) -> None:
    run.group.own({A: 3, B: 5})
    run.watch.ends.clear()
    run.watch.changes = [Changes(deleted={"orders"})]
    assert run.plan() is None
    assert run.group.changed == [({A, B}, LogChange.DELETED)]
    assert run.target == {}


def test_partitions_of_which_it_is_not_known_are_left_for_later_and_do_not_end_the_run(run: Run) -> None:
    run.group.own({A: 3})
    run.watch.changes = [Changes(unsure={A})] * 3
    assert run.plan() is END
    assert run.group.planned == [{A: "[3, 10)"}]
    assert run.group.asked_settled == []


def test_a_batch_in_flight_is_given_back_while_nothing_more_is_to_be_planned(run: Run) -> None:
    run.group.own({A: 10})
    run.group.state = replace(run.group.state, batch=Batch(end=END, running={}, epochs={}))
    assert run.plan() is END
    assert run.group.planned == []


# -- and a query that runs on


def look(run: Run) -> dict[TopicPartition, str]:
    ranges = run.query._look(cast(Membership, run.group), None)
    return {tp: str(planned.range) for tp, planned in ranges.items()}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (Changes(unsure={A}), []),
        (Changes(truncated={A}), [({A}, LogChange.TRUNCATED)]),
    ],
    ids=["not sure", "truncated"],
)
def test_a_log_that_may_be_another_one_is_not_planned_and_the_others_are(
    run: Run, changes: Changes, told: list[tuple[set[TopicPartition], LogChange]]
) -> None:
    run.group.own({A: 3, B: 5})
    run.watch.changes = [changes]
    assert look(run) == {B: "[5, 70)"}
    assert run.group.changed == told


def test_all_partitions_of_a_topic_that_was_created_again_are_decided_anew(run: Run) -> None:
    """Also those that are not looked at, because it is not known yet where they start."""
    run.group.own({A: 3})
    resolving = Partition(Phase.RESOLVING, OwnershipEpoch(2))
    run.group.state = replace(run.group.state, owned={**run.group.state.owned, B: resolving})
    run.watch.changes = [Changes(recreated={"orders"})]
    assert look(run) == {}
    assert run.group.changed == [({A, B}, LogChange.RECREATED)]
