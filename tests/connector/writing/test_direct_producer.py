"""The direct producer with brokers that fail, move leaders and lose connections: each record is written once."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.cluster import patience
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.offsets.errors import AuthenticationError, DeliveryError, KafkaGroupError, OptionError
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.group_requests import Coordinator
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, TopicMetadata
from pyspark_kafka_group.wire.transactions import InitializedProducer
from pyspark_kafka_group.wire.types import Address, TopicPartition
from pyspark_kafka_group.writing import direct_producer, producer_cache
from pyspark_kafka_group.writing.direct_producer import DirectProducer
from pyspark_kafka_group.writing.direct_settings import NotSupportedError, direct_settings
from pyspark_kafka_group.writing.producer import MessageProducer, SinkProducer
from pyspark_kafka_group.writing.producer_cache import lease, open_producer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import RecordColumns, Rows, record_rows
from tests.connector.columns.batches import TRANSACTIONAL
from tests.connector.writing.sink_brokers import (
    ADD,
    FIND,
    INIT,
    METADATA,
    PRODUCER,
    HangUp,
    Refuse,
    SinkBrokers,
    sink_brokers,
)
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, SILENCE


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkBrokers]:
    monkeypatch.setattr(direct_producer, "_BEHIND_S", 0.0)
    with sink_brokers(2) as made:
        yield made


def producer_of(brokers: SinkBrokers, **more: str) -> DirectProducer:
    """Return a producer that retries fast, and is closed before its brokers."""
    given = {"bootstrap.servers": brokers.bootstrap_servers, "retry.backoff.ms": "5", "retry.backoff.max.ms": "20"}
    config = producer_config(given | {key.replace("__", "."): value for key, value in more.items()})
    made = DirectProducer({**config, **({"transactional.id": "x"} if "transactional__id" in more else {})})
    brokers.at_end.append(made.close)
    return made


def rows(values: list[bytes], partitions: list[int] | None = None) -> Rows:
    columns: dict[str, Any] = {"value": pa.array(values, pa.binary())}
    if partitions is not None:
        columns["partition"] = pa.array(partitions, pa.int32())
    where = RecordColumns(value=0, partition=None if partitions is None else 1)
    return record_rows(pa.record_batch(columns), where, "t")


def numbered(count: int, since: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(since, since + count)]


def write(producer: DirectProducer, values: list[bytes], partitions: list[int] | None = None) -> None:
    producer.send(rows(values, [0] * len(values) if partitions is None else partitions))
    producer.flush()


PASSING = (
    "NOT_LEADER_OR_FOLLOWER",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "CORRUPT_MESSAGE",
    "NOT_ENOUGH_REPLICAS",
    "REQUEST_TIMED_OUT",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
)


@pytest.mark.parametrize(
    "fault",
    [
        *(Refuse(name) for name in PASSING),
        Refuse("NOT_ENOUGH_REPLICAS_AFTER_APPEND", stores=True),
        Refuse("REQUEST_TIMED_OUT", stores=True),
        HangUp(stores=True),
        HangUp(stores=False),
    ],
    ids=str,
)
def test_a_passing_fault_neither_loses_nor_repeats_nor_reorders(brokers: SinkBrokers, fault: Refuse | HangUp) -> None:
    brokers.faults = deque([None, fault, fault, fault, None, fault])
    producer = producer_of(brokers, batch__size="200")
    write(producer, numbered(500))
    assert brokers.values() == numbered(500)
    batches: dict[int, set[bytes]] = {}
    for sent in brokers.sent:
        [data] = sent.batches.values()
        batches.setdefault(int.from_bytes(data[53:57], "big"), set()).add(data)
    assert all(len(found) == 1 for found in batches.values()), "a retry sends the same bytes"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    faults=st.lists(
        st.none()
        | st.builds(HangUp, st.booleans())
        | st.builds(Refuse, st.sampled_from([*PASSING, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"]), st.booleans()),
        max_size=12,
    ),
    moves=st.lists(st.integers(0, 1), min_size=1, max_size=6),
    tasks=st.integers(1, 3),
)
def test_whatever_happens_each_partition_has_its_records_once_in_order(
    faults: list[Refuse | HangUp | None], moves: list[int], tasks: int
) -> None:
    """Leaders also move, and the producer is used for several tasks."""
    with sink_brokers(2, partitions=3) as brokers:
        brokers.faults = deque(faults)
        brokers.leader = lambda partition: (moves[min(len(brokers.sent) // 3, len(moves) - 1)] + partition) % 2
        producer = producer_of(brokers, batch__size="150")
        for task in range(tasks):
            values = numbered(200, task * 200)
            write(producer, values, [n % 3 for n in range(200)])
            for partition in range(3):
                done = [v for n, v in enumerate(numbered((task + 1) * 200)) if (n % 200) % 3 == partition]
                assert brokers.values(partition) == done


def test_a_leader_that_moves_in_the_middle_of_a_task_is_found_again(brokers: SinkBrokers) -> None:
    producer = producer_of(brokers, batch__size="200")
    write(producer, numbered(100))
    brokers.leader = lambda _: 1
    write(producer, numbered(100, 100))
    assert brokers.values() == numbered(200)
    assert brokers.sent[-1].at == brokers.brokers[1].address


def test_brokers_that_do_not_answer_are_asked_for_the_leader_after_pauses(
    brokers: SinkBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_of(brokers, **{"retry.backoff.ms": "10", "retry.backoff.max.ms": "1000"})
    write(producer, numbered(1))
    brokers.faults = deque([Refuse("NOT_LEADER_OR_FOLLOWER")])
    metadata, looks = producer._requests.metadata, list[float]()

    def silent(topics: Collection[str], deadline: Deadline) -> ClusterMetadata:
        looks.append(time.monotonic())
        if len(looks) < 4:
            raise ConnectionRefusedError("nobody listens")
        return metadata(topics, deadline)

    monkeypatch.setattr(producer._requests, "metadata", silent)
    write(producer, numbered(1, 1))
    pauses = [later - sooner for sooner, later in itertools.pairwise(looks)]
    assert all(pause >= least for pause, least in zip(pauses, (0.02, 0.04, 0.08), strict=True))
    assert looks[-1] - looks[0] < 2, "and not later"
    assert producer._sender._leaders.failures(TopicPartition("t", 0)) == 0, "a written batch ends the doubt"


def test_a_broker_that_closes_idle_connections_is_no_fault(brokers: SinkBrokers) -> None:
    producer = producer_of(brokers)
    write(producer, numbered(1))
    for broker in brokers.brokers:
        broker.disconnect()
    time.sleep(0.05)
    write(producer, numbered(1, 1))
    assert brokers.values() == numbered(2)
    assert len(brokers.sent) == 2


def test_a_connection_whose_login_ends_soon_is_replaced(brokers: SinkBrokers) -> None:
    producer = producer_of(brokers)
    write(producer, numbered(1))
    accepted = brokers.brokers[0].accepted
    for broker in producer._sender._brokers.values():
        assert broker.connection is not None
        broker.connection.good_until = Deadline.after(0)
    write(producer, numbered(1, 1))
    write(producer, numbered(1, 2))
    assert brokers.brokers[0].accepted == accepted + 1
    assert (brokers.values(), len(brokers.sent)) == (numbered(3), 3)


def test_an_answer_without_one_of_the_partitions_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, first = answers.produced, iter([True])

    def produced(errors: dict[TopicPartition, int]) -> Any:
        return whole({tp: code for tp, code in errors.items() if tp.partition == 0 or not next(first, False)})

    monkeypatch.setattr(answers, "produced", produced)
    with sink_brokers(1, partitions=2) as brokers:
        producer = producer_of(brokers)
        write(producer, numbered(4), [0, 0, 1, 1])
        assert (brokers.values(0), brokers.values(1)) == (numbered(2), numbered(2, 2))


def test_a_silent_broker_is_asked_again_over_another_connection(brokers: SinkBrokers) -> None:
    brokers.faults = deque([HangUp(stores=True)])
    answer = brokers._produce

    def silent_once(*given: Any) -> Any:
        found = answer(*given)
        return SILENCE if found is HANG_UP else found

    brokers._produce = silent_once  # type: ignore[assignment, method-assign]
    producer = producer_of(brokers, socket__timeout__ms="200")
    write(producer, numbered(5))
    assert brokers.values() == numbered(5)


@pytest.mark.parametrize("fault", [Refuse("NOT_ENOUGH_REPLICAS"), HangUp(stores=False)], ids=str)
def test_a_fault_that_lasts_longer_than_the_delivery_timeout_fails_the_task(
    brokers: SinkBrokers, fault: Refuse | HangUp
) -> None:
    brokers.faults = deque([fault] * 10_000)
    producer = producer_of(brokers, delivery__timeout__ms="400")
    began = time.monotonic()
    with pytest.raises(
        DeliveryError, match=r"_MSG_TIMED_OUT.*last error: (t-0: NOT_ENOUGH_REPLICAS|the broker closed)"
    ):
        write(producer, numbered(1))
    assert 0.3 < time.monotonic() - began < 5
    with pytest.raises(DeliveryError, match="_MSG_TIMED_OUT"):  # it does not continue after a failure
        write(producer, numbered(1))


@pytest.mark.parametrize("fault", [None, HangUp(stores=True)], ids=str)
def test_the_time_between_rows_does_not_count_as_time_to_write(
    brokers: SinkBrokers, fault: HangUp | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is not empty when the task waits for its next rows, and no thread sends the rest."""
    clock, away_s = time.monotonic, 0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + away_s)
    brokers.faults = deque([fault])
    brokers.answering.clear()
    producer = producer_of(brokers, delivery__timeout__ms="30000", batch__size="200")
    producer.send(rows(numbered(2000), [0] * 2000))
    assert producer._sender.unwritten_bytes
    brokers.answering.set()
    away_s += 60
    producer.send(rows(numbered(10, 2000), [0] * 10))
    away_s += 60
    producer.flush()
    assert brokers.values() == numbered(2010)


def test_an_error_that_no_retry_cures_fails_the_task_at_once(brokers: SinkBrokers) -> None:
    for name, kind, text in (
        ("TOPIC_AUTHORIZATION_FAILED", AuthenticationError, "Grant the user of this query WRITE"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", DeliveryError, "t-0: .*Spark may repeat the task"),
        ("MESSAGE_TOO_LARGE", DeliveryError, "max.message.bytes"),
        ("INVALID_RECORD", DeliveryError, "cleanup.policy=compact"),
        ("INVALID_PRODUCER_EPOCH", DeliveryError, "Another attempt of this task has begun"),
    ):
        brokers.faults = deque([Refuse(name)])
        producer = producer_of(brokers)
        with pytest.raises(kind, match=text):
            write(producer, numbered(1))


def test_a_topic_that_grows_gets_records_in_its_new_partitions(brokers: SinkBrokers) -> None:
    producer = producer_of(brokers)
    write(producer, numbered(1))
    brokers.partitions = 3
    write(producer, numbered(1, 1), [2])
    assert brokers.values(2) == numbered(1, 1)
    with pytest.raises(DeliveryError, match="_UNKNOWN_PARTITION") as raised:
        producer.send(rows(numbered(1), [3]))
    assert (raised.value.topic, raised.value.partition) == ("t", 3)


def test_a_broker_may_be_behind_when_a_partition_was_just_added(
    brokers: SinkBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: rows with the new partition were an error at once, although the next answer would have had it."""
    monkeypatch.setattr(direct_producer, "_BEHIND_S", 30.0)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            brokers.partitions = 3

    monkeypatch.setattr(patience, "time", SimpleNamespace(sleep=pause))
    producer = producer_of(brokers)
    write(producer, numbered(1), [2])
    assert (brokers.values(2), len(pauses)) == (numbered(1), 3)


@pytest.mark.parametrize("name", ["topic.metadata.refresh.interval.ms", "metadata.max.age.ms"])
def test_old_metadata_is_asked_for_again(brokers: SinkBrokers, name: str) -> None:
    producer = producer_of(brokers, **{name: "1"})
    write(producer, numbered(1))
    time.sleep(0.01)
    asked = brokers.kinds.count("Metadata")
    write(producer, numbered(1, 1))
    assert brokers.kinds.count("Metadata") == asked + 1
    brokers.answers[METADATA] = deque([HANG_UP] * 2)  # known topics do without
    time.sleep(0.01)
    write(producer, numbered(1, 2))
    assert brokers.values() == numbered(3)


@pytest.mark.parametrize(("more", "creates"), [({}, True), ({"allow.auto.create.topics": "false"}, False)])
def test_brokers_may_create_a_topic_unless_the_user_forbids_it(
    brokers: SinkBrokers, more: dict[str, str], creates: bool
) -> None:
    """Regression: a name with a typing error was created in any case."""
    producer = producer_of(brokers, **more)
    write(producer, numbered(1))
    (asked,) = (one for broker in brokers.brokers for one in broker.asked if one.api == METADATA)
    no_operations_no_tags = b"\0\0"
    assert asked.body.endswith(bytes([creates]) + no_operations_no_tags)


def test_a_new_topic_is_waited_for_and_not_for_ever(brokers: SinkBrokers) -> None:
    unknown = TopicMetadata("t", error_code("UNKNOWN_TOPIC_OR_PARTITION"), None, ())
    missing = answers.metadata(ClusterMetadata({0: brokers.brokers[0].address}, (unknown,)))
    brokers.answers[METADATA] = deque([missing] * 3)
    producer = producer_of(brokers)
    write(producer, numbered(1))
    assert brokers.values() == numbered(1)
    brokers.answers[METADATA] = deque([missing] * 10_000)
    producer = producer_of(brokers, max__block__ms="100")
    with pytest.raises(DeliveryError, match=r"_UNKNOWN_TOPIC.*does not exist"):
        write(producer, numbered(1))


def test_many_partitions_do_not_take_more_memory_than_was_said() -> None:
    most, largest = 1024 * 1024, 0
    with sink_brokers(2, partitions=1000) as brokers:
        producer = producer_of(brokers, buffer__memory=str(most))
        for task in range(20):
            producer.send(rows([b"x" * 200] * 2000, [(task + n) % 1000 for n in range(2000)]))
            largest = max(largest, producer._sender.unwritten_bytes + producer._writer.open_bytes)
        producer.flush()
        assert sum(len(brokers.values(partition)) for partition in range(1000)) == 40_000
    assert largest <= most


def test_a_producer_that_is_throttled_waits(brokers: SinkBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    produced = answers.produced
    monkeypatch.setattr(answers, "produced", lambda errors: produced(errors, 300))
    producer = producer_of(brokers, batch__size="100")
    began = time.monotonic()
    write(producer, [b"x" * 90] * 3)
    assert 0.55 < time.monotonic() - began < 5
    assert len(brokers.values()) == 3


def test_time_in_the_queue_of_a_slow_cluster_does_not_count_as_time_to_write(
    brokers: SinkBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced = answers.produced
    monkeypatch.setattr(answers, "produced", lambda errors: produced(errors, 60))
    producer = producer_of(brokers, batch__size="200", delivery__timeout__ms="400")
    write(producer, numbered(200))
    assert len(brokers.sent) * 0.06 > 0.8, "all together take longer than the time of one"
    assert brokers.values() == numbered(200)


def test_a_request_is_not_larger_than_the_user_allows() -> None:
    with sink_brokers(1, partitions=8) as brokers:
        producer = producer_of(brokers, max__request__size="10000")
        write(producer, [b"x" * 1500] * 40, [n % 8 for n in range(40)])
        assert len(brokers.sent) > 1
        assert max(sum(map(len, sent.batches.values())) for sent in brokers.sent) <= 10_000


def test_rows_without_a_key_avoid_partitions_without_a_leader(brokers: SinkBrokers) -> None:
    brokers.partitions = 3
    brokers.leader = lambda partition: -1 if partition == 1 else 0
    producer = producer_of(brokers, delivery__timeout__ms="300")
    for number in range(30):
        producer.send(rows(numbered(1, number)))
        producer.flush()
    assert brokers.values(1) == []
    assert len(brokers.values(0)) + len(brokers.values(2)) == 30


def test_a_topic_that_was_created_again_may_have_fewer_partitions(brokers: SinkBrokers) -> None:
    brokers.with_topic_ids(partitions=3)
    producer = producer_of(brokers, **{"topic.metadata.refresh.interval.ms": "1"})
    write(producer, numbered(3), [0, 1, 2])
    time.sleep(0.01)
    brokers.partitions = 2  # an answer of a broker that is behind
    write(producer, numbered(1), [2])
    time.sleep(0.01)
    brokers.topic_id = "B" * 21 + "Q"
    with pytest.raises(DeliveryError, match="_UNKNOWN_PARTITION"):
        producer.send(rows(numbered(1), [2]))


def test_rows_of_a_partition_that_a_topic_has_no_more_are_an_error(brokers: SinkBrokers) -> None:
    """The topic was created again with one partition less, while these rows waited to be sent."""
    brokers.with_topic_ids(partitions=3)
    producer = producer_of(brokers, **{"topic.metadata.refresh.interval.ms": "1"})
    producer.send(rows(numbered(1), [2]))
    time.sleep(0.01)
    brokers.partitions, brokers.topic_id = 2, "B" * 21 + "Q"
    with pytest.raises(DeliveryError, match="_UNKNOWN_PARTITION") as raised:
        producer.send(rows(numbered(1), [0]))
    assert (raised.value.topic, raised.value.partition) == ("t", 2)


def test_a_batch_of_a_partition_that_is_gone_is_not_tried_until_its_timeout(brokers: SinkBrokers) -> None:
    """Regression: a kept producer retried for two minutes, and then named a leader and the replicas as the cause."""
    brokers.with_topic_ids(partitions=6)
    producer = producer_of(brokers, **{"message.timeout.ms": "60000"})
    producer.send(rows(numbered(6), list(range(6))))
    producer.flush()
    brokers.partitions, brokers.topic_id = 3, "B" * 21 + "Q"
    brokers.faults.extend([Refuse("UNKNOWN_TOPIC_OR_PARTITION")] * 9)
    began = time.monotonic()
    producer.send(rows(numbered(1), [5]))
    with pytest.raises(DeliveryError, match=r"t-5: .*created again with fewer partitions"):
        producer.flush()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("most", [400, 1000])
def test_a_topic_that_takes_smaller_batches_gets_them(brokers: SinkBrokers, most: int) -> None:
    """Regression: the first full batch failed the task, and Spark's own sink wrote it."""
    brokers.most_bytes = most
    producer = producer_of(brokers)
    write(producer, numbered(500))
    assert brokers.values() == numbered(500)
    assert most - 50 < max(len(batch.data) for batch in brokers.logs[TopicPartition("t", 0)]) <= most


def test_without_idempotence_batches_have_no_numbers(brokers: SinkBrokers) -> None:
    producer = producer_of(brokers, acks="1")
    write(producer, numbered(3))
    [[batch]] = brokers.logs.values()
    assert (batch.first, batch.producer_id) == (-1, -1)
    assert brokers.sent[0].acks == 1
    assert "InitProducerId" not in brokers.kinds


def test_sequence_numbers_begin_again_after_the_largest(brokers: SinkBrokers) -> None:
    producer = producer_of(brokers, batch__size="200")
    producer._sequences[TopicPartition("t", 0)] = 2**31 - 10
    write(producer, numbered(40))
    [log] = brokers.logs.values()
    assert [batch.first for batch in log][:2] == [2**31 - 10, (2**31 - 10 + log[0].records) % 2**31]


# ---------------------------------------------------------------------------- transactions


def test_partitions_are_added_to_the_transaction_before_their_records() -> None:
    with sink_brokers(1, partitions=3) as brokers:
        producer = producer_of(brokers, transactional__id="x")
        producer.begin_transaction()
        write(producer, numbered(3), [0, 1, 2])
        write(producer, numbered(3), [0, 1, 2])
        assert brokers.kinds.count("AddPartitionsToTxn") == 1
        assert "EndTxn" not in brokers.kinds
        assert {sent.transactional_id for sent in brokers.sent} == {"x"}
        for log in brokers.logs.values():
            assert [batch.first for batch in log] == [0, 1]
            assert {(batch.producer_id, batch.attributes) for batch in log} == {(PRODUCER.producer_id, TRANSACTIONAL)}


def test_partitions_that_get_their_first_records_later_are_added_then() -> None:
    with sink_brokers(1, partitions=3) as brokers:
        producer = producer_of(brokers, transactional__id="x")
        assert producer.begin_transaction() == (PRODUCER.producer_id, PRODUCER.producer_epoch)
        for partitions in ([0], [0, 1], [1], [2, 0]):
            producer.send(rows(numbered(len(partitions)), partitions))
            producer.flush()
        assert brokers.kinds.count("AddPartitionsToTxn") == 3
        assert [sum(batch.records for batch in log) for _, log in sorted(brokers.logs.items())] == [3, 2, 1]


@pytest.mark.parametrize("cause", [0, 1])
def test_the_partition_that_was_refused_is_named_and_not_those_of_the_same_request(cause: int) -> None:
    """A coordinator adds all partitions of a request or none."""
    found = [error_code("OPERATION_NOT_ATTEMPTED")] * 2
    found[cause] = error_code("TOPIC_AUTHORIZATION_FAILED")
    with sink_brokers(1, partitions=2) as brokers:
        brokers.answers[ADD] = deque([answers.commits({TopicPartition("t", n): code for n, code in enumerate(found)})])
        producer = producer_of(brokers, transactional__id="x")
        producer.begin_transaction()
        producer.send(rows(numbered(2), [0, 1]))
        with pytest.raises(AuthenticationError, match="Grant the user of this query WRITE"):
            producer.flush()


def test_a_coordinator_that_is_gone_is_looked_for_again(brokers: SinkBrokers) -> None:
    with sink_brokers(1) as others:
        gone = answers.coordinator(Coordinator(0, "", others.brokers[0].address), "x")
    brokers.answers[FIND] = deque([gone])
    producer = producer_of(brokers, transactional__id="x")
    producer.begin_transaction()
    write(producer, numbered(2))
    assert brokers.kinds.count("FindCoordinator") == 2
    assert brokers.values() == numbered(2)


def test_a_coordinator_that_is_busy_moves_or_hangs_up_is_asked_again(brokers: SinkBrokers) -> None:
    busy = [error_code(name) for name in ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")]
    unknown = Coordinator(error_code("COORDINATOR_NOT_AVAILABLE"), "", Address("", 0))
    brokers.answers = {
        FIND: deque([answers.coordinator(unknown, "x")]),
        INIT: deque([HANG_UP, *(answers.initialized(InitializedProducer(code, -1, -1)) for code in busy)]),
        ADD: deque([HANG_UP, *(answers.commits({TopicPartition("t", 0): code}) for code in [*busy, 3])]),
    }
    producer = producer_of(brokers, transactional__id="x")
    producer.begin_transaction()
    write(producer, numbered(2))
    assert brokers.values() == numbered(2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "Grant .* on transactional ids"),
        ("INVALID_TRANSACTION_TIMEOUT", "Lower kafka.transaction.timeout.ms"),
    ],
)
def test_a_transaction_that_is_refused_says_why(brokers: SinkBrokers, name: str, text: str) -> None:
    brokers.answers[INIT] = deque([answers.initialized(InitializedProducer(error_code(name), -1, -1))])
    producer = producer_of(brokers, transactional__id="x")
    with pytest.raises(KafkaGroupError, match=text):
        producer.begin_transaction()


# ------------------------------------------------------------------------ which configuration


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"acks": "0"}, "kafka.acks"),
        ({"partitioner": "consistent"}, "kafka.partitioner"),
        ({"batch.num.messages": "5"}, "kafka.batch.num.messages"),
        ({"compression.type": "zstd", "compression.level": "99"}, "kafka.compression.level"),
        ({"compression.type": "brotli"}, "kafka.compression.type"),
        ({"compression.type": "gzip", "compression.codec": "gzip"}, "are the same"),
        ({"batch.size": "0"}, "kafka.batch.size"),
        ({"request.timeout.ms": "x"}, "kafka.request.timeout.ms"),
        ({"ssl.curves.list": "P-256"}, "kafka.ssl.curves.list"),
        ({"acks": "1", "enable.idempotence": "true"}, "needs acks=all"),
        ({"max.in.flight.requests.per.connection": "6"}, "at most 5"),
        ({"max.in.flight": "6"}, "at most 5"),
        ({"retries": "0"}, "kafka.retries"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-1"}, "kafka.sasl.mechanism"),
    ],
)
def test_librdkafka_gets_what_the_direct_producer_does_not_support(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(NotSupportedError, match=reason):
        direct_settings(producer_config({"bootstrap.servers": "b:1", **properties}))


@pytest.mark.logs_errors("127.0.0.1:1")
@pytest.mark.parametrize(("more", "override"), [({"acks": "0"}, ""), ({}, "off")])
def test_librdkafka_writes_if_a_property_is_unusual_or_the_c_code_is_switched_off(
    more: dict[str, str], override: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(READER_OVERRIDE, override)
    with closing(open_producer(producer_config({"bootstrap.servers": "127.0.0.1:1", **more}))) as producer:
        assert isinstance(producer, MessageProducer)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_properties_that_change_nothing_else_are_supported(codec: str) -> None:
    numbers = {"linger.ms": "100", "queue.buffering.max.messages": "1000", "queue.buffering.max.ms": "50"}
    numbers |= {"max.in.flight.requests.per.connection": "5", "max.in.flight": "5"}
    numbers |= {"retries": "10", "message.send.max.retries": "10"}
    found = direct_settings(producer_config({"bootstrap.servers": "b:1", "compression.type": codec, **numbers}))
    assert (found.compression is None) == (codec == "none")


@pytest.mark.logs_errors("127.0.0.1:1")
def test_librdkafka_checks_what_tunes_its_connections() -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "socket.keepalive.enable": "true", "connections.max.idle.ms": "180000"}
    with closing(open_producer(producer_config(given))) as producer:
        assert isinstance(producer, DirectProducer)
    with pytest.raises(OptionError, match=r"kafka\.socket\.keepalive\.enable"):
        open_producer(producer_config({**given, "socket.keepalive.enable": "maybe"}))


def test_no_error_shows_a_secret(brokers: SinkBrokers) -> None:
    secret = "secret-of-this-test"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    producer = producer_of(brokers, **login, sasl__password=secret, delivery__timeout__ms="300")
    with pytest.raises(KafkaGroupError) as raised:
        write(producer, numbered(1))
    producer.close()
    assert secret not in str(raised.value)
    assert secret not in repr(producer._settings)


def test_a_producer_is_kept_between_tasks_but_not_for_long(
    brokers: SinkBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = producer_config({"bootstrap.servers": brokers.bootstrap_servers})

    def leased() -> SinkProducer:
        with lease(config) as found:
            return found

    first = leased()
    assert leased() is first
    monkeypatch.setattr(producer_cache, "_IDLE_S", 0.0)
    assert leased() is first
    assert leased() is not first
    producer_cache._idle.clear()
