"""Record batches give the rows that librdkafka's messages give, and whatever is wrong with them is told, not read."""

from __future__ import annotations

import ctypes
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.constant_columns import ConstantColumns
from pyspark_kafka_group.native_chunks import BEYOND, EVENT, NOTHING, ChunkReader
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.record_batches import BatchReader, UnreadableError, batch_library, whole_batches
from pyspark_kafka_group.schema import COLUMNS, arrow_schema
from tests.connector.batches import ABORT, COMMIT, TRANSACTIONAL, batch_of, crc32c, framed, marker
from tests.connector.clients import need_native_library
from tests.connector.test_arrow import PARTITION, TOPIC, UNHURRIED, data, headers, record
from tests.connector.test_native_client import plain

TP = TopicPartition(TOPIC, PARTITION)
FAR = 2**63 - 1


@pytest.fixture(scope="module", autouse=True)
def library() -> ctypes.CDLL:
    need_native_library()
    return cast(ctypes.CDLL, batch_library())


class Reading:
    """What was fetched of a partition, read to its end."""

    def __init__(
        self,
        fetched: bytes,
        columns: tuple[str, ...] = COLUMNS,
        *,
        start: int = 0,
        until: int = FAR,
        aborted: tuple[int, ...] = (),
    ) -> None:
        library = cast(ctypes.CDLL, batch_library())
        self.batches: list[pa.RecordBatch] = []
        self.follows = NOTHING
        self.next_offset = start
        found = whole_batches(library, memoryview(fetched), aborted, check_crcs=True)
        if found is None:
            return
        self.next_offset = found.next_offset
        source = BatchReader(library)
        reader = ChunkReader(library, source.functions, source.handle)
        reader.begin(columns)
        source.load(TP, start, found)
        while (chunk := reader.collect(TP, start, until, most=50, wait_s=0)).records:
            start = chunk.last_offset + 1
            self.batches.append(reader.build(ConstantColumns(*TP)))
            self.batches[-1].validate(full=True)
        self.follows = chunk.follows
        reader.close()
        source.close()

    @property
    def offsets(self) -> list[int]:
        return [offset for batch in self.batches for offset in batch.column("offset").to_pylist()]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Message], bytes]:
    """Messages, and the batches that hold them: with gaps, every codec, both kinds of timestamps."""
    messages: list[Message] = []
    log = b""
    offset = draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from([TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME]))
        time = draw(st.integers(-1, 2**41))
        some = []
        for _ in range(draw(st.integers(1, 20))):
            sent = draw(st.integers(-1, 2**41)) if kind == TIMESTAMP_CREATE_TIME else time
            some.append(record(offset, key=draw(data), value=draw(data), headers=draw(headers), timestamp=(kind, sent)))
            offset += draw(st.integers(1, 300))
        log += batch_of(some, codec=draw(st.sampled_from(["none", "gzip", "snappy", "xerial", "lz4", "zstd"])))
        messages += some
    return messages, log


some_columns = st.sets(st.sampled_from(COLUMNS), min_size=1).map(lambda names: tuple(c for c in COLUMNS if c in names))


@UNHURRIED
@given(log=logs(), columns=some_columns, start=st.integers(0, 3000), until=st.integers(0, 3000))
def test_the_rows_are_those_of_the_plain_client(
    log: tuple[list[Message], bytes], columns: tuple[str, ...], start: int, until: int
) -> None:
    messages, fetched = log
    read = Reading(fetched, columns, start=start, until=until)
    wanted = [message for message in messages if start <= cast(int, message.offset())]
    assert pa.Table.from_batches(read.batches, arrow_schema(columns)).equals(plain(wanted, columns, start, until))
    beyond = any(cast(int, message.offset()) >= max(start, until) for message in wanted)
    assert read.follows == (BEYOND if beyond else NOTHING)
    if messages:
        assert read.next_offset == cast(int, messages[-1].offset()) + 1


@UNHURRIED
@given(log=logs(), cut=st.integers(0, 10_000))
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(log: tuple[list[Message], bytes], cut: int) -> None:
    messages, fetched = log
    cut = min(cut, len(fetched))
    read = Reading(fetched[:cut])
    assert read.offsets == [message.offset() for message in messages if cast(int, message.offset()) < read.next_offset]
    if read.next_offset:
        rest = Reading(fetched, start=read.next_offset)
        assert read.offsets + rest.offsets == [message.offset() for message in messages]


@given(at=st.integers(16, 100), change=st.integers(1, 255), codec=st.sampled_from(["none", "lz4"]))
def test_a_changed_byte_is_noticed(at: int, change: int, codec: str) -> None:
    """From the magic byte on; what is before that, the checksum does not cover."""
    batch = bytearray(batch_of([record(5, key=b"key", value=b"v" * 100)], codec=codec))
    batch[min(at, len(batch) - 1)] ^= change
    with pytest.raises(UnreadableError, match=r"corrupt|format"):
        Reading(bytes(batch))


def several(first: int, count: int) -> list[Message]:
    return [record(offset, value=b"%d" % offset) for offset in range(first, first + count)]


def test_records_of_aborted_transactions_and_markers_are_passed_over() -> None:
    log = b"".join(
        [
            batch_of(several(0, 2), attributes=TRANSACTIONAL, producer=1),  # aborted
            batch_of(several(2, 2), attributes=TRANSACTIONAL, producer=2),  # committed
            marker(4, 1, ABORT),
            batch_of(several(5, 2)),  # of no transaction
            marker(7, 2, COMMIT),
            batch_of(several(8, 2), attributes=TRANSACTIONAL, producer=1),  # committed
            marker(10, 1, COMMIT),
            batch_of(several(11, 1), attributes=TRANSACTIONAL, producer=1),  # aborted again
            marker(12, 1, ABORT),
        ]
    )
    read = Reading(log, aborted=(1, 0, 1, 11))
    assert read.offsets == [2, 3, 5, 6, 8, 9]
    assert read.next_offset == 13
    assert Reading(log).offsets == [0, 1, 2, 3, 5, 6, 8, 9, 11]  # read_uncommitted


def test_a_reading_that_begins_within_an_aborted_transaction_passes_its_rest_over() -> None:
    log = b"".join(
        [
            batch_of(several(5, 2), attributes=TRANSACTIONAL, producer=1),
            marker(7, 1, ABORT),
            batch_of(several(8, 1), attributes=TRANSACTIONAL, producer=1),
        ]
    )
    assert Reading(log, start=6, aborted=(1, 2)).offsets == [8]


def test_a_batch_that_was_compacted_away_still_counts_as_read() -> None:
    read = Reading(framed(10, 9, b"", 0))
    assert (read.offsets, read.next_offset) == ([], 20)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_data_that_cannot_be_decompressed_is_an_error(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.connector.batches.compress", lambda codec, data: b"\xff" * 20)
    with pytest.raises(UnreadableError, match="cannot be decompressed"):
        Reading(batch_of(several(0, 3), codec=codec))


def test_a_wrong_checksum_is_an_error_with_the_offset() -> None:
    good, bad = batch_of(several(0, 3)), bytearray(batch_of(several(3, 3)))
    bad[-1] ^= 1
    with pytest.raises(UnreadableError, match="corrupt record batch at offset 3"):
        Reading(good + bad)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_an_error(magic: int) -> None:
    batch = bytearray(batch_of(several(0, 3)))
    batch[16] = magic
    with pytest.raises(UnreadableError, match="format"):
        Reading(bytes(batch))


@pytest.mark.parametrize(
    "records",
    [
        b"",  # fewer than the batch says
        b"\x02",  # a record that ends behind the batch
        b"\x08\0\0\0\x80",  # an endless number
        b"\x0c\0\0\0\x50\0\0",  # a key that ends behind its record
        b"\x0c\0\0\0\x01\x01\x50",  # more headers than there is room for
        b"\x12\0\0\0\x01\x01\x02\x01\0\0",  # a header whose key is null
        b"\x01",  # a record of a negative length
    ],
    ids=["none", "record", "number", "key", "headers", "null header key", "negative"],
)
def test_a_malformed_record_is_told_after_those_before_it(records: bytes) -> None:
    good = batch_of(several(0, 3))
    read = Reading(good + framed(3, 0, records, 1))
    assert read.offsets == [0, 1, 2]
    assert read.follows == EVENT


@pytest.mark.parametrize("size", [*range(20), 1000])
def test_checksums_are_those_of_the_standard_on_every_processor(library: ctypes.CDLL, size: int) -> None:
    text = bytes(number * 37 % 256 for number in range(size))
    for portable in (False, True):
        assert library.kb_crc(text, size, portable) == crc32c(text)


def test_order_within_a_log_is_kept() -> None:
    read = Reading(b"".join(batch_of(several(first, 10)) for first in range(0, 100, 10)))
    assert read.offsets == list(range(100))
