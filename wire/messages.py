"""Fetch requests, which readers send many times a second, and the requests at the start of a connection.

`produce_requests` has the counterpart of Fetch.

These requests have fixed versions.  ApiVersions, the first request, checks that the broker supports them.

* Fetch 10 is the oldest version with zstd, and the newest that only leaders serve.  It needs Kafka 2.1.
* Fetch 11 is used with a rack: followers also serve it (KIP-392).  It needs Kafka 2.3.
* SaslAuthenticate 1 returns the lifetime of a login.  It needs Kafka 2.2.

Source: https://kafka.apache.org/protocol
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pyspark_kafka_group.wire.error_codes import error_name
from pyspark_kafka_group.wire.fields import MAX_INT16, Reader
from pyspark_kafka_group.wire.requests import OfferedVersions
from pyspark_kafka_group.wire.types import (
    FetchError,
    ProtocolError,
    RefusedCredentialsError,
    TopicPartition,
    UnsupportedVersionError,
)

PRODUCE, FETCH, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 0, 1, 17, 18, 36
VERSIONS = {PRODUCE: 7, FETCH: 10, SASL_HANDSHAKE: 1, API_VERSIONS: 0, SASL_AUTHENTICATE: 1}

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to send.  The length of a `memoryview` must be its number of bytes."""

FETCH_WITH_RACK = 11
"""The version of Fetch with which a leader may name a follower in the reader's rack."""

NOBODY = -1
"""No broker, in place of a broker's id."""

_NO_EPOCH = -1
_CONSUMER = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


class Wanted(NamedTuple):
    """The request for one partition: the first offset, and the approximate number of bytes."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer for one partition.

    Attributes
    ----------
    tp : TopicPartition
        The partition.
    error : int
        Kafka's error code; 0 is none.
    readable_until : int
        The high watermark, or with ``read_committed`` the last stable offset; -1 if unknown.
    aborted : tuple of int
        Producer id and first offset of each aborted transaction in the records, alternating.
    records : memoryview
        Record batches.  The last one may be cut off.
    read_from : int
        The id of the broker to fetch from instead, if this one sends no records; `NOBODY` if there is none.
    """

    tp: TopicPartition
    error: int
    readable_until: int
    aborted: tuple[int, ...]
    records: memoryview
    read_from: int = NOBODY


_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_REQUEST_HEADER = struct.Struct(">hhi")
_API_VERSION = struct.Struct(">hhh")
_FETCH_HEADER = struct.Struct(">iiiibiii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_FETCH_ANSWER = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqqi")


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > MAX_INT16:
        raise ProtocolError(f"a text of {len(encoded)} bytes cannot be sent")
    return _INT16.pack(len(encoded)) + encoded


def header_of(api: int, version: int, correlation_id: int, client_id: str, body_bytes: int, *, flexible: bool) -> bytes:
    """Return the size and the header of a request."""
    # The client id is never a compact string, even in flexible versions.  Their header ends with tagged fields.
    header = _REQUEST_HEADER.pack(api, version, correlation_id) + _string(client_id) + (b"\0" if flexible else b"")
    return _INT32.pack(len(header) + body_bytes) + header


def offered_versions(response: Reader) -> OfferedVersions:
    """Read the answer to an ApiVersions request, whose body is empty.

    Raises
    ------
    ProtocolError
        If the broker does not return its versions.
    """
    error = response.int16()
    if error:
        raise ProtocolError(f"the broker does not tell which versions it speaks: error {error}")
    return {api: (oldest, newest) for api, oldest, newest in _items(response, _API_VERSION)}


def check_versions(offered: OfferedVersions, needed: Iterable[int]) -> None:
    """Check that a broker supports the fixed versions of these requests.

    Raises
    ------
    UnsupportedVersionError
        If it does not.
    """
    for api in needed:
        version = VERSIONS[api]
        oldest, newest = offered.get(api, (0, -1))
        if not oldest <= version <= newest:
            raise UnsupportedVersionError(
                f"the broker offers versions {oldest} to {newest} of request {api}, not {version}"
            )


def sasl_handshake_request(mechanism: str) -> bytes:
    """Return the body of a request that names the mechanism of the login."""
    return _string(mechanism)


def check_sasl_handshake(response: Reader) -> None:
    """Read the answer to a SaslHandshake request.

    Raises
    ------
    RefusedCredentialsError
        If the broker does not offer the mechanism.
    """
    error = response.int16()
    if error_name(error) == "ILLEGAL_SASL_STATE":
        raise RefusedCredentialsError("the broker expects no login at this port, only PLAINTEXT or SSL")
    if error:
        offered = ", ".join(response.text() for _ in range(response.int32()))
        raise RefusedCredentialsError(f"the broker refuses the SASL mechanism and offers {offered}: error {error}")


def sasl_authenticate_request(message: bytes) -> bytes:
    """Return the body of a request with a message of the mechanism."""
    return _INT32.pack(len(message)) + message


class Authenticated(NamedTuple):
    """The broker's message, and the lifetime of the login; 0 is for ever."""

    message: bytes
    lifetime_ms: int


def sasl_authenticated(response: Reader) -> Authenticated:
    """Read the answer to a SaslAuthenticate request.

    Raises
    ------
    RefusedCredentialsError
        If the broker refuses the credentials.
    """
    error, text = response.int16(), response.text()
    if error:
        raise RefusedCredentialsError(f"the broker refuses the credentials: error {error}: {text}")
    return Authenticated(bytes(response.bytes(response.int32())), response.take(_INT64)[0])


def fetch_request(
    wanted: Mapping[TopicPartition, Wanted],
    *,
    read_committed: bool,
    max_wait_ms: int,
    max_bytes: int,
    rack: str | None = None,
) -> bytes:
    """Return the body of a Fetch request for partitions in this order, without a fetch session.

    With a rack, send it in the version `FETCH_WITH_RACK`.
    """
    by_topic: dict[str, list[bytes]] = {}
    for (topic, partition), (offset, partition_bytes) in wanted.items():
        asked = _FETCH_PARTITION.pack(partition, _NO_EPOCH, offset, -1, partition_bytes)
        by_topic.setdefault(topic, []).append(asked)
    isolation = _READ_COMMITTED if read_committed else _READ_UNCOMMITTED
    header = _FETCH_HEADER.pack(_CONSUMER, max_wait_ms, 1, max_bytes, isolation, 0, -1, len(by_topic))
    topics = [_string(topic) + _INT32.pack(len(asked)) + b"".join(asked) for topic, asked in by_topic.items()]
    return header + b"".join(topics) + _INT32.pack(0) + (b"" if rack is None else _string(rack))


class FetchAnswer(NamedTuple):
    """The answer of a leader, and how long it will not read requests from this connection (KIP-219)."""

    throttle_ms: int
    partitions: list[FetchedPartition]


def fetched(response: Reader, *, with_rack: bool = False) -> FetchAnswer:
    """Read the answer to a Fetch request with or without a rack.

    Raises
    ------
    FetchError
        If the broker refuses the whole request, and no partition has an error.
    """
    throttle_ms, refusal, _ = response.take(_FETCH_ANSWER)
    found = []
    for _ in range(response.int32()):
        topic = response.text()
        for _ in range(response.int32()):
            partition, error, high_watermark, stable, _, aborted_count = response.take(_FETCHED_PARTITION)
            readable_until = stable if stable >= 0 else high_watermark
            aborted = struct.unpack(f">{2 * max(0, aborted_count)}q", response.bytes(16 * aborted_count))
            read_from = response.int32() if with_rack else NOBODY
            records = response.bytes(response.int32())
            tp = TopicPartition(topic, partition)
            found.append(FetchedPartition(tp, error, readable_until, aborted, records, read_from))
    if refusal and not any(partition.error for partition in found):
        raise FetchError("the broker refuses the fetch", refusal)
    return FetchAnswer(throttle_ms, found)


def _items(response: Reader, layout: struct.Struct) -> list[tuple[int, ...]]:
    return [response.take(layout) for _ in range(response.int32())]
