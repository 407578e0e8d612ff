"""The requests of Kafka's protocol that direct reading needs, as bytes and back.

Versions are fixed, and asked for with ApiVersions before anything else: Fetch 10, the oldest that is served zstd and
the newest that is only served by leaders, ListOffsets 2, the oldest with an isolation level, and Metadata 7.  Brokers
from 2.1 on have them.  SaslAuthenticate 1 tells for how long a login counts; brokers from 2.2 on have it.
Source: https://kafka.apache.org/protocol
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition

FETCH, LIST_OFFSETS, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 1, 2, 3, 17, 18, 36
VERSIONS = {FETCH: 10, LIST_OFFSETS: 2, METADATA: 7, SASL_HANDSHAKE: 1, API_VERSIONS: 0, SASL_AUTHENTICATE: 1}

_NO_EPOCH = -1
_CONSUMER = -1
_LOG_END = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


class ProtocolError(Exception):
    """A broker answers what cannot be understood, or refuses."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


class Wanted(NamedTuple):
    """What is asked for of a partition: from which offset on, and about how many bytes."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer for one partition.

    Attributes
    ----------
    tp : TopicPartition
        Whose.
    error : int
        Kafka's error code; 0 is none.
    aborted : tuple of int
        Producer id and first offset of each aborted transaction that reaches into the records, one after the other.
    records : memoryview
        Record batches; the last one may be cut off.
    """

    tp: TopicPartition
    error: int
    aborted: tuple[int, ...]
    records: memoryview


class Reader:
    """Takes the fields of a response one by one.

    Parameters
    ----------
    data
        The response, without its size and correlation id.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def data(self) -> memoryview:
        """The whole response."""
        return self._data

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next fields."""
        try:
            fields = layout.unpack_from(self._data, self._at)
        except struct.error:
            raise ProtocolError("a response is shorter than it says") from None
        self._at += layout.size
        return fields

    def int16(self) -> int:
        """The next field, of 16 bits."""
        return self.take(_INT16)[0]

    def int32(self) -> int:
        """The next field, of 32 bits; also the length of an array, -1 for null."""
        return self.take(_INT32)[0]

    def bytes(self, length: int) -> memoryview:
        """So many bytes, none if `length` is negative."""
        if length > len(self._data) - self._at:
            raise ProtocolError("a response is shorter than it says")
        found = self._data[self._at : self._at + max(0, length)]
        self._at += len(found)
        return found

    def text(self) -> str:
        """A string; empty if it is null."""
        return str(self.bytes(self.int16()), "utf-8", "replace")


_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_REQUEST_HEADER = struct.Struct(">hhi")
_API_VERSION = struct.Struct(">hhh")
_FETCH_HEADER = struct.Struct(">iiiibiii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_LOG_ENDS_HEADER = struct.Struct(">ibi")
_LOG_END_PARTITION = struct.Struct(">iq")
_LISTED_PARTITION = struct.Struct(">ihqq")
_FETCH_ANSWER = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqqi")
_PARTITION_METADATA = struct.Struct(">hiii")


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def framed(api: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    """A request as it goes over a connection."""
    request = _REQUEST_HEADER.pack(api, VERSIONS[api], correlation_id) + _string(client_id) + body
    return _INT32.pack(len(request)) + request


def check_api_versions(response: Reader, needed: Iterable[int]) -> None:
    """Read the answer to an ApiVersions request, whose body is empty.

    Parameters
    ----------
    response
        The answer.
    needed
        Which requests will be sent.

    Raises
    ------
    ProtocolError
        The broker does not speak our versions.
    """
    error = response.int16()
    offered = {api: (oldest, newest) for api, oldest, newest in _items(response, _API_VERSION)}
    for api in needed:
        version = VERSIONS[api]
        oldest, newest = offered.get(api, (0, -1))
        if error or not oldest <= version <= newest:
            raise ProtocolError(f"the broker offers versions {oldest} to {newest} of request {api}, not {version}")


def sasl_handshake_request(mechanism: str) -> bytes:
    """Say how one is going to authenticate."""
    return _string(mechanism)


def check_sasl_handshake(response: Reader) -> None:
    """Read the answer.

    Raises
    ------
    ProtocolError
        The broker does not offer the mechanism.
    """
    error = response.int16()
    if error:
        offered = ", ".join(response.text() for _ in range(response.int32()))
        raise ProtocolError(f"the broker refuses the SASL mechanism and offers {offered}: error {error}")


def sasl_authenticate_request(message: bytes) -> bytes:
    """Carry a message of the mechanism's own."""
    return _INT32.pack(len(message)) + message


class Authenticated(NamedTuple):
    """The broker's message, and for how long the login counts then; 0 is for ever."""

    message: bytes
    lifetime_ms: int


def sasl_authenticated(response: Reader) -> Authenticated:
    """Read the answer.

    Raises
    ------
    ProtocolError
        The broker refuses the credentials.
    """
    error, text = response.int16(), response.text()
    if error:
        raise ProtocolError(f"the broker refuses the credentials: error {error}: {text}")
    return Authenticated(bytes(response.bytes(response.int32())), response.take(_INT64)[0])


def metadata_request(topics: Iterable[str]) -> bytes:
    """Ask who leads the partitions of some topics, without creating one."""
    names = [_string(topic) for topic in topics]
    return _INT32.pack(len(names)) + b"".join(names) + b"\0"


def leaders(response: Reader) -> dict[TopicPartition, Address]:
    """Read the answer: where the leaders listen of the partitions that have one."""
    response.int32()  # throttle time
    addresses = {}
    for _ in range(response.int32()):
        node = response.int32()
        addresses[node] = Address(response.text(), response.int32())
        response.text()  # rack
    response.text()  # cluster id
    response.int32()  # controller
    found = {}
    for _ in range(response.int32()):
        response.int16()  # error: then there are no partitions
        topic = response.text()
        response.bytes(1)  # whether it is internal
        for _ in range(response.int32()):
            _, partition, leader, _ = response.take(_PARTITION_METADATA)
            for _ in ("replicas", "in-sync replicas", "offline replicas"):
                response.bytes(4 * response.int32())
            if leader in addresses:
                found[TopicPartition(topic, partition)] = addresses[leader]
    return found


def log_ends_request(partitions: Mapping[str, Collection[int]], *, read_committed: bool) -> bytes:
    """Ask a leader where logs end, of these partitions by topic."""
    isolation = _READ_COMMITTED if read_committed else _READ_UNCOMMITTED
    request = _LOG_ENDS_HEADER.pack(_CONSUMER, isolation, len(partitions))
    for topic, numbers in partitions.items():
        asked = b"".join(_LOG_END_PARTITION.pack(number, _LOG_END) for number in numbers)
        request += _string(topic) + _INT32.pack(len(numbers)) + asked
    return request


def log_ends(response: Reader) -> Iterator[tuple[str, Iterator[tuple[int, int, int, int]]]]:
    """Read the answer: by topic, partition, error code, a timestamp, and the log end of each partition."""
    response.int32()  # throttle time
    for _ in range(response.int32()):
        topic = response.text()
        count = response.int32()
        yield topic, _LISTED_PARTITION.iter_unpack(response.bytes(count * _LISTED_PARTITION.size))


def fetch_request(
    wanted: Mapping[TopicPartition, Wanted], *, read_committed: bool, max_wait_ms: int, max_bytes: int
) -> bytes:
    """Ask for records of partitions, in this order, without a fetch session."""
    by_topic: dict[str, list[bytes]] = {}
    for (topic, partition), (offset, partition_bytes) in wanted.items():
        asked = _FETCH_PARTITION.pack(partition, _NO_EPOCH, offset, -1, partition_bytes)
        by_topic.setdefault(topic, []).append(asked)
    isolation = _READ_COMMITTED if read_committed else _READ_UNCOMMITTED
    header = _FETCH_HEADER.pack(_CONSUMER, max_wait_ms, 1, max_bytes, isolation, 0, -1, len(by_topic))
    topics = [_string(topic) + _INT32.pack(len(asked)) + b"".join(asked) for topic, asked in by_topic.items()]
    return header + b"".join(topics) + _INT32.pack(0)


def fetched(response: Reader) -> list[FetchedPartition]:
    """Read the answer.

    Raises
    ------
    ProtocolError
        The whole request was refused.
    """
    _, error, _ = response.take(_FETCH_ANSWER)
    if error:
        raise ProtocolError(f"the broker refuses to be fetched from: error {error}")
    found = []
    for _ in range(response.int32()):
        topic = response.text()
        for _ in range(response.int32()):
            partition, error, _, _, _, aborted_count = response.take(_FETCHED_PARTITION)
            aborted = struct.unpack(f">{2 * max(0, aborted_count)}q", response.bytes(16 * aborted_count))
            records = response.bytes(response.int32())
            found.append(FetchedPartition(TopicPartition(topic, partition), error, aborted, records))
    return found


def _items(response: Reader, layout: struct.Struct) -> list[tuple[int, ...]]:
    return [response.take(layout) for _ in range(response.int32())]
