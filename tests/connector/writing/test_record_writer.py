"""Rows become the record batches that Kafka's protocol describes."""

from __future__ import annotations

import gc
import os
import resource
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.columns.decompression import decompress
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.writing.compression import Compression
from pyspark_kafka_group.writing.record_rows import RecordColumns, Rows, record_rows
from pyspark_kafka_group.writing.record_writer import HEADER_BYTES, EncodedRecords, RecordWriter, Stop, Written, sealed
from tests.connector.columns.batches import crc32c, framed, record_bytes
from tests.connector.columns.test_from_messages import record
from tests.connector.columns.test_record_batches import Reading
from tests.connector.reading.clients import need_native_library
from tests.connector.writing.murmur2 import MURMUR2

NOW = 1_700_000_000_000
COLUMNS = RecordColumns(key=0, value=1, topic=2, partition=3, headers=4)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = (pa.binary(), pa.binary(), pa.string(), pa.int32(), HEADERS)
PARTITIONS = {"a": 3, "b": 1}
LARGE = 1_000_000

Row = tuple[bytes | None, bytes | None, str, int | None, list[tuple[str, bytes | None]] | None]

data = st.none() | st.binary(max_size=300)
lists = st.none() | st.lists(st.tuples(st.sampled_from(["a", "", "ü"]), data), max_size=3)


@st.composite
def a_row(draw: st.DrawFn) -> Row:
    """Return a row with a partition or a key, so that its place is known."""
    topic = draw(st.sampled_from(sorted(PARTITIONS)))
    partition = draw(st.none() | st.integers(0, PARTITIONS[topic] - 1))
    key = draw(st.binary(max_size=300) if partition is None else data)
    return key, draw(data), topic, partition, draw(lists)


rows = a_row()


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    need_native_library()


def arrow(found: Sequence[Row], *, before: int = 0) -> Rows:
    """Return rows as a slice behind other ones."""
    padded = [*[(b"other", b"other", "a", 0, [("other", b"other")])] * before, *found]
    columns: list[list[Any]] = [[row[at] for row in padded] for at in range(len(TYPES))]
    columns[4] = [one and [{"key": key, "value": value} for key, value in one] for one in columns[4]]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, TYPES, strict=True)],
        names=["key", "value", "topic", "partition", "headers"],
    )
    return record_rows(batch.slice(before), COLUMNS, None)


def row(
    value: bytes | None = b"v",
    *,
    key: bytes | None = None,
    topic: str = "a",
    partition: int | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
) -> Row:
    return key, value, topic, partition, headers


def writer(*, batch_bytes: int = LARGE, record_bytes: int = LARGE, **partitions: int) -> RecordWriter:
    made = RecordWriter(batch_bytes=batch_bytes, record_bytes=record_bytes)
    for topic, count in (partitions or PARTITIONS).items():
        made.set_partitions(topic, count)
    return made


def expected(found: Sequence[Row], times: Sequence[int]) -> bytes:
    """Return one batch of these rows, encoded in Python, of a producer 7 with epoch and sequence 0."""
    messages = [
        record(offset, key=key, value=value, headers=list(headers or []), timestamp=(TIMESTAMP_CREATE_TIME, ms))
        for offset, ((key, value, _, _, headers), ms) in enumerate(zip(found, times, strict=True))
    ]
    records = b"".join(record_bytes(message, 0, times[0]) for message in messages)
    count = len(found)
    whole = framed(0, count - 1, records, count, first_timestamp=times[0], max_timestamp=max(times), producer=7)
    return whole[:12] + struct.pack(">i", -1) + whole[16:]  # the leader's epoch, which the broker sets


def whole(records: EncodedRecords, compression: Compression | None = None) -> bytes:
    found = sealed(records, producer_id=7, epoch=0, sequence=0, compression=compression)
    parts = [memoryview(part) for part in found]
    assert all(len(part) == part.nbytes for part in parts)  # regression: the length was that before compression
    return b"".join(parts)


class Batches:
    """Writes rows and takes full batches, and finally all open ones.

    Attributes
    ----------
    taken : dict
        The records of each partition's batches.
    """

    def __init__(self, wanted: RecordWriter) -> None:
        self.writer = wanted
        self.taken: dict[TopicPartition, list[EncodedRecords]] = {}

    def write(self, found: Rows, now_ms: int = NOW) -> list[Written]:
        """Return where writing has stopped."""
        stops = []
        at, stop = 0, Stop.FULL
        while stop is not Stop.DONE:
            stops.append(self.writer.write(found, at, now_ms))
            at, stop, tp = stops[-1]
            if stop is Stop.FULL:
                assert tp is not None
                self.take(tp)
            elif stop is not Stop.DONE:
                at += 1
        return stops[:-1]

    def take(self, tp: TopicPartition) -> None:
        self.taken.setdefault(tp, []).append(self.writer.take(tp))

    def finish(self) -> dict[TopicPartition, list[EncodedRecords]]:
        for tp in self.writer.open_partitions():
            self.take(tp)
        assert (self.writer.open_partitions(), self.writer.open_bytes) == ([], 0)
        return self.taken


def partition_of(key: bytes, count: int) -> int:
    """Return the partition that Java's producer chooses, with murmur2 as Kafka's Utils has it."""
    factor, bits = 0x5BD1E995, 2**32 - 1
    found = 0x9747B28C ^ len(key)
    whole_words = len(key) // 4 * 4
    for at in range(0, whole_words, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & bits
        found = found * factor & bits ^ (word ^ word >> 24) * factor & bits
    if rest := key[whole_words:]:
        found = (found ^ int.from_bytes(rest, "little")) * factor & bits
    found = (found ^ found >> 13) * factor & bits
    return ((found ^ found >> 15) & 0x7FFFFFFF) % count


@given(parts=st.lists(st.tuples(st.lists(rows, max_size=20), st.integers(0, 3), st.integers(-50, 50)), max_size=4))
def test_records_have_the_bytes_of_the_protocol_and_are_in_order(parts: list[tuple[list[Row], int, int]]) -> None:
    batches = Batches(writer(batch_bytes=2000))
    due: dict[TopicPartition, list[tuple[Row, int]]] = {}
    for found, before, later_ms in parts:
        assert all(one.stop is Stop.FULL for one in batches.write(arrow(found, before=before), NOW + later_ms))
        for one in found:
            key, _, topic, partition, _ = one
            number = partition_of(key or b"", PARTITIONS[topic]) if partition is None else partition
            due.setdefault(TopicPartition(topic, number), []).append((one, NOW + later_ms))
    for tp, taken in batches.finish().items():
        wanted = due.pop(tp)
        for records in taken:
            mine, wanted = wanted[: records.count], wanted[records.count :]
            assert whole(records) == expected(*zip(*mine, strict=True))
            assert records.count == 1 or HEADER_BYTES + records.data.size <= 2000
        assert wanted == []
    assert due == {}


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_the_reader_reads_what_was_written(codec: str | None) -> None:
    found = [
        row(b"%d" % n * (n % 50), key=None if n % 3 else b"%d" % n, partition=0, headers=[("h", None), ("h", b"")])
        for n in range(5000)
    ]
    batches = Batches(writer(batch_bytes=200_000))
    batches.write(arrow(found))
    log, offset = b"", 0
    for records in batches.finish()[TopicPartition("a", 0)]:
        batch = whole(records, Compression(codec) if codec else None)
        assert codec is None or len(batch) < HEADER_BYTES + records.data.size
        log += struct.pack(">q", offset) + batch[8:]
        offset += records.count
    read = pa.Table.from_batches(Reading(log).batches)
    assert read.column("key").to_pylist() == [key for key, *_ in found]
    assert read.column("value").to_pylist() == [value for _, value, *_ in found]
    assert read.column("offset").to_pylist() == [*range(len(found))]
    assert read.column("headers").to_pylist() == [[{"key": "h", "value": None}, {"key": "h", "value": b""}]] * len(
        found
    )
    assert set(read.column("timestamp").cast(pa.int64()).to_pylist()) == {NOW * 1000}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_compression_does_not_make_smaller_stays_as_it_is(codec: str) -> None:
    batches = Batches(writer())
    batches.write(arrow([row(os.urandom(300), partition=0)]))
    [records] = batches.finish()[TopicPartition("a", 0)]
    assert whole(records, Compression(codec)) == whole(records)


def test_blocks_of_lz4_do_not_refer_to_earlier_ones() -> None:
    """Kafka's brokers read each block by itself."""
    noise = os.urandom(1000)
    text = noise * 200  # each block could refer to the one before
    frame = memoryview(Compression("lz4").compress(pa.py_buffer(text)))
    assert frame[:7] == bytes.fromhex("04224d18604082")
    at, found = 7, b""
    while size := int.from_bytes(frame[at : at + 4], "little"):
        block = frame[at + 4 : at + 4 + size]
        left = min(65536, len(text) - len(found))
        found += pa.Codec("lz4_raw").decompress(pa.py_buffer(block), decompressed_size=left, asbytes=True)
        at += 4 + size
    assert (found, at + 4) == (text, len(frame))


def test_a_block_of_lz4_that_does_not_become_smaller_stays_as_it_is() -> None:
    text = os.urandom(65536) + bytes(65536)
    frame = Compression("lz4").compress(pa.py_buffer(text))
    assert frame[7:11] == bytes.fromhex("00000180")
    assert b"".join(map(bytes, decompress(3, memoryview(frame), LARGE))) == text


@pytest.mark.parametrize(("codec", "level"), [("gzip", 10), ("snappy", 1), ("lz4", 13), ("zstd", -2), ("brotli", -1)])
def test_unknown_codecs_and_levels_are_refused(codec: str, level: int) -> None:
    with pytest.raises(ValueError, match=codec):
        Compression(codec, level)


@pytest.mark.parametrize(("codec", "level"), [("gzip", 9), ("snappy", 0), ("lz4", 12), ("zstd", 12), ("gzip", 0)])
def test_levels_of_librdkafka_are_possible(codec: str, level: int) -> None:
    text = b"a text " * 100
    small = Compression(codec, level).compress(pa.py_buffer(text))
    assert b"".join(map(bytes, decompress(Compression(codec).number, memoryview(small), LARGE))) == text


def test_the_header_says_who_wrote_the_batch() -> None:
    batches = Batches(writer())
    batches.write(arrow([row(partition=0)] * 3))
    [records] = batches.finish()[TopicPartition("a", 0)]
    header, rest = sealed(records, producer_id=2**40, epoch=5, sequence=2**31 - 1, transactional=True)
    fields = struct.unpack(">qiibIhiqqqhii", header)
    assert fields[:4] == (0, HEADER_BYTES - 12 + len(rest), -1, 2)
    assert fields[4] == crc32c(header[21:] + bytes(rest))
    assert fields[5:] == (0x10, 2, NOW, NOW, 2**40, 5, 2**31 - 1, 3)
    assert struct.unpack(">qhi", sealed(records)[0][43:57]) == (-1, -1, -1)


def test_our_murmur2_is_that_of_kafka() -> None:
    """The tests above compare with it."""
    assert {key: partition_of(key, 1000) for key in MURMUR2} == {key: n % 2**31 % 1000 for key, n in MURMUR2.items()}


def test_rows_without_a_key_stay_in_a_partition_until_its_batch_is_taken() -> None:
    batches = Batches(writer(batch_bytes=500, a=100))
    batches.write(arrow([row(b"%3d" % n) for n in range(1000)]))
    taken = batches.finish()
    sizes = [records.count for found in taken.values() for records in found]
    assert len(taken) > 10
    assert len([size for size in sizes if size < max(sizes)]) <= 1
    assert sum(sizes) == 1000


def test_rows_without_a_key_are_spread_while_batches_are_open() -> None:
    """Regression: all rows of a batch of 1 MB went to one partition, so a reader had few parallel tasks."""
    batches = Batches(writer(batch_bytes=1_000_000, a=8))
    batches.write(arrow([row(b"x" * 1000) for _ in range(2000)]))
    counts = [sum(records.count for records in found) for found in batches.finish().values()]
    assert len(counts) == 8
    assert max(counts) < 2 * 2000 / 8


def test_rows_without_a_key_stay_in_a_partition_for_16_kb() -> None:
    """The count begins again after each change of the partition."""
    made = writer(a=1000)
    for _ in range(4):
        made.write(arrow([row(b"x" * 1000)] * 17), 0, NOW)
    sizes = sorted(made.take(tp).count for tp in made.open_partitions())
    assert sizes == [17, 17, 17, 17]


def test_rows_with_a_key_do_not_move_those_without_one() -> None:
    made = writer(a=1)
    made.set_partitions("a", 1)
    made.write(arrow([row(b"first")]), 0, NOW)
    made.write(arrow([row(b"x" * 1000, key=b"k")] * 100), 0, NOW)
    made.set_partitions("a", 1000)
    made.write(arrow([row(b"second")] * 10), 0, NOW)
    assert made.open_partitions() == [TopicPartition("a", 0)]


@pytest.mark.parametrize(("limit", "most"), [(500, 500), (5000, 1000)])
def test_a_topic_may_take_smaller_batches_and_gets_no_larger_ones(limit: int, most: int) -> None:
    """The limit is that of the broker, which counts the header, too."""
    made = RecordWriter(batch_bytes=1000, record_bytes=LARGE)
    for topic in ("a", "b"):
        made.set_partitions(topic, 1)
    made.limit("a", limit)
    batches = Batches(made)
    batches.write(arrow([row(b"x" * 20, topic=topic) for topic in "ab" for _ in range(200)]))
    largest = {tp.topic: max(len(whole(one)) for one in found) for tp, found in batches.finish().items()}
    assert most - 30 < largest["a"] <= most
    assert 970 < largest["b"] <= 1061


def test_each_writer_begins_with_another_random_partition() -> None:
    chosen: set[TopicPartition] = set()
    for _ in range(20):
        batches = Batches(writer(a=1000))
        batches.write(arrow([row()]))
        chosen |= batches.finish().keys()
    assert len(chosen) > 10


def test_a_row_of_an_unknown_partition_is_not_written_until_it_is_known() -> None:
    made = writer()
    found = arrow([row(partition=0), row(partition=3)])
    assert made.write(found, 0, NOW) == (1, Stop.NO_PARTITION, TopicPartition("a", 3))
    made.set_partitions("a", 4)
    assert made.write(found, 1, NOW) == (2, Stop.DONE, None)
    assert sorted(made.open_partitions()) == [TopicPartition("a", 0), TopicPartition("a", 3)]
    assert made.take(TopicPartition("a", 0)).count == 1


def test_a_topic_gets_fewer_partitions_but_keeps_those_with_records() -> None:
    made = writer(a=5)
    assert made.write(arrow([row(partition=2)]), 0, NOW).stop is Stop.DONE
    made.set_partitions("a", 2)
    assert made.partitions("a") == 3
    assert made.take(TopicPartition("a", 2)).count == 1
    made.set_partitions("a", 2)
    assert made.partitions("a") == 2
    assert made.write(arrow([row(partition=2)]), 0, NOW) == (0, Stop.NO_PARTITION, TopicPartition("a", 2))
    made.set_partitions("a", 6)
    assert made.write(arrow([row(partition=5)]), 0, NOW).stop is Stop.DONE


def test_rows_without_a_key_go_to_partitions_with_a_leader() -> None:
    found = set()
    for _ in range(40):
        made = writer(a=5)
        made.set_partitions("a", 5, [1, 3])
        made.write(arrow([row(key=None)]), 0, NOW)
        found |= {tp.partition for tp in made.open_partitions()}
    assert found == {1, 3}


def test_the_partition_of_rows_without_a_key_changes_when_it_loses_its_leader() -> None:
    made = writer(a=2)
    made.write(arrow([row(key=None)]), 0, NOW)
    [before] = made.open_partitions()
    made.set_partitions("a", 2, [1 - before.partition])
    made.write(arrow([row(key=None)]), 0, NOW)
    assert {tp.partition for tp in made.open_partitions()} == {0, 1}


def test_a_record_that_is_too_large_is_not_written() -> None:
    made = writer(record_bytes=1000)
    found = arrow([row(b"x" * 900), row(b"x" * 1000), row(b"", headers=[("h", b"x" * 1000)]), row(b"", partition=2)])
    assert made.write(found, 0, NOW) == (1, Stop.TOO_LARGE, TopicPartition("a", -1))
    assert made.write(found, 2, NOW) == (2, Stop.TOO_LARGE, TopicPartition("a", -1))
    assert made.write(found, 3, NOW) == (4, Stop.DONE, None)


def test_a_record_that_is_larger_than_a_batch_comes_alone() -> None:
    batches = Batches(writer(batch_bytes=1000))
    values = [b"small", b"x" * 5000, b"small", b"y" * 5000, b"y" * 5000]
    batches.write(arrow([row(value, partition=0) for value in values]))
    assert [one.count for one in batches.finish()[TopicPartition("a", 0)]] == [1] * 5


def test_topics_are_those_of_the_rows_whatever_their_order() -> None:
    made = writer(a=1, b=1)
    assert made.write(arrow([row(topic="b"), row(topic="a"), row(topic="b")]), 0, NOW).stop is Stop.DONE
    assert made.take(TopicPartition("b", 0)).count == 2
    assert made.take(TopicPartition("a", 0)).count == 1


def test_unknown_topics() -> None:
    made = RecordWriter(batch_bytes=LARGE, record_bytes=LARGE)
    assert not made.knows("a")
    with pytest.raises(KeyError):
        made.write(arrow([row()]), 0, NOW)
    with pytest.raises(ValueError, match="0 partitions"):
        made.set_partitions("a", 0)
    made.set_partitions("a", 1)
    assert made.knows("a")
    assert made.write(arrow([row()]), 0, NOW).stop is Stop.DONE


@pytest.mark.parametrize("tp", [TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("c", 0)])
def test_without_records_there_is_nothing_to_take(tp: TopicPartition) -> None:
    with pytest.raises(KeyError):
        writer().take(tp)


def test_records_outlive_their_writer_and_do_not_change() -> None:
    made = writer()
    made.write(arrow([row(b"first", partition=0)]), 0, NOW)
    records = made.take(TopicPartition("a", 0))
    before = bytes(records.data)
    for _ in range(10):
        made.write(arrow([row(b"later", partition=0)]), 0, NOW)
        made.take(TopicPartition("a", 0))
    del made
    gc.collect()
    assert bytes(records.data) == before


def test_memory_is_used_again_even_if_another_thread_has_dropped_it() -> None:
    made = writer()
    found = arrow([row(b"x" * 10_000, partition=0)])
    places = set()
    for _ in range(20):
        made.write(found, 0, NOW)
        held = [made.take(TopicPartition("a", 0))]
        places.add(held[0].data.address)
        dropping = threading.Thread(target=held.clear)
        dropping.start()
        dropping.join()
    assert len(places) == 1


def test_batches_of_many_partitions_take_little_memory() -> None:
    made = writer(a=2000)
    made.write(arrow([row(b"x" * 100, partition=n) for n in range(2000)]), 0, NOW)
    assert len(made.open_partitions()) == 2000
    assert made.open_bytes < 300_000
    before = peak_kb()
    for _ in range(3):
        made.write(arrow([row(b"x" * 100, partition=n) for n in range(2000)]), 0, NOW)
        for tp in made.open_partitions():
            made.take(tp)
    assert peak_kb() - before < 30_000


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_no_rows() -> None:
    assert writer().write(arrow([row()]), 1, NOW) == (1, Stop.DONE, None)
    assert writer().write(arrow([]), 0, NOW) == (0, Stop.DONE, None)
