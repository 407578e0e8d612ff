"""How a reader handles messages and events, with a scripted consumer, and without a broker or a real clock."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.columns.limits import MAX_BATCH_RECORDS
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    DataLossError,
    KafkaGroupError,
    ReadTimeoutError,
    UnexpectedRecordError,
)
from pyspark_kafka_group.offsets.lasting import GONE_S, SHORTER_S
from pyspark_kafka_group.offsets.types import OffsetRange
from pyspark_kafka_group.offsets.types import TopicPartition as GroupPartition
from pyspark_kafka_group.reading import range_reader
from pyspark_kafka_group.reading.message_client import MessageClient
from pyspark_kafka_group.reading.range_reader import REFUSAL_PATIENCE_S, ReadOptions
from pyspark_kafka_group.reading.reader_client import note
from pyspark_kafka_group.reading.task_reader import read_with

TOPIC, PARTITION = "orders", 7
TIMEOUT_S = 60.0
UNHURRIED = settings(deadline=None)  # a loaded machine is no bug


class FakeClock:
    """A fake of the module ``time``.  Only waiting advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class ScriptedConsumer:
    """Answers like a consumer of a log with these offsets, start and end.

    If `script` is set, the consumer delivers it instead of the log's records.  `when_idle` returns what comes later.
    """

    def __init__(
        self,
        offsets: Iterable[int] = (),
        *,
        log_start: int = 0,
        log_end: int = 0,
        script: Iterable[Message] | None = None,
        bursts: Iterable[int] = (),
    ) -> None:
        self.clock = FakeClock()
        self.offsets = sorted(offsets)
        self.log_start = log_start
        self.log_end = log_end
        self.script = script
        self.bursts = iter(bursts)  # how many of the fetched records each call finds
        self.assigned: list[int] = []
        self.asked: list[int] = []
        self.bounds_failures: list[KafkaError] = []
        self.bounds_asked = 0
        self.partitions: list[int] = [PARTITION]
        self.topic_error: KafkaError | None = None
        self.when_idle: Callable[[], Message | None] = lambda: None
        self._queue: list[Message] = []

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._queue = []

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        [tp] = partitions
        assert (tp.topic, tp.partition) == (TOPIC, PARTITION)
        self.assigned.append(tp.offset)
        if self.script is not None:
            self._queue = list(self.script)
        elif not self.log_start <= tp.offset <= self.log_end:
            self._queue = [event(KafkaError._AUTO_OFFSET_RESET)]
        else:
            self._queue = [record(offset) for offset in self.offsets if offset >= tp.offset]
            self._queue.append(event(KafkaError._PARTITION_EOF, self.log_end))

    def consume(self, count: int, timeout: float) -> list[Message]:
        assert timeout == 0, "consume() with a timeout waits for records that may not exist"
        assert count > 0
        self.asked.append(count)
        available = next(self.bursts, count)
        taken = self._queue[: min(count, available)]
        del self._queue[: len(taken)]
        return taken

    def poll(self, timeout: float) -> Message | None:
        if self._queue:
            return self._queue.pop(0)
        self.clock.sleep(timeout)
        return self.when_idle()

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        self.bounds_asked += 1
        if self.bounds_failures:
            raise KafkaException(self.bounds_failures.pop(0))
        return self.log_start, self.log_end

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        found = SimpleNamespace(error=self.topic_error, partitions=dict.fromkeys(self.partitions))
        return SimpleNamespace(topics={topic: found})


def record(offset: int, *, topic: str = TOPIC, partition: int = PARTITION) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, value=b"v", timestamp=(1, 0))


def event(code: int, offset: int = -1001) -> Message:
    return Message(topic=TOPIC, partition=PARTITION, offset=offset, value=b"reason", error=KafkaError(code))


def delivered(
    consumer: ScriptedConsumer,
    start: int,
    until: int,
    *,
    fail_on_data_loss: bool = True,
    errors: Iterable[KafkaError] = (),
    caller_takes_s: float = 0.0,
    timeout_s: float = TIMEOUT_S,
) -> list[int]:
    client = MessageClient({}, cast(Any, consumer))
    for error in errors:
        note(client.errors, error)
    offsets: list[int] = []
    with patch.object(range_reader, "time", consumer.clock), patch.object(lasting, "time", consumer.clock):
        wanted = {GroupPartition(TOPIC, PARTITION): OffsetRange.checked(start, until)}
        options = ReadOptions(columns=("offset",), fail_on_data_loss=fail_on_data_loss, timeout_s=timeout_s)
        for batch in read_with(client, wanted, options):
            offsets += batch.column("offset").to_pylist()
            consumer.clock.sleep(caller_takes_s)
    return offsets


def loss_of(consumer: ScriptedConsumer, start: int, until: int, **more: Any) -> tuple[int, int]:
    """Return the offsets that a reading reports as lost."""
    with pytest.raises(DataLossError) as loss:
        delivered(consumer, start, until, **more)
    return loss.value.lost_from, loss.value.lost_until


def waited_s(consumer: ScriptedConsumer) -> float:
    return consumer.clock.now - FakeClock().now


# ---------------------------------------------------------------------------------- which records


@st.composite
def logs_and_ranges(draw: st.DrawFn) -> tuple[ScriptedConsumer, int, int]:
    log_start = draw(st.integers(0, 20))
    log_end = draw(st.integers(log_start, 60))
    offsets = draw(st.sets(st.integers(log_start, log_end - 1))) if log_end > log_start else set()
    start = draw(st.integers(0, 70))
    until = draw(st.integers(start, 70))
    bursts = draw(st.lists(st.integers(0, 8), max_size=40))
    return ScriptedConsumer(offsets, log_start=log_start, log_end=log_end, bursts=bursts), start, until


@UNHURRIED
@given(logs_and_ranges())
def test_all_records_of_the_range_that_exist_are_delivered_once_in_order(
    log_and_range: tuple[ScriptedConsumer, int, int],
) -> None:
    log, start, until = log_and_range
    assert delivered(log, start, until, fail_on_data_loss=False) == [o for o in log.offsets if start <= o < until]


@UNHURRIED
@given(logs_and_ranges())
def test_exactly_the_offsets_outside_the_log_are_reported_as_lost(
    log_and_range: tuple[ScriptedConsumer, int, int],
) -> None:
    log, start, until = log_and_range
    with patch.object(range_reader.log, "warning") as warning:
        delivered(log, start, until, fail_on_data_loss=False)
    losses = [call.args[2:4] for call in warning.call_args_list]
    reported = [offset for lost_from, lost_until in losses for offset in range(lost_from, lost_until)]
    assert reported == [offset for offset in range(start, until) if not log.log_start <= offset < log.log_end]

    if losses:
        with pytest.raises(DataLossError) as error:
            delivered(log, start, until)
        assert (error.value.lost_from, error.value.lost_until) == losses[0]
        assert (error.value.log_start, error.value.log_end) == (log.log_start, log.log_end)


@UNHURRIED
@given(logs_and_ranges())
def test_nothing_beyond_the_range_is_asked_for(log_and_range: tuple[ScriptedConsumer, int, int]) -> None:
    log, start, until = log_and_range
    delivered(log, start, until, fail_on_data_loss=False)
    assert max(log.asked, default=0) <= max(until - start, 0)


def test_a_chunk_is_bounded() -> None:
    size = 2 * MAX_BATCH_RECORDS + 10
    log = ScriptedConsumer(range(size), log_end=size)
    delivered(log, 0, size)
    assert max(log.asked) == MAX_BATCH_RECORDS


@pytest.mark.parametrize(
    ("log", "span", "found"),
    [
        (ScriptedConsumer([0, 1, 2], log_end=5), (0, 5), [0, 1, 2]),
        (ScriptedConsumer([0, 1, 2, 9], script=[record(o) for o in (0, 1, 2, 9)]), (0, 5), [0, 1, 2]),
        (ScriptedConsumer([0, 9], log_end=10), (3, 7), []),
        (ScriptedConsumer(script=[record(0), event(KafkaError._PARTITION_EOF, 1), record(1), record(2)], log_end=3),
         (0, 3), [0, 1, 2]),
    ],
    ids=["control records at the end", "a gap at the end", "nothing but gaps", "records behind an end"],
)  # fmt: skip
def test_a_range_ends_without_waiting(log: ScriptedConsumer, span: tuple[int, int], found: list[int]) -> None:
    assert delivered(log, *span) == found
    assert waited_s(log) == 0


# ------------------------------------------------------------------------------- wrong deliveries


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ([record(4)], "delivered one at 4"),
        ([record(5), record(7), record(6)], "records out of order between 5 and 7"),
        ([record(5), record(5)], "records out of order between 5 and 5"),
        ([record(5, topic="other"), record(6)], "one of other-7 at 5"),
        ([record(5), record(6, partition=8)], "one of orders-8 at 6"),
    ],
    ids=["before the position", "backwards", "twice", "other topic", "other partition"],
)
def test_a_record_that_was_not_asked_for_is_an_error(script: list[Message], found: str) -> None:
    with pytest.raises(UnexpectedRecordError, match=found):
        delivered(ScriptedConsumer(script=script, log_end=10), 5, 10)


def test_a_record_delivered_again_in_a_later_chunk_is_an_error() -> None:
    consumer = ScriptedConsumer(script=[record(5), record(6), record(6)], log_end=10, bursts=[2, 1])
    with pytest.raises(UnexpectedRecordError, match="should have offset 7 or a later one"):
        delivered(consumer, 5, 10)


# --------------------------------------------------------------------------------------- data loss


def test_a_trimmed_start_is_a_warning_if_so_asked(caplog: pytest.LogCaptureFixture) -> None:
    log = ScriptedConsumer(range(30, 50), log_start=30, log_end=50)
    with caplog.at_level(logging.WARNING, "pyspark_kafka_group.reading"):
        assert delivered(log, 10, 40, fail_on_data_loss=False) == list(range(30, 40))
    assert log.assigned == [10, 30]
    assert "orders-7: offsets [10, 30) are gone" in caplog.text
    assert "failOnDataLoss=false" in caplog.text


def test_a_range_that_was_trimmed_whole_delivers_nothing() -> None:
    log = ScriptedConsumer(range(30, 50), log_start=30, log_end=50)
    assert delivered(log, 10, 20, fail_on_data_loss=False) == []
    assert log.assigned == [10]


def test_records_trimmed_while_the_range_is_read_are_lost_from_the_position_on() -> None:
    script = [record(0), record(1), event(KafkaError._AUTO_OFFSET_RESET)]
    assert loss_of(ScriptedConsumer(script=script, log_start=5, log_end=9), 0, 9) == (2, 5)


def test_a_log_that_grew_up_to_its_answer_is_read_to_that_end() -> None:
    # The topic was created again.  The planned range ends at 20.  The log ends at 5, a moment later at 8, and grows.
    script = [record(3), record(4), event(KafkaError._PARTITION_EOF, 5), record(5), record(7), record(8)]
    consumer = ScriptedConsumer(script=script, log_end=8)
    assert delivered(consumer, 3, 20, fail_on_data_loss=False) == [3, 4, 5, 7, 8]


def test_an_early_end_is_no_loss_while_a_new_leader_catches_up() -> None:
    consumer = ScriptedConsumer(script=[record(0), event(KafkaError._PARTITION_EOF, 1)], log_end=5)
    late = iter([record(1), record(4)])
    consumer.when_idle = lambda: next(late, None)
    assert delivered(consumer, 0, 5) == [0, 1, 4]


def test_a_leader_that_never_catches_up_is_a_timeout_and_is_asked_before() -> None:
    consumer = ScriptedConsumer(script=[record(0), event(KafkaError._PARTITION_EOF, 1)], log_end=5)
    with pytest.raises(ReadTimeoutError):
        delivered(consumer, 0, 5)
    assert consumer.bounds_asked == 2


@pytest.mark.parametrize(("log_start", "log_end", "lost"), [(0, 0, (5, 9)), (0, 7, (7, 9)), (6, 9, (5, 6))])
def test_a_client_that_only_waits_finds_what_is_lost_before_the_timeout(
    log_start: int, log_end: int, lost: tuple[int, int]
) -> None:
    """Regression: with a short timeout, a topic that was created again was a timeout, whatever failOnDataLoss says."""
    assert loss_of(ScriptedConsumer(script=[], log_start=log_start, log_end=log_end), 5, 9, timeout_s=1.0) == lost
    consumer = ScriptedConsumer(script=[], log_start=log_start, log_end=log_end)
    late = iter([record(offset) for offset in range(max(5, log_start), log_end)])
    consumer.when_idle = lambda: next(late, None) if waited_s(consumer) > 2 else None
    found = delivered(consumer, 5, 9, timeout_s=1.0, fail_on_data_loss=False)
    assert found == [offset for offset in range(5, 9) if not lost[0] <= offset < lost[1]]


def test_an_unanswered_question_about_the_log_is_asked_again() -> None:
    log = ScriptedConsumer([0, 1], log_end=2)
    log.bounds_failures = [KafkaError(KafkaError.OFFSET_NOT_AVAILABLE), KafkaError(KafkaError._TRANSPORT)]
    assert loss_of(log, 0, 5) == (2, 5)
    assert waited_s(log) == pytest.approx(SHORTER_S, abs=1)


def test_an_end_that_goes_back_for_a_moment_is_no_loss() -> None:
    """Regression: brokers that hand over a partition report an older end, and the batch ended with DataLossError."""
    consumer = ScriptedConsumer(script=[record(0), event(KafkaError._PARTITION_EOF, 1)], log_end=3)
    late = iter([record(1), record(4)])

    def catch_up() -> Message | None:
        if waited_s(consumer) <= SHORTER_S / 2:
            return None
        consumer.log_end = 5
        return next(late, None)

    consumer.when_idle = catch_up
    assert delivered(consumer, 0, 5) == [0, 1, 4]


def test_a_position_that_is_in_the_log_after_all_is_read_again() -> None:
    consumer = ScriptedConsumer([0, 1, 2], log_end=3, script=[event(KafkaError._AUTO_OFFSET_RESET)])
    assign = consumer.incremental_assign

    def assign_and_heal(partitions: list[TopicPartition]) -> None:
        assign(partitions)
        consumer.script = None

    cast(Any, consumer).incremental_assign = assign_and_heal
    assert delivered(consumer, 0, 3) == [0, 1, 2]
    assert consumer.assigned == [0, 0]


def test_an_end_that_goes_back_twice_for_a_moment_is_no_loss() -> None:
    """Regression: the log was healthy between the two looks, but both counted as one long time."""
    consumer = ScriptedConsumer([90, 95, 99], log_end=100, script=[event(KafkaError._AUTO_OFFSET_RESET)])
    ends = [80, 100, 80]

    def bounds(_partition: TopicPartition, timeout: float) -> tuple[int, int]:
        consumer.clock.sleep(SHORTER_S)  # the partition has no leader meanwhile
        if ends:
            return 0, ends.pop(0)
        consumer.script = None
        return 0, 100

    cast(Any, consumer).get_watermark_offsets = bounds
    assert delivered(consumer, 90, 100) == [90, 95, 99]


def test_a_position_that_stays_refused_ends_in_a_timeout() -> None:
    with pytest.raises(ReadTimeoutError):
        delivered(ScriptedConsumer(script=[event(KafkaError._AUTO_OFFSET_RESET)], log_end=3), 0, 3)


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION])
def test_a_topic_that_stays_unknown_is_lost(code: int) -> None:
    consumer = ScriptedConsumer(script=[record(0), event(code)])
    consumer.topic_error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(DataLossError) as loss:
        delivered(consumer, 0, 5)
    assert (loss.value.lost_from, loss.value.lost_until, loss.value.log_end) == (1, 5, -1)
    assert waited_s(consumer) == pytest.approx(REFUSAL_PATIENCE_S + GONE_S, abs=1)
    assert delivered(consumer, 0, 5, fail_on_data_loss=False) == [0]


def with_late_records(consumer: ScriptedConsumer, late_s: float, missing: Callable[[float], bool]) -> ScriptedConsumer:
    """Deliver the records 1 to 4 after this time.  Metadata lacks the partition at some times."""
    late = map(record, range(1, 5))

    def deliver() -> Message | None:
        consumer.partitions = [] if missing(waited_s(consumer)) else [PARTITION]
        return next(late, None) if waited_s(consumer) > late_s else None

    consumer.when_idle = deliver
    return consumer


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ([event(KafkaError.UNKNOWN_TOPIC_OR_PART)], lambda _: False),
        ([], lambda now: now < REFUSAL_PATIENCE_S + GONE_S / 2),
    ],
    ids=["an old event", "wrong metadata"],
)
def test_a_partition_that_is_unknown_for_a_moment_is_no_loss(
    script: list[Message], missing: Callable[[float], bool], fail_on_data_loss: bool
) -> None:
    """Regression: after 10 s without records, one such answer, old or new, made existing records count as lost.

    With failOnDataLoss=false, the query skipped them.
    """
    consumer = ScriptedConsumer(script=[record(0), *script], log_end=5)
    with_late_records(consumer, REFUSAL_PATIENCE_S + 2 * GONE_S, missing)
    assert delivered(consumer, 0, 5, fail_on_data_loss=fail_on_data_loss) == [0, 1, 2, 3, 4]


def test_an_unknown_partition_that_exists_is_awaited_until_the_timeout() -> None:
    consumer = ScriptedConsumer(script=[record(0), event(KafkaError.UNKNOWN_TOPIC_OR_PART)], log_end=5)
    with pytest.raises(ReadTimeoutError):
        delivered(consumer, 0, 5)
    assert waited_s(consumer) == pytest.approx(TIMEOUT_S, abs=1)


def test_a_partition_that_a_topic_no_longer_has_is_lost() -> None:
    consumer = ScriptedConsumer(script=[])
    consumer.partitions = [PARTITION - 1]
    with pytest.raises(DataLossError, match="holds no such partition") as loss:
        delivered(consumer, 3, 5)
    assert (loss.value.lost_from, loss.value.lost_until) == (3, 5)


def test_a_partition_that_is_gone_ends_the_range_if_so_asked_even_at_the_timeout() -> None:
    consumer = ScriptedConsumer(script=[record(3)])
    consumer.partitions = []
    assert delivered(consumer, 3, 5, fail_on_data_loss=False, timeout_s=REFUSAL_PATIENCE_S / 2) == [3]


def test_a_topic_is_found_missing_without_librdkafka_saying_so() -> None:
    consumer = ScriptedConsumer(script=[])
    consumer.topic_error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert loss_of(consumer, 3, 5) == (3, 5)
    assert waited_s(consumer) == pytest.approx(REFUSAL_PATIENCE_S + GONE_S, abs=1)


# --------------------------------------------------------------------------------- waiting, errors


def test_no_progress_ends_in_a_named_error_with_position_range_option_and_cause() -> None:
    consumer = ScriptedConsumer(script=[record(3), event(KafkaError._TRANSPORT)], log_end=9)
    with pytest.raises(ReadTimeoutError) as timeout:
        delivered(consumer, 3, 9)
    assert waited_s(consumer) == pytest.approx(TIMEOUT_S, abs=1)
    assert (timeout.value.position, timeout.value.until) == (4, 9)
    for words in ("orders-7", "60 s", "kafkaConsumer.pollTimeoutMs", "_TRANSPORT"):
        assert words in str(timeout.value)


def test_progress_restarts_the_clock() -> None:
    consumer = ScriptedConsumer(script=[])
    arrivals = iter([None, record(0), None, record(1), None, record(2)])

    def poll(_: float) -> Message | None:
        consumer.clock.sleep(TIMEOUT_S * 0.6)
        return next(arrivals)

    cast(Any, consumer).poll = poll
    assert delivered(consumer, 0, 3) == [0, 1, 2]


def test_the_callers_own_time_does_not_count() -> None:
    script = [record(0), event(KafkaError._TRANSPORT), record(1)]
    consumer = ScriptedConsumer(script=script, bursts=[1, 1, 1])
    assert delivered(consumer, 0, 2, caller_takes_s=10 * TIMEOUT_S) == [0, 1]


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_refusal_that_lasts_is_an_error_even_if_later_errors_hide_it(code: int) -> None:
    consumer = ScriptedConsumer(script=[])
    noted = [KafkaError(code, "no entry"), KafkaError(KafkaError._ALL_BROKERS_DOWN)]
    with pytest.raises(AuthenticationError, match="no entry"):
        delivered(consumer, 0, 1, errors=noted)
    assert waited_s(consumer) == pytest.approx(REFUSAL_PATIENCE_S, abs=1)


def test_a_refusal_that_passes_is_forgotten() -> None:
    script = [event(KafkaError.TOPIC_AUTHORIZATION_FAILED), record(0), event(KafkaError._TRANSPORT)]
    with pytest.raises(ReadTimeoutError):
        delivered(ScriptedConsumer(script=script, log_end=2), 0, 2)


@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.UNSUPPORTED_VERSION])
def test_an_error_that_librdkafka_would_pass_over_ends_the_reading(code: int) -> None:
    consumer = ScriptedConsumer(script=[record(0), event(code), record(2)], log_end=3)
    with pytest.raises(BrokerError, match=r"orders-7: reading \[1, 3\) failed"):
        delivered(consumer, 0, 3)


def test_a_fatal_error_of_the_client_ends_the_reading_at_once() -> None:
    fatal = cast(
        KafkaError,
        SimpleNamespace(code=lambda: KafkaError._FATAL, fatal=lambda: True, name=lambda: "_FATAL", str=lambda: "gone"),
    )
    consumer = ScriptedConsumer(script=[])
    with pytest.raises(BrokerError, match="gone"):
        delivered(consumer, 0, 1, errors=[fatal])
    assert waited_s(consumer) < 1


def test_a_refusal_by_the_group_coordinator_does_not_matter() -> None:
    script = [event(KafkaError.GROUP_AUTHORIZATION_FAILED), record(0)]
    assert delivered(ScriptedConsumer(script=script), 0, 1) == [0]


@pytest.mark.parametrize(
    "script",
    [
        [record(9)],
        [event(KafkaError._BAD_MSG)],
        [event(KafkaError.TOPIC_AUTHORIZATION_FAILED)],
        [event(KafkaError._AUTO_OFFSET_RESET)],
        [],
    ],
)
def test_every_error_of_the_reader_survives_pickling_as_text(script: list[Message]) -> None:
    with pytest.raises(KafkaGroupError) as raised:
        delivered(ScriptedConsumer(script=script), 10, 12)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), vars(again)) == (type(raised.value), str(raised.value), vars(raised.value))
