"""How the direct reader handles brokers that pause, move partitions, are slow, or send invalid answers."""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import struct
import threading
import time
from collections.abc import Iterator
from typing import cast
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.columns import record_batches
from pyspark_kafka_group.offsets.errors import RecordBatchTooLargeError, UnreadableBatchError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading import direct_client, rack, range_reader
from pyspark_kafka_group.reading.answer_time import AnswerTime
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.fetcher import Failed, Fetcher, FetchRange
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_client import ReaderEvent, UnreadableBatch
from pyspark_kafka_group.reading.reader_config import direct_settings, reader_config
from pyspark_kafka_group.reading.task_reader import read_with
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.leaders import LeaderTimings
from pyspark_kafka_group.wire.types import (
    Address,
    LargeResponseError,
    ProtocolError,
    RefusedCredentialsError,
    UnsupportedVersionError,
)
from tests.connector.columns.batches import batch_of, compress, crc32c, framed
from tests.connector.columns.test_from_messages import record
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.scripted_broker import (
    LEADER,
    NO_PARTITION,
    OTHER,
    Answer,
    Asked,
    Cluster,
    client_of,
    log_of,
)

TP = TopicPartition("orders", 0)
NOT_LEADER = 6


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    need_native_library()
    monkeypatch.setattr(range_reader, "_WARNED", set())


# Short pauses between two questions about a leader keep the tests fast.
FAST = LeaderTimings(pause_s=0.001, longest_pause_s=0.01)


class Reading:
    """A range that is read directly, to its end or to an unreadable batch.

    Attributes
    ----------
    offsets : list of int
        What the direct reader has read.
    events : list of str
        The events, by librdkafka's names of their errors.
    unreadable : UnreadableBatch or None
        The batch that cannot be read.
    """

    def __init__(
        self, client: DirectClient, until: int, *, start: int = 0, most_events: int = 1000, direct: bool = True
    ) -> None:
        self.offsets: list[int] = []
        self.events: list[str] = []
        self.unreadable: UnreadableBatch | None = None
        position = start
        deadline = time.monotonic() + 20
        client.assign({TP: OffsetRange(Offset(start), Offset(until))}, ("offset",))
        while position < until and len(self.events) < most_events:
            assert time.monotonic() < deadline, "reading does not end"
            found = client.poll({TP: until}, 0.05)
            if found is None:
                continue
            if isinstance(found, ReaderEvent):
                self.events.append(found.error.name())
                continue
            if isinstance(found, UnreadableBatch):
                assert found.start >= position
                self.unreadable = found
                break
            assert found.position > position, "a reader must move, and must not go back"
            position = found.position
            if found.batch is not None:
                self.offsets += found.batch.column("offset").to_pylist()
        left = left_of(client)
        client.unassign_all()
        assert not direct or left is None, "the other client has read"


def left_of(client: DirectClient) -> OffsetRange | None:
    """Return what the direct reader has left to the other client."""
    fallback = cast(MagicMock | None, client._fallback)
    return None if fallback is None else fallback.assign.call_args.args[0].get(TP)


@contextlib.contextmanager
def reader(cluster: Cluster, leaders: LeaderTimings = FAST, /, **properties: str) -> Iterator[DirectClient]:
    client = client_of(cluster, leaders, **properties)
    try:
        yield client
    finally:
        client.close()


def read_from(cluster: Cluster, until: int, *, most_events: int = 1000, rack: str = "") -> Reading:
    with reader(cluster, **({"client.rack": rack} if rack else {})) as client:
        return Reading(client, until, most_events=most_events)


def test_honest_brokers_are_read_directly() -> None:
    assert read_from(log_of(5), 50).offsets == list(range(50))


# ---------------------------------------------------------------------------------------- throttling


def test_a_throttled_reader_asks_again_after_the_pause_and_goes_on_directly() -> None:
    """Regression (KIP-219): the reader sent its next request at once.

    The broker did not read that request, and then librdkafka read for 30 s.
    """
    cluster = log_of(3)
    pauses = [400, 0, 300]

    def throttled(asked: Asked) -> Answer:
        pause = pauses.pop(0) if pauses else 0
        return Answer(throttle_ms=pause) if pause else cluster.honest(asked)

    cluster.answer = throttled
    with reader(cluster) as client:
        client._patience_s = 0.2  # less than a pause, because a pause does not count as silence
        first = Reading(client, 20)
        second = Reading(client, 30, start=20)
    assert first.offsets + second.offsets == list(range(30))
    times = [asked.time for asked in cluster.asked]
    assert times[1] - times[0] >= 0.4
    assert times[3] - times[2] >= 0.3


def test_a_reader_that_is_throttled_for_long_can_be_closed() -> None:
    cluster = log_of(1)
    asked = threading.Event()

    def throttled(_asked: Asked) -> Answer:
        asked.set()
        return Answer(throttle_ms=2**31 - 1)

    cluster.answer = throttled
    with reader(cluster) as client:
        client.assign({TP: OffsetRange(Offset(0), Offset(10))}, ("offset",))
        assert asked.wait(20)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert len(cluster.asked) == 1


# ------------------------------------------------------------------------------------ leaders that move


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78])
def test_a_partition_whose_leader_moves_is_read_on_directly(code: int) -> None:
    """Regression: librdkafka read for 30 s."""
    cluster = log_of(6)

    def moving(asked: Asked) -> Answer:
        if asked.at == LEADER and asked.offset >= 30:
            cluster.leader = OTHER
            return Answer(error=code)
        found = cluster.honest(asked)
        if asked.at == LEADER:
            found.records = b"".join(batch for batch in cluster._batches[:3])
        return found

    cluster.answer = moving
    assert read_from(cluster, 60).offsets == list(range(60))
    assert [(asked.at, asked.offset) for asked in cluster.asked] == [(LEADER, 0), (LEADER, 30), (OTHER, 30)]


def test_a_leader_that_moves_again_after_records_is_looked_for_at_once() -> None:
    """Only a leader that moves without records in between is looked for after a pause."""
    cluster = log_of(6)

    def moving(asked: Asked) -> Answer:
        if asked.at == LEADER and asked.offset == 20:
            cluster.leader = OTHER
            return Answer(error=NOT_LEADER)
        if asked.at == OTHER and asked.offset == 40:
            cluster.leader = LEADER
            raise ConnectionResetError("gone")
        found = cluster.honest(asked)
        found.records = b"".join(cluster._batches[asked.offset // 10 : asked.offset // 10 + 2])
        return found

    cluster.answer = moving
    with reader(cluster, LeaderTimings(pause_s=60.0, longest_pause_s=60.0)) as client:
        assert Reading(client, 60).offsets == list(range(60))
    assert [asked.at for asked in cluster.asked] == [LEADER, LEADER, OTHER, OTHER, LEADER]


def assert_growing(looks: list[float]) -> None:
    """Assert that each of three pauses lasts twice as long as the one before it."""
    pauses = [later - sooner for sooner, later in itertools.pairwise(looks)]
    assert all(pause >= least for pause, least in zip(pauses, (0.01, 0.02, 0.04), strict=True))


def test_servers_that_do_not_answer_are_asked_after_pauses() -> None:
    cluster = log_of(2)
    looks: list[float] = []

    def refuse(_address: Address, **_more: object) -> BrokerConnection:
        looks.append(time.monotonic())
        raise ConnectionRefusedError("nobody listens")

    with reader(cluster, LeaderTimings(pause_s=0.01)) as client:
        client._questions.connect = refuse
        read = Reading(client, 20, most_events=4)
        assert not client._leaders.next_at.is_set, "the next task does not look for this partition"
    assert read.events == ["_TRANSPORT"] * 4
    assert_growing(looks)


def test_an_election_is_waited_for_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = log_of(2)
    looks: list[float] = []
    metadata = cluster.metadata

    def electing(body: bytes) -> bytes:
        looks.append(time.monotonic())
        cluster.leader = None if len(looks) < 4 else LEADER
        return metadata(body)

    monkeypatch.setattr(cluster, "metadata", electing)
    with reader(cluster, LeaderTimings(pause_s=0.01)) as client:
        read = Reading(client, 20)
    assert read.offsets == list(range(20))
    assert_growing(looks)


def test_a_leader_that_refuses_for_a_moment_is_asked_again_after_a_pause() -> None:
    cluster = log_of(2)
    refusals = [NOT_LEADER, NOT_LEADER, NOT_LEADER]
    cluster.answer = lambda asked: Answer(error=refusals.pop()) if refusals else cluster.honest(asked)
    assert read_from(cluster, 20).offsets == list(range(20))


def test_a_partition_that_finds_no_leader_is_searched_for_with_pauses() -> None:
    """The range reader decides when to stop."""
    cluster = log_of(2)
    cluster.leader = None
    read = read_from(cluster, 20, most_events=20)
    assert read.events == ["LEADER_NOT_AVAILABLE"] * 20
    assert cluster.looks <= 21


def test_a_partition_that_does_not_exist_is_told() -> None:
    cluster = log_of(2)
    cluster.leader = NO_PARTITION
    with reader(cluster) as client:
        read = Reading(client, 20, most_events=3)
        client.assign({TP: OffsetRange(Offset(0), Offset(20))}, ("offset",))
        error = client.partition_errors(1)[TP]
    assert read.events == ["UNKNOWN_TOPIC_OR_PART"] * 3
    assert error.name() == "UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize("broken", [ConnectionResetError("gone"), TimeoutError("no answer"), ProtocolError("nonsense")])
def test_a_lost_connection_is_made_again_and_nothing_is_read_twice(broken: Exception) -> None:
    """Regression: librdkafka took over, and could not log in with Kerberos.  A rolling restart failed tasks."""
    cluster = log_of(6)
    failures = [broken] * 3

    def answer(asked: Asked) -> Answer:
        if asked.offset >= 30 and failures:
            raise failures.pop()
        found = cluster.honest(asked)
        found.records = b"".join(cluster._batches[:3]) if asked.offset < 30 else found.records
        return found

    cluster.answer = answer
    read = read_from(cluster, 60)
    assert read.offsets == list(range(60))
    assert read.events == ["_TIMED_OUT" if isinstance(broken, TimeoutError) else "_TRANSPORT"] * 3


@pytest.mark.parametrize(
    ("problem", "event"),
    [(ConnectionRefusedError("down"), "_TRANSPORT"), (RefusedCredentialsError("who?"), "_AUTHENTICATION")],
)
def test_servers_that_refuse_a_connection_are_asked_again(
    problem: Exception, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = log_of(2)
    connect, failures = cluster.connect, [problem] * 3

    def connecting(address: Address, **more: object) -> BrokerConnection:
        if failures:
            raise failures.pop()
        return connect(address, **more)

    monkeypatch.setattr(cluster, "connect", connecting)
    with reader(cluster) as client:
        read = Reading(client, 20)
        failures.extend([problem] * 3)  # of the bootstrap server and both brokers
        with pytest.raises(KafkaException, match=event):
            client.watermarks(TP, 1)
        failures.clear()
        assert client.watermarks(TP, 1) == (0, 20)
    assert (read.offsets, read.events) == (list(range(20)), [event] * 3)


def test_brokers_that_are_too_old_are_left_to_the_other_client() -> None:
    cluster = log_of(2)
    cluster.answer = MagicMock(side_effect=UnsupportedVersionError("too old"))
    with reader(cluster) as client:
        for until in (20, 10):
            Reading(client, until, direct=False)
            assert left_of(client) == OffsetRange(Offset(0), Offset(until))
    assert len(cluster.asked) == 1, "the second time at once"


def test_an_answer_of_nothing_does_not_hold_the_task() -> None:
    """Regression: a broker that answers at once, empty and with a short pause, held a task for ever."""
    cluster = log_of(2)
    cluster.answer = lambda _asked: Answer(throttle_ms=1)
    with reader(cluster) as client:
        client.assign({TP: OffsetRange(Offset(0), Offset(20))}, ("offset",))
        for wait_s in (0.0, 0.2):
            began = time.monotonic()
            assert client.poll({TP: 20}, wait_s) is None
            assert wait_s <= time.monotonic() - began < wait_s + 1


# ------------------------------------------------------------------------------- slow brokers


def test_records_that_take_long_are_waited_for() -> None:
    """This happens in tiered storage before Kafka 3.8.

    Regression: each fetch waited only 20 ms, and the broker never found the records within this time.
    """
    cluster = log_of(2)
    cluster.answer = lambda asked: cluster.honest(asked) if asked.wait_ms >= 2000 else Answer(log_end=20)
    with reader(cluster) as client:
        client._patience_s = 0.3
        read = Reading(client, 20)
    assert read.offsets == list(range(20))
    assert [asked.wait_ms for asked in cluster.asked] == [500, 1000, 2000]


def nothing_yet(_asked: Asked) -> Answer:
    """Answer that there are records, but send none."""
    time.sleep(0.01)
    return Answer(log_end=20)


def test_a_log_that_ends_too_soon_is_told() -> None:
    cluster = log_of(2)
    read = read_from(cluster, 50, most_events=2)
    assert (read.offsets, read.events) == (list(range(20)), ["_PARTITION_EOF"] * 2)
    assert {asked.wait_ms for asked in cluster.asked} == {500}


def test_what_a_user_says_about_waiting_holds() -> None:
    cluster = log_of(2)
    cluster.answer = nothing_yet
    with reader(cluster, **{"fetch.wait.max.ms": "50"}) as client:
        client.assign({TP: OffsetRange(Offset(0), Offset(20))}, ("offset",))
        assert client.poll({TP: 20}, 0.1) is None
    assert {asked.wait_ms for asked in cluster.asked} == {50}


# ------------------------------------------------------------------------------ batches that cannot be read


def unreadable_log(name: str) -> Cluster:
    """Return a log of three batches of ten records, of which the second one cannot be read."""
    cluster = log_of(3, codec="gzip" if name == "compression" else "none")
    bad = bytearray(cluster._batches[1])
    if name == "checksum":
        bad[-1] ^= 1
    elif name == "compression":
        bad[63:65] = b"xx"
    else:
        bad[57:61] = (1000).to_bytes(4, "big")  # more records than there are
    if name != "checksum":
        bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    cluster._batches = [cluster._batches[0], bytes(bad), cluster._batches[2]]
    return cluster


@pytest.mark.parametrize(
    ("name", "start", "reason"),
    [
        ("checksum", 10, "a corrupt record batch"),
        ("compression", 10, r"it cannot be decompressed \("),
        ("records", 20, "a record in it is malformed"),
    ],
)
def test_a_batch_that_cannot_be_read_is_an_error_or_passed_over(
    name: str, start: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: librdkafka took over, because of what a producer had written, and ended the query for good."""
    tps = {TP: OffsetRange(Offset(0), Offset(30))}
    cluster = unreadable_log(name)
    with reader(cluster) as client:
        strict = ReadOptions(columns=("offset",), fail_on_data_loss=True, timeout_s=20)
        with pytest.raises(UnreadableBatchError, match=rf"^orders-0: offsets \[{start}, 20\) cannot be read: {reason}"):
            list(read_with(client, tps, strict))
    with reader(cluster) as client:
        lenient = ReadOptions(columns=("offset",), fail_on_data_loss=False, timeout_s=20)
        batches = read_with(client, tps, lenient)
        found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert client._fallback is None
    assert found == [*range(start), *range(20, 30)]
    assert f"orders-0: offsets [{start}, 20) are lost, because they cannot be read" in caplog.text


@pytest.mark.parametrize(
    "bad", [unreadable_log("compression")._batches[1], framed(10, 9, b"\xff" * 20, 10)], ids=["compression", "record"]
)
def test_a_batch_beyond_the_range_need_not_be_readable(bad: bytes) -> None:
    """Regression: a range that ended in a gap failed, even if it ended there to avoid the next batch."""
    cluster = Cluster([batch_of([record(offset, value=b"a") for offset in range(9)]), bad], 20)
    read = read_from(cluster, 10)
    assert (read.offsets, read.unreadable) == ([*range(9)], None)


def test_a_batch_that_was_damaged_on_its_way_is_fetched_again() -> None:
    cluster, damaged = log_of(3), unreadable_log("checksum")._batches[1]
    whole = cluster._batches
    cluster.answer = lambda asked: Answer(
        log_end=30, records=damaged if asked.offset == 10 and len(cluster.asked) < 4 else whole[asked.offset // 10]
    )
    read = read_from(cluster, 30)
    assert read.unreadable is None
    assert read.offsets == list(range(30))


def test_a_format_from_before_kafka_0_11_is_left_to_the_other_client() -> None:
    cluster = log_of(2)
    old = bytearray(cluster._batches[1])
    old[16] = 1
    cluster._batches = [cluster._batches[0], bytes(old)]
    with reader(cluster) as client:
        assert Reading(client, 20, direct=False).offsets == list(range(10))
        assert left_of(client) == OffsetRange(Offset(10), Offset(20))


@pytest.mark.parametrize("records", [b"\0", batch_of([record(0)])[:60], batch_of([record(0)])[:-1]])
def test_a_batch_that_is_never_whole_is_an_error(records: bytes) -> None:
    """Regression: the reader requested the batch again and again, as fast as the broker answered."""
    cluster = log_of(2)
    cluster.answer = lambda _asked: Answer(log_end=20, records=records)
    read = read_from(cluster, 20)
    assert read.unreadable is not None
    assert "never whole" in str(read.unreadable.error)
    assert len(cluster.asked) <= 9


def test_a_batch_whose_end_is_unknown_is_not_passed_over() -> None:
    cluster = log_of(2)
    cluster.answer = lambda _asked: Answer(log_end=20, records=b"\0")
    lenient = ReadOptions(columns=("offset",), fail_on_data_loss=False, timeout_s=20)
    with reader(cluster) as client, pytest.raises(UnreadableBatchError, match="never whole"):
        list(read_with(client, {TP: OffsetRange(Offset(0), Offset(20))}, lenient))


def test_an_answer_for_another_partition_is_asked_for_again() -> None:
    cluster = log_of(2)
    fetch = cluster.fetch
    cluster.fetch = lambda *asked, **more: fetch(*asked, **more).replace(b"orders", b"others")  # type: ignore[method-assign]
    read = read_from(cluster, 20, most_events=2)
    assert read.events == ["_TRANSPORT"] * 2


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), codec=st.sampled_from(["none", "lz4", "snappy", "xerial", "gzip", "zstd"]))
def test_whatever_brokers_send_a_reader_moves_never_goes_back_and_ends(seed: int, codec: str) -> None:
    """`Reading` checks each step."""
    chance = random.Random(seed)
    cluster = log_of(6, codec=codec)
    properties = {"check.crcs": chance.choice(["true", "false"]), "receive.message.max.bytes": "1000000"}

    def hostile(asked: Asked) -> Answer:
        found = cluster.honest(asked)
        match chance.randrange(6):
            case 0:
                found.records = b"".join(chance.sample(list(cluster._batches), chance.randrange(6)))
            case 1:
                found.records = mutated(found.records, chance)
            case 2:
                found.records = found.records[: chance.randrange(len(found.records) + 1)]
            case 3:
                found.aborted = [chance.randrange(-1, 2) for _ in range(2 * chance.randrange(3))]
        return found

    cluster.answer = hostile
    with reader(cluster, **properties) as client:
        read = Reading(client, 60, most_events=20, direct=False)
    assert read.offsets == sorted(set(read.offsets))
    assert all(0 <= offset < 60 for offset in read.offsets)
    if read.unreadable is not None and read.offsets:
        assert read.unreadable.start > read.offsets[-1]
    assert len(cluster.asked) < 200


def mutated(records: bytes, chance: random.Random) -> bytes:
    """Return the records with a changed field in the header of the first batch, and perhaps another changed byte."""
    if len(records) < 61:
        return records
    found = bytearray(records)
    at, layout = chance.choice([(0, ">q"), (8, ">i"), (21, ">h"), (23, ">i"), (57, ">i")])
    (value,) = struct.unpack_from(layout, found, at)
    bits = 8 * struct.calcsize(layout) - 1
    value = chance.choice([value + chance.randrange(-20, 20), 0, -1, -12, 2**bits - 1, -(2**bits)])
    struct.pack_into(layout, found, at, max(-(2**bits), min(2**bits - 1, value)))
    if chance.random() < 0.5:
        found[chance.randrange(len(found))] ^= chance.randrange(1, 256)
    return bytes(found)


# --------------------------------------------------------------------------------------- memory


def test_a_batch_that_is_too_large_when_decompressed_is_an_error_that_names_the_property() -> None:
    """The reader delivers the records before it."""
    small, large = record(0, value=b"v"), record(1, value=bytes(2_000_000))
    cluster = Cluster([batch_of([small]), batch_of([large], codec="zstd")], 2)
    with reader(cluster, **{"receive.message.max.bytes": "1000000"}) as client:
        assert Reading(client, 1).offsets == [0], "what is not asked for is not decompressed"
        found = Reading(client, 2).unreadable
        assert client._fallback is None
    assert found is not None
    assert (found.start, found.until) == (1, 2)
    assert isinstance(found.error, RecordBatchTooLargeError)
    assert (found.error.offset, found.error.limit_bytes) == (1, 1_000_000)
    assert "orders-0: the record batch at offset 1 is" in str(found.error)
    assert "kafka.receive.message.max.bytes" in str(found.error)
    assert "set failOnDataLoss=false to continue without the offsets [1, 2)" in str(found.error)
    with reader(cluster, **{"receive.message.max.bytes": "3000000"}) as client:
        assert Reading(client, 2).offsets == [0, 1]


def test_a_response_that_is_too_large_is_an_error_that_names_the_property(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = log_of(2)
    monkeypatch.setattr(cluster, "fetch", MagicMock(side_effect=LargeResponseError(200_000_000)))
    with (
        reader(cluster) as client,
        pytest.raises(RecordBatchTooLargeError, match=r"200000000 bytes.* allows 100000000"),
    ):
        Reading(client, 20)


def test_the_error_of_a_large_response_names_the_partition_with_the_large_batch() -> None:
    """Regression: it named the first one of the request, whose records the user would then delete."""
    cluster = log_of(2)
    answer = cluster.fetch

    def fetch(address: Address, body: bytes, **more: bool) -> bytes:
        if b"large" in body:
            raise LargeResponseError(200_000_000)
        return answer(address, body, **more)

    cluster.fetch = fetch  # type: ignore[method-assign]
    found_settings = direct_settings(reader_config({"bootstrap.servers": "bootstrap:1"}, "etl"))
    assert found_settings is not None
    delivered: queue.SimpleQueue[object] = queue.SimpleQueue()
    library = record_batches.BATCHES.library
    assert library is not None
    fetcher = Fetcher(library, LEADER, cluster.connect, found_settings.fetch, delivered.put, answer_time=AnswerTime(60))
    large = TopicPartition("large", 0)
    fetcher.add([FetchRange(TP, 2, 5), FetchRange(large, 7, 9)])
    found = delivered.get(timeout=10)
    while not isinstance(found, Failed):
        found = delivered.get(timeout=10)
    fetcher.close()
    assert isinstance(found.reason, RecordBatchTooLargeError)
    assert (found.reason.topic, found.reason.offset) == ("large", 7)


def test_a_response_that_arrives_slowly_is_not_taken_for_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: librdkafka took over, and downloaded it once more."""
    monkeypatch.setattr(direct_client, "_PATIENCE_S", 0.1)
    cluster = log_of(5)
    cluster.download_s = 1.5
    read = read_from(cluster, 5)
    assert read.offsets == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("batch_bytes", "response_bytes"), [(1000, 16 * 2**20), (2**30, 2**30)])
def test_a_response_may_hold_more_than_one_batch_may(
    monkeypatch: pytest.MonkeyPatch, batch_bytes: int, response_bytes: int
) -> None:
    """A response of small batches may have up to 16 MB, whatever the limit of one batch is."""
    cluster = log_of(2)
    believed: list[int] = []
    connect = cluster.connect

    def note(address: Address, **more: object) -> BrokerConnection:
        believed.append(cast(int, more.get("most_bytes", -1)))
        return connect(address)

    monkeypatch.setattr(cluster, "connect", note)
    with reader(cluster, **{"receive.message.max.bytes": str(batch_bytes)}) as client:
        Reading(client, 20)
    assert believed[0] == -1, "to look for the leader"
    assert response_bytes < believed[1] < response_bytes + 2 * 2**20


def test_no_more_is_decompressed_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One response contains far more than the reader may fetch ahead."""
    monkeypatch.setattr(record_batches, "_PIECE_BYTES", 1)
    value = bytes(10_000)
    batches = [batch_of([record(offset, value=value)], codec="zstd") for offset in range(100)]
    assert len(compress("zstd", value)) < 100
    cluster = Cluster(batches, 100)
    with reader(cluster, **{"queued.max.messages.kbytes": "50"}) as client:
        client.assign({TP: OffsetRange(Offset(0), Offset(100))}, ("offset",))
        while client._fetchers._delivered.qsize() < 6:
            time.sleep(0.01)
        time.sleep(0.1)
        assert client._fetchers._delivered.qsize() == 6
        assert len(cluster.asked) == 1
        client.unassign_all()
        read = Reading(client, 100)
    assert read.offsets == list(range(100))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [({}, [1, 1, 2, 4, 4]), ({"fetch.message.max.bytes": str(2**20)}, [1] * 12)],
    ids=["default", "set by the user"],
)
def test_a_long_range_is_fetched_in_larger_parts_unless_the_user_sets_the_size(
    properties: dict[str, str], expected: list[int]
) -> None:
    batches = [batch_of([record(offset, value=bytes(2**20))]) for offset in range(12)]
    cluster = Cluster(batches, 12)

    def whole_batches(asked: Asked) -> Answer:
        found = batches[asked.offset : asked.offset + asked.most_bytes // 2**20]
        return Answer(log_end=12, records=b"".join(found))

    cluster.answer = whole_batches
    with reader(cluster, **properties) as client:
        assert Reading(client, 12).offsets == list(range(12))
    assert [round(asked.most_bytes / 2**20) for asked in cluster.asked] == expected


# ------------------------------------------------------------------------------------- messages


def test_that_a_reader_retries_is_a_warning_once_per_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pyspark_kafka_group.reading")
    cluster = log_of(2)
    for error in (7, 7, 2):
        cluster.answer = lambda _asked, error=error: Answer(error=error)  # type: ignore[misc]
        with reader(cluster) as client:
            Reading(client, 20, most_events=1)
    told = [(line.levelname, line.getMessage()) for line in caplog.records if "retrying" in line.getMessage()]
    levels = [level for level, _ in told]
    assert levels.count("WARNING") == 2
    assert levels[0] == "WARNING"
    assert "orders-0 cannot be fetched from offset 0: REQUEST_TIMED_OUT" in told[0][1]


def test_the_warning_tells_no_secrets(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = log_of(2)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with reader(cluster, **login, **{"sasl.password": "hunter2"}) as client:
        refuse = MagicMock(side_effect=ConnectionError("the password hunter2 is wrong"))
        monkeypatch.setattr(client._fetchers, "_connect", refuse)
        Reading(client, 20, most_events=2)
    assert "is wrong" in caplog.text
    assert "hunter2" not in caplog.text


# ---------------------------------------------------------------------------------------- followers

FOLLOWER_ID = 1  # the id of OTHER


def named_by_the_leader(cluster: Cluster, asked: Asked) -> Answer:
    """Answer as in KIP-392: the leader sends no records to a reader in the follower's rack."""
    if asked.at == LEADER and asked.rack == "a":
        return Answer(log_end=30, read_from=FOLLOWER_ID)
    return cluster.honest(asked)


def test_a_follower_that_the_leader_names_is_read_from() -> None:
    cluster = log_of(3)
    cluster.answer = lambda asked: named_by_the_leader(cluster, asked)
    with reader(cluster, **{"client.rack": "a"}) as client:
        first, second = Reading(client, 20), Reading(client, 30, start=20)
    assert first.offsets + second.offsets == list(range(30))
    assert [asked.at for asked in cluster.asked if asked.at == LEADER] == [LEADER], "once, not for each reading"
    assert cluster.asked[-1].at == OTHER


def test_after_a_while_the_leader_is_asked_again() -> None:
    cluster = log_of(3)
    cluster.answer = lambda asked: named_by_the_leader(cluster, asked)
    with reader(cluster, LeaderTimings(age_s=0.0), **{"client.rack": "a"}) as client:
        Reading(client, 20)
        Reading(client, 30, start=20)
    assert [asked.at for asked in cluster.asked].count(LEADER) == 2


def test_a_follower_that_refuses_sends_back_to_the_leader() -> None:
    """The follower is no longer a replica.  Then the leader serves the reader, unless it names a follower."""
    cluster = log_of(3)
    cluster.answer = lambda asked: (
        Answer(error=NOT_LEADER)
        if asked.at == OTHER
        else named_by_the_leader(cluster, asked)
        if len(cluster.asked) == 1
        else cluster.honest(asked)
    )
    assert read_from(cluster, 30, rack="a").offsets == list(range(30))
    assert [asked.at for asked in cluster.asked][:3] == [LEADER, OTHER, LEADER]


@pytest.mark.parametrize("broker_id", [0, 7], ids=["the leader itself", "nobody"])
def test_a_leader_that_names_no_other_broker_is_asked_without_the_rack(broker_id: int) -> None:
    cluster = log_of(3)
    cluster.answer = lambda asked: (
        cluster.honest(asked) if asked.rack is None else Answer(log_end=30, read_from=broker_id)
    )
    assert read_from(cluster, 30, rack="a").offsets == list(range(30))


_STALL_S = 0.4
"""How long a broker sleeps.  A test cannot interrupt it."""


def test_a_follower_that_stalls_is_left_for_the_leader() -> None:
    """Regression: librdkafka took over, sent the rack to the leader, and the leader named the same follower."""
    cluster = log_of(3)

    def answer(asked: Asked) -> Answer:
        if asked.at == OTHER:
            time.sleep(_STALL_S)
        return named_by_the_leader(cluster, asked)

    cluster.answer = answer
    with reader(cluster, **{"client.rack": "a"}) as client:
        client._patience_s = _STALL_S / 4
        first, second = Reading(client, 20), Reading(client, 30, start=20)
    assert first.offsets + second.offsets == list(range(30))
    assert {(asked.at, asked.rack) for asked in cluster.asked} == {(LEADER, "a"), (OTHER, "a"), (LEADER, None)}
    assert [asked.at for asked in cluster.asked].count(OTHER) == 1, "nor by the next reading"


def test_a_follower_that_breaks_off_half_way_is_left_for_the_leader() -> None:
    """The reader does not fetch again what the follower has sent."""
    cluster = log_of(3)

    def answer(asked: Asked) -> Answer:
        if asked.at == OTHER and asked.offset > 0:
            raise ConnectionResetError("gone")
        if asked.at == OTHER:
            return Answer(log_end=30, records=cluster._batches[0])
        return named_by_the_leader(cluster, asked)

    cluster.answer = answer
    assert read_from(cluster, 30, rack="a").offsets == list(range(30))


def test_followers_are_read_from_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack, "HIDDEN_S", 0.3)
    cluster = log_of(3)
    failures = [ConnectionResetError("gone")]

    def answer(asked: Asked) -> Answer:
        if asked.at == OTHER and failures:
            raise failures.pop()
        return named_by_the_leader(cluster, asked)

    cluster.answer = answer
    with reader(cluster, **{"client.rack": "a"}) as client:
        assert Reading(client, 20).offsets == list(range(20))
        assert cluster.asked[-1].at == LEADER
        time.sleep(0.3)
        Reading(client, 30, start=20)
    assert cluster.asked[-1].at == OTHER


def test_brokers_that_do_not_know_racks_are_read_without() -> None:
    """Brokers before Kafka 2.3 do not know racks."""
    cluster = log_of(3)
    cluster.newest_fetch = 10
    with reader(cluster, **{"client.rack": "a"}) as client:
        Reading(client, 30)
    assert {asked.rack for asked in cluster.asked} == {None}
