"""Record batches give the same rows as librdkafka's messages.  Damaged batches give an error, and no rows."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.columns import limits, record_batches
from pyspark_kafka_group.columns.chunk_reader import BEYOND, MALFORMED, NOTHING, ChunkReader
from pyspark_kafka_group.columns.constant_columns import ConstantColumns
from pyspark_kafka_group.columns.record_batches import BATCHES, UnreadableError, whole_batches
from pyspark_kafka_group.columns.schema import COLUMNS, arrow_schema
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading.message_client import MessageClient
from pyspark_kafka_group.reading.reader_client import Records
from tests.connector.columns.batches import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    batch_of,
    crc32c,
    framed,
    marker,
    record_bytes,
    varint,
)
from tests.connector.columns.test_from_messages import PARTITION, TOPIC, UNHURRIED, data, headers, record
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.test_range_reader import ScriptedConsumer

TP = TopicPartition(TOPIC, PARTITION)
FAR = 2**63 - 1


@pytest.fixture(scope="module", autouse=True)
def library() -> ctypes.CDLL:
    need_native_library()
    return cast(ctypes.CDLL, BATCHES.library)


def plain(messages: list[Message], columns: tuple[str, ...], start: int = 0, until: int = FAR) -> pa.Table:
    client = MessageClient({}, cast(Any, ScriptedConsumer(script=messages)))
    client.assign({TP: OffsetRange(Offset(start), Offset(FAR))}, columns)
    batches = []
    while start < until and isinstance(found := client.poll({TP: until}, 0.0), Records):
        start = found.position
        batches += [found.batch] if found.batch is not None else []
    return pa.Table.from_batches(batches, arrow_schema(columns))


class Reading:
    """The fetched data of a partition, read to its end."""

    def __init__(
        self,
        fetched: bytes,
        columns: tuple[str, ...] = COLUMNS,
        *,
        start: int = 0,
        until: int = FAR,
        aborted: tuple[int, ...] = (),
        log_end: int = -1,
        check_crcs: bool = True,
        most_bytes: int = 1_000_000,
    ) -> None:
        library = cast(ctypes.CDLL, BATCHES.library)
        self.batches: list[pa.RecordBatch] = []
        self.follows = NOTHING
        self.next_offset = start
        self.pieces: list[int] = []
        self.unreadable: tuple[int, int | None] | None = None
        pieces = whole_batches(
            library,
            memoryview(fetched),
            aborted,
            position=start,
            until=until,
            log_end=log_end,
            check_crcs=check_crcs,
            most_bytes=most_bytes,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "MAX_BATCH_RECORDS", 50)
            reader = ChunkReader(library)
        reader.begin(columns)
        try:
            for piece in pieces:
                assert piece.next_offset > self.next_offset
                self.next_offset = piece.next_offset
                self.pieces.append(piece.data.size)
                reader.load(start, piece)
                while (chunk := reader.collect(start, until)).records:
                    assert chunk.last_offset < piece.next_offset
                    start = chunk.last_offset + 1
                    self.batches.append(reader.build(ConstantColumns(*TP)))
                    self.batches[-1].validate(full=True)
                self.follows = chunk.follows
                if chunk.follows != NOTHING:
                    self.unreadable = chunk.other_offset, piece.end_of(chunk.other_offset)
                    break
                reader.unload()
        finally:
            reader.close()

    @property
    def offsets(self) -> list[int]:
        return [offset for batch in self.batches for offset in batch.column("offset").to_pylist()]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Message], bytes]:
    """Return messages, and the batches that hold them: with gaps, all codecs and both kinds of timestamps."""
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


def log_end(messages: list[Message]) -> int:
    return cast(int, messages[-1].offset()) + 1 if messages else 0


some_columns = st.sets(st.sampled_from(COLUMNS), min_size=1).map(lambda names: tuple(c for c in COLUMNS if c in names))


@UNHURRIED
@given(log=logs(), columns=some_columns, start=st.integers(0, 3000), until=st.integers(0, 3000))
def test_the_rows_are_those_of_the_plain_client(
    log: tuple[list[Message], bytes], columns: tuple[str, ...], start: int, until: int
) -> None:
    messages, fetched = log
    start = max(0, min(start, log_end(messages) - 1))  # no broker sends only batches that end before the position
    read = Reading(fetched, columns, start=start, until=until)
    wanted = [message for message in messages if start <= cast(int, message.offset())]
    assert pa.Table.from_batches(read.batches, arrow_schema(columns)).equals(plain(wanted, columns, start, until))
    beyond = any(cast(int, message.offset()) >= max(start, until) for message in wanted)
    assert read.follows == BEYOND if beyond and read.next_offset < until else read.follows in (NOTHING, BEYOND)
    assert beyond or read.follows == NOTHING
    if messages:
        assert min(until, log_end(messages)) <= read.next_offset <= log_end(messages)


@UNHURRIED
@given(log=logs(), cut=st.integers(0, 10_000))
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(log: tuple[list[Message], bytes], cut: int) -> None:
    messages, fetched = log
    cut = min(cut, len(fetched))
    read = Reading(fetched[:cut])
    assert read.offsets == [message.offset() for message in messages if cast(int, message.offset()) < read.next_offset]
    if read.next_offset < log_end(messages):
        rest = Reading(fetched, start=read.next_offset)
        assert read.offsets + rest.offsets == [message.offset() for message in messages]


# Header fields that decide where a reader continues: their positions, and their sizes in bytes.
BASE_OFFSET, LENGTH, LAST_DELTA, COUNT = (0, 8), (8, 4), (23, 4), (57, 4)


def changed(batch: bytes, field: tuple[int, int], value: int, *, checksum: bool = True) -> bytes:
    """Return the batch with another value in this field, and by default with a correct checksum."""
    at, size = field
    found = bytearray(batch)
    found[at : at + size] = value.to_bytes(size, "big", signed=True)
    if checksum:
        found[17:21] = crc32c(bytes(found[21:])).to_bytes(4, "big")
    return bytes(found)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (LAST_DELTA, -1),
        (LAST_DELTA, -(2**31)),
        (BASE_OFFSET, -1),
        (BASE_OFFSET, 2**63 - 1),
        (LENGTH, -12),  # a batch without any bytes
        (LENGTH, 48),
        (LENGTH, -(2**31)),
    ],
)
def test_a_batch_that_would_lead_nowhere_or_back_is_an_error(field: tuple[int, int], value: int) -> None:
    """Regression: the reader fetched without end, or delivered records twice."""
    good, bad = batch_of(several(0, 3)), changed(batch_of(several(3, 3)), field, value)
    read = Reading(good + bad)
    assert (read.offsets, read.next_offset) == ([0, 1, 2], 3), "what comes before it is read"
    with pytest.raises(UnreadableError, match="corrupt"):
        Reading(bad, start=3)


def test_only_batches_from_before_the_position_are_an_error() -> None:
    """Regression: the reader moved back to the end of these batches, and continued there."""
    log = b"".join(batch_of(several(first, 3)) for first in (0, 3))
    with pytest.raises(UnreadableError, match="before the position, the last of which ends at offset 6"):
        Reading(log, start=6)


def test_a_gap_beyond_the_end_of_the_log_is_an_error() -> None:
    """The checksum does not cover the base offset.

    Regression: the reader took all missing records for compacted ones.
    """
    log = b"".join(batch_of(several(first, 3)) for first in (0, 3))
    far = changed(batch_of(several(6, 3)), BASE_OFFSET, 2**40, checksum=False)
    assert Reading(log + far, until=9, log_end=9).next_offset == 6
    with pytest.raises(UnreadableError, match="beyond the end of the log at offset 1099511627776"):
        Reading(far, start=6, until=9, log_end=9)


def test_a_batch_that_goes_back_is_not_read_twice() -> None:
    """Regression: its records were delivered twice."""
    good, bad = batch_of(several(0, 3)), changed(batch_of(several(3, 3)), BASE_OFFSET, 1)
    read = Reading(good + bad)
    assert (read.offsets, read.next_offset) == ([0, 1, 2], 3)


def test_records_that_are_written_while_the_broker_answers_are_read() -> None:
    log = b"".join(batch_of(several(first, 3)) for first in (0, 3, 6))
    for log_end in (0, 3, 8, 9):
        assert Reading(log, log_end=log_end).offsets == list(range(9))
    assert Reading(batch_of(several(6, 3)), start=2, log_end=6).offsets == [6, 7, 8], "compacted up to the old end"


@pytest.mark.parametrize(
    ("deltas", "last_delta", "count", "read"),
    [
        ([0, 1, 2], 1, 3, [0, 1]),  # beyond the batch: a reader would take it for the end of a range
        ([0, 2**40], 5, 2, [0]),
        ([-1, 0], 1, 2, []),
        ([0, 0], 1, 2, [0]),
        ([1, 0], 1, 2, [1]),
        ([0, 1, 2], 2, 2, [0, 1]),  # more records than the batch claims
        ([0, 1], 2, 3, [0, 1]),  # fewer records than the batch claims
    ],
)
def test_records_that_are_not_what_their_batch_says_are_told_after_those_before_them(
    deltas: list[int], last_delta: int, count: int, read: list[int]
) -> None:
    records = b"".join(record_bytes(record(10 + delta, value=b"v"), 10, -1) for delta in deltas)
    found = Reading(framed(10, last_delta, records, count))
    assert found.offsets == [10 + delta for delta in read]
    assert found.follows == MALFORMED


@UNHURRIED
@given(
    log=logs(),
    start=st.integers(0, 3000),
    until=st.integers(0, 3000),
    lies=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([BASE_OFFSET, LENGTH, LAST_DELTA, COUNT, (21, 2)]),
            st.integers(-(2**31), 2**31 - 1) | st.integers(-20, 100) | st.sampled_from([2**63 - 1, -(2**63), 2**62]),
        ),
        max_size=3,
    ),
    bytes_changed=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), max_size=3),
    cut=st.none() | st.integers(0, 5000),
)
def test_whatever_the_batches_say_a_reader_moves_and_never_goes_back(
    log: tuple[list[Message], bytes],
    start: int,
    until: int,
    lies: list[tuple[int, tuple[int, int], int]],
    bytes_changed: list[tuple[int, int]],
    cut: int | None,
) -> None:
    """The reader may also raise an error.  `Reading` checks each step."""
    fetched = bytearray(log[1][:cut])
    for index, (at, size), value in lies:
        begins = 0
        for _ in range(index):
            begins += 12 + int.from_bytes(fetched[begins + 8 : begins + 12], "big", signed=True)
            if not 0 <= begins < len(fetched):
                begins = 0
        if len(fetched) - begins >= 61:
            wrapped = (value + 2 ** (8 * size - 1)) % 2 ** (8 * size) - 2 ** (8 * size - 1)
            fetched[begins + at : begins + at + size] = wrapped.to_bytes(size, "big", signed=True)
    for at, change in bytes_changed:
        if fetched:
            fetched[at % len(fetched)] ^= change
    for check_crcs in (True, False):
        try:
            read = Reading(bytes(fetched), start=start, until=until, check_crcs=check_crcs)
        except UnreadableError:
            continue
        assert read.offsets == sorted(set(read.offsets))
        assert all(start <= offset < until for offset in read.offsets)
        assert read.next_offset > start or not read.pieces


@given(at=st.integers(16, 100), change=st.integers(1, 255), codec=st.sampled_from(["none", "lz4"]))
def test_a_changed_byte_is_noticed(at: int, change: int, codec: str) -> None:
    """This holds from the magic byte on.  The checksum does not cover the bytes before it."""
    batch = bytearray(batch_of([record(5, key=b"key", value=b"v" * 100)], codec=codec))
    batch[min(at, len(batch) - 1)] ^= change
    with pytest.raises(UnreadableError, match=r"corrupt|format"):
        Reading(bytes(batch))


def several(first: int, count: int) -> list[Message]:
    return [record(offset, value=b"%d" % offset) for offset in range(first, first + count)]


def sent(first: int, producer: int, codec: str, count: int = 2) -> bytes:
    """Return records of a transaction."""
    return batch_of(several(first, count), attributes=TRANSACTIONAL, producer=producer, codec=codec)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_records_of_aborted_transactions_and_markers_are_passed_over(codec: str) -> None:
    log = b"".join(
        [
            sent(0, 1, codec),  # aborted
            sent(2, 2, codec),  # committed
            marker(4, 1, ABORT),
            batch_of(several(5, 2)),  # without a transaction
            marker(7, 2, COMMIT),
            sent(8, 1, codec),  # committed
            marker(10, 1, COMMIT),
            sent(11, 1, codec, 1),  # aborted again
            marker(12, 1, ABORT),
        ]
    )
    read = Reading(log, aborted=(1, 0, 1, 11))
    assert read.offsets == [2, 3, 5, 6, 8, 9]
    assert read.next_offset == 13
    assert Reading(log, start=1, aborted=(1, 0, 1, 11)).offsets == [2, 3, 5, 6, 8, 9], "it begins within a transaction"
    assert Reading(log).offsets == [0, 1, 2, 3, 5, 6, 8, 9, 11]  # read_uncommitted


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_which_transactions_are_over_is_remembered_from_piece_to_piece(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batches, "_PIECE_BYTES", 1)
    log = sent(0, 1, codec) + marker(2, 1, ABORT) + sent(3, 1, codec) + marker(5, 1, COMMIT)
    read = Reading(log, aborted=(1, 0))
    assert read.offsets == [3, 4]
    assert len(read.pieces) == (1 if codec == "none" else 4)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_one_marker_ends_all_open_aborted_transactions_of_its_producer(codec: str) -> None:
    """Compaction may remove the first marker.  Kafka's consumer keeps the set of producers, not of transactions."""
    aborted = sent(0, 1, codec) + sent(3, 1, codec) + marker(5, 1, ABORT)
    assert Reading(aborted + sent(6, 1, codec) + marker(8, 1, COMMIT), aborted=(1, 0, 1, 3)).offsets == [6, 7]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_only_the_marker_of_an_abort_ends_an_aborted_transaction(codec: str) -> None:
    """As in Kafka's consumer.  Otherwise it would return the rest of the transaction."""
    aborted = sent(0, 1, codec) + marker(2, 1, COMMIT) + sent(3, 1, codec) + marker(5, 1, ABORT)
    assert Reading(aborted + sent(6, 1, codec), aborted=(1, 0)).offsets == [6, 7]


@UNHURRIED
@given(data=st.data())
def test_aborted_records_are_passed_over_in_any_order_of_transactions_and_pieces(
    data: st.DataObject,
) -> None:
    """Several producers write at once.  Compaction removes some batches and markers."""
    log, wanted, offset = b"", [], 0
    pairs: list[tuple[int, int]] = []
    started: dict[int, tuple[int, bool]] = {}  # the first offset of a producer's transaction, and whether it aborts
    kept: set[int] = set()  # producers with records of an aborted transaction: its marker stays, too
    codec = data.draw(st.sampled_from(["none", "lz4"]))
    for _ in range(data.draw(st.integers(1, 30))):
        producer, removed = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)) == 0
        if producer in started and data.draw(st.booleans()):
            first, aborts = started.pop(producer)
            if not removed or producer in kept:
                log += marker(offset, producer, ABORT if aborts else COMMIT)
                pairs += [(producer, first)] * aborts
                kept.discard(producer)
            offset += 1
            continue
        _, aborts = started.setdefault(producer, (offset, data.draw(st.booleans())))
        if not removed:
            log += sent(offset, producer, codec)
            if aborts:
                kept.add(producer)
            else:
                wanted += [offset, offset + 1]
        offset += 3
    pairs += [(producer, first) for producer, (first, aborts) in started.items() if aborts]
    shuffled = data.draw(st.permutations(pairs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batches, "_PIECE_BYTES", data.draw(st.sampled_from([1, 200, 1_000_000])))
        assert Reading(log, aborted=tuple(n for pair in shuffled for n in pair)).offsets == wanted


def test_many_aborted_transactions_in_one_response_are_left_out() -> None:
    """Regression: each batch was compared with all of the response, which took half a minute."""
    count = 50_000
    batch = batch_of(several(0, 1), attributes=TRANSACTIONAL, producer=2)[8:]
    end = marker(0, 2, ABORT)[8:]
    open_one = batch_of(several(0, 1), attributes=TRANSACTIONAL, producer=1)
    offsets = range(1, 2 * count, 2)
    log = open_one + b"".join(o.to_bytes(8, "big") + batch + (o + 1).to_bytes(8, "big") + end for o in offsets)
    pairs = (1, 0, *(n for offset in offsets for n in (2, offset)))

    assert Reading(log, aborted=pairs).offsets == []


def test_a_batch_that_was_compacted_away_still_counts_as_read() -> None:
    read = Reading(framed(10, 9, b"", 0))
    assert (read.offsets, read.next_offset) == ([], 20)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_data_that_cannot_be_decompressed_is_an_error(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = batch_of(several(0, 3)), batch_of(several(6, 3))
    monkeypatch.setattr("tests.connector.columns.batches.compress", lambda codec, data: b"\xff" * 20)
    bad = batch_of(several(3, 3), codec=codec, producer=7, attributes=TRANSACTIONAL)
    read = Reading(before + bad)
    assert (read.offsets, read.follows, read.unreadable) == ([0, 1, 2], MALFORMED, (3, 6))
    read = Reading(before + bad + after, aborted=(7, 3))
    assert read.offsets == [0, 1, 2, 6, 7, 8], "nobody misses an aborted transaction"


@pytest.mark.parametrize("first", [0, 3])
def test_a_wrong_checksum_is_an_error_with_the_end_of_its_batch(first: int) -> None:
    bad = bytearray(batch_of(several(first, 3)))
    bad[-1] ^= 1
    with pytest.raises(UnreadableError, match=f"corrupt record batch at offset {first}") as error:
        Reading(bytes(bad), start=first)
    assert (error.value.until, error.value.is_old) == (first + 3, False)


def test_a_wrong_checksum_behind_good_batches_and_before_a_contradiction() -> None:
    good, bad = batch_of(several(0, 3)), bytearray(batch_of(several(3, 3)))
    bad[-1] ^= 1
    assert Reading(good + bytes(bad)).offsets == [0, 1, 2]
    with pytest.raises(UnreadableError) as error:
        Reading(bytes(bad) + batch_of(several(5, 3)), start=3)
    assert error.value.until is None, "the next batch contradicts it"


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_an_error(magic: int) -> None:
    batch = bytearray(batch_of(several(0, 3)))
    batch[16] = magic
    with pytest.raises(UnreadableError, match="format") as error:
        Reading(bytes(batch))
    assert error.value.is_old is (magic < 2)


@pytest.mark.parametrize(
    "records",
    [
        b"",  # fewer records than the batch claims
        b"\x02",  # a record that ends after the batch
        b"\x08\0\0\0\x80",  # a number without an end
        b"\x0c\0\0\0\x50\0\0",  # a key that ends after its record
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
    assert read.follows == MALFORMED


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_any_negative_length_means_null(length: int) -> None:
    """Regression: only -1 did.  Brokers and Java's client take any."""
    body = b"\0\0\0" + varint(length) + varint(length) + varint(1) + varint(1) + b"k" + varint(length)
    (batch,) = Reading(framed(3, 0, varint(len(body)) + body, 1), ("key", "value", "headers")).batches
    assert batch.to_pylist() == [{"key": None, "value": None, "headers": [{"key": "k", "value": None}]}]


@pytest.mark.parametrize("size", [*range(20), 1000])
def test_checksums_are_those_of_the_standard_on_every_processor(library: ctypes.CDLL, size: int) -> None:
    text = bytes(number * 37 % 256 for number in range(size))
    for portable in (False, True):
        assert library.kc_crc(0, text, size, portable) == crc32c(text)


def test_checksums_use_the_processors_instruction_where_it_has_one(library: ctypes.CDLL) -> None:
    cpus = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpus.exists():
        pytest.skip("the instruction is used on x86_64, and Linux tells who has it")
    assert bool(library.kc_in_hardware()) == ("sse4_2" in cpus.read_text(encoding="utf-8"))


def test_headers_of_nothing_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the memory for an empty key without a value did not count, so 15 KB became a batch of 325 MB."""
    monkeypatch.setattr(limits, "MAX_BATCH_BYTES", 1000 * limits.HEADER_BYTES)
    bodies = [b"\0\0" + varint(n) + b"\x01\x01" + varint(400) + b"\0\x01" * 400 for n in range(10)]
    fetched = framed(0, 9, b"".join(varint(len(body)) + body for body in bodies), 10)

    assert [batch.num_rows for batch in Reading(fetched).batches] == [2] * 5
    assert [batch.num_rows for batch in Reading(fetched, ("offset", "value")).batches] == [10]
