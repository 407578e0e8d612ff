"""One connection: versions, deadlines, and brokers that do not keep to the protocol."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

import pytest

from pyspark_kafka_group.wire import messages
from pyspark_kafka_group.wire.broker_connection import BrokerConnection, with_input
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.describe_requests import ConsumerGroupDescribe, DescribedGroup, DescribeGroups
from pyspark_kafka_group.wire.group_requests import Coordinator, FindCoordinator, OffsetFetch
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.topic_requests import ListOffsets, Metadata
from pyspark_kafka_group.wire.types import Address, LargeResponseError, ProtocolError, UnsupportedVersionError
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, SILENCE, FakeBroker

ASK = FindCoordinator("etl")
KEY = ASK.api.key
FOUND = Coordinator(0, "", Address("there", 9092))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker({KEY: answers.coordinator(FOUND)})
    yield made
    made.close()


@pytest.fixture
def full() -> Iterator[Address]:
    """Yield an address that takes no more connections, and does not refuse them."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, socket.socket() as first:
        first.connect(listener.getsockname())
        yield Address(*listener.getsockname())


def connect(to: FakeBroker) -> BrokerConnection:
    return BrokerConnection(to.address, "me", 5.0, Security(), needed=())


def test_the_time_for_an_answer_can_be_changed(broker: FakeBroker) -> None:
    """Regression: a connection that was made after timeouts kept its long time for as long as it lived."""
    broker.answers[messages.FETCH] = SILENCE
    connection = BrokerConnection(broker.address, "me", 60.0, Security(), needed=())
    connection.set_timeout(0.1)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        connection.request(messages.FETCH, b"")
    assert time.monotonic() - begin < 5
    connection.close()


@pytest.mark.parametrize(("offered", "version"), [((0, 3), 3), ((0, 4), 4), ((4, 99), 4)])
def test_the_highest_version_of_both_is_spoken(broker: FakeBroker, offered: tuple[int, int], version: int) -> None:
    broker.offered[KEY] = offered
    connection = connect(broker)
    assert connection.ask(ASK, 2.0) == FOUND
    connection.close()
    (asked,) = broker.asked
    assert asked.version == version
    assert asked.client_id == "me"


def test_an_answer_that_has_not_changed_is_the_same_object_and_not_read_again(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may describe thousands of partitions, and each batch needs it."""
    connection = connect(broker)
    first = connection.ask_again(ASK, None)
    assert first.value == FOUND
    with monkeypatch.context() as patch:
        patch.setattr(type(ASK), "read", lambda *_: pytest.fail("it was read"))
        assert connection.ask_again(ASK, first) is first
    other = Coordinator(0, "", Address("elsewhere", 9092))
    broker.answers[KEY] = answers.coordinator(other)
    second = connection.ask_again(ASK, first)
    assert second.value == other
    assert first.value == FOUND, "what was returned is never changed"
    assert connection.ask_again(ASK, second) is second
    assert broker.kinds() == ["FindCoordinator"] * 4


@pytest.mark.parametrize(("wrong", "raised"), [(HANG_UP, ConnectionError), (b"\xff" * 40, ProtocolError)])
def test_what_is_no_answer_is_an_error_the_second_time_as_well(
    broker: FakeBroker, wrong: object, raised: type[Exception]
) -> None:
    connection = connect(broker)
    first = connection.ask_again(ASK, None)
    broker.answers[KEY] = wrong
    with pytest.raises(raised):
        connection.ask_again(ASK, first)


@pytest.mark.parametrize("request_", [ASK, ListOffsets({}, 0)], ids=["flexible", "not flexible"])
def test_an_answer_says_when_the_broker_reads_the_next_request(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, request_: Request[object]
) -> None:
    broker.answers[ListOffsets.api.key] = answers.listed({})
    connection = connect(broker)
    for throttle_ms, seconds in ((0, 0), (30_000, 30), (10**9, 60)):
        monkeypatch.setattr(answers, "THROTTLE_MS", throttle_ms)
        connection.ask(request_, 2.0)
        assert seconds - 2 < connection.free_at.left_s <= seconds


def test_a_request_that_the_broker_does_not_know_is_not_sent(broker: FakeBroker) -> None:
    del broker.offered[ConsumerGroupDescribe.api.key]
    connection = connect(broker)
    with pytest.raises(UnsupportedVersionError, match="ConsumerGroupDescribe"):
        connection.ask(ConsumerGroupDescribe("etl"), 2.0)
    assert connection.ask(ASK, 2.0) == FOUND, "the connection is still good"
    assert broker.kinds() == ["FindCoordinator"]


def test_reading_needs_its_fixed_versions(broker: FakeBroker) -> None:
    with pytest.raises(UnsupportedVersionError, match="request 1, not 10"):
        BrokerConnection(broker.address, "me", 5.0, Security())


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"\0", bytes(3), b"\xff" * 40, b"\0\0\0\0\0\xff\xff\xff\xff\x0f", b"HTTP/1.1 400 Bad Request\r\n\r\n"],
    ids=repr,
)
def test_rubbish_is_a_protocol_error(broker: FakeBroker, rubbish: bytes) -> None:
    broker.answers[KEY] = rubbish
    with pytest.raises(ProtocolError):
        connect(broker).ask(ASK, 2.0)


def test_an_answer_that_is_longer_than_its_schema_is_read_and_the_next_one_too(broker: FakeBroker) -> None:
    """librdkafka's mock cluster appends a byte to Metadata."""
    dead = DescribedGroup(0, "", "Dead", None, ())
    broker.answers[DescribeGroups.api.key] = lambda out, version: (
        answers.classic_group(dead)(out, version),
        out.int8(0),
    )
    connection = connect(broker)
    assert connection.ask(DescribeGroups("etl"), 2.0) == dead
    assert connection.ask(DescribeGroups("etl"), 2.0) == dead


def test_a_broker_that_is_silent_is_waited_for_as_long_as_was_said(broker: FakeBroker) -> None:
    broker.answers[KEY] = SILENCE
    connection = connect(broker)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        connection.ask(ASK, 0.3)
    assert 0.2 < time.monotonic() - begin < 2


class Slow(FakeBroker):
    """Sends the answers to some requests in pieces, with pauses."""

    slow: Collection[int] = ()
    piece, pause_s = 1, 0.1

    def deliver(self, client: socket.socket, api: int, answer: bytes) -> None:
        if api not in self.slow:
            client.sendall(answer)
            return
        for begin in range(0, len(answer), self.piece):
            client.sendall(answer[begin : begin + self.piece])
            time.sleep(self.pause_s)


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow({KEY: answers.coordinator(FOUND), messages.FETCH: bytes(1000)})
    made.offered[messages.FETCH] = (10, 10)
    yield made
    made.close()


WAYS: dict[str, tuple[int, Callable[[FakeBroker], object]]] = {
    "beginning in time": (
        messages.API_VERSIONS,
        lambda broker: BrokerConnection(broker.address, "me", 60.0, Security(), needed=(), begin_s=0.5),
    ),
    "beginning": (
        messages.API_VERSIONS,
        lambda broker: BrokerConnection(broker.address, "me", 0.5, Security(), needed=()),
    ),
    "asking": (KEY, lambda broker: connect(broker).ask(ASK, 0.5)),
    "receiving": (KEY, lambda broker: ask_apart(BrokerConnection(broker.address, "me", 0.5, Security(), needed=()))),
    "fetching": (
        messages.FETCH,
        lambda broker: BrokerConnection(broker.address, "me", 0.2, Security(), hold_s=0.3).request(messages.FETCH, b""),
    ),
}


def ask_apart(connection: BrokerConnection) -> object:
    encoded = connection.encode(ASK)
    connection.send(encoded)
    return connection.receive(encoded)


@pytest.mark.parametrize(("api", "way"), WAYS.values(), ids=WAYS)
def test_a_broker_that_answers_byte_by_byte_is_not_waited_for_for_ever(
    slow: Slow, api: int, way: Callable[[FakeBroker], object]
) -> None:
    """Regression: each byte arrived in time, and planning, connecting and fetching waited for the last one."""
    slow.slow = {api}
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="no whole answer"):
        way(slow)
    assert time.monotonic() - begin < 3


def test_a_large_answer_that_arrives_slowly_is_received(slow: Slow) -> None:
    """It takes twice as long as an answer may, but no pause of it does."""
    slow.answers[messages.FETCH] = bytes(500_000)
    slow.slow, slow.piece, slow.pause_s = {messages.FETCH}, 25_000, 0.05
    connection = BrokerConnection(slow.address, "me", 0.5, Security())
    assert connection.request(messages.FETCH, b"").left == 500_000


def test_a_connection_that_the_broker_has_closed_is_not_idle(broker: FakeBroker) -> None:
    connection = connect(broker)
    assert connection.is_idle()
    connection.ask(ASK, 2.0)
    assert connection.is_idle()
    broker.disconnect()
    for _ in range(100):
        if not connection.is_idle():
            break
        time.sleep(0.01)
    assert not connection.is_idle()
    connection.close()
    assert not connection.is_idle()


def test_an_answer_that_comes_too_late_is_no_answer_to_the_next_request(broker: FakeBroker) -> None:
    """For example, the late answer has the offsets of another group."""
    fetch = OffsetFetch("other", [], require_stable=False)
    connection = connect(broker)
    connection.send(connection.encode(ASK))  # without waiting for the answer
    time.sleep(0.2)
    assert not connection.is_idle()
    with pytest.raises(ProtocolError, match="another request"):
        connection.ask(fetch, 1.0)


class Resolver:
    """Replaces getaddrinfo, and answers when the test allows it."""

    def __init__(self, to: Address) -> None:
        self.to = to
        self.asked = 0
        self.may_answer = threading.Event()

    def __call__(self, *_: object, **__: object) -> list[object]:
        self.asked += 1
        self.may_answer.wait(20)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", self.to)]


def test_a_request_of_many_buffers_arrives_whole(broker: FakeBroker) -> None:
    """More buffers than the kernel takes at once, and more bytes than a socket holds."""
    connection = connect(broker)
    body = [b"x" * size for size in (0, 1, 2_000_000, *[7] * 3000)]
    broker.answers[messages.PRODUCE] = b"answer"
    connection.begin(messages.PRODUCE, body, Deadline.after(5))
    assert [*with_input([connection], 5)] == [connection]
    assert connection.has_input()
    assert not connection.is_idle()
    assert bytes(connection.end(Deadline.after(5)).bytes(6)) == b"answer"
    assert connection.is_idle()
    [asked] = broker.asked
    assert (asked.api, asked.version, asked.body) == (messages.PRODUCE, 7, b"".join(body))


SENDING: dict[str, Callable[[BrokerConnection], object]] = {
    "many buffers": lambda to: to.begin(messages.PRODUCE, [bytes(1000), bytes(20_000_000)], Deadline.after(0.3)),
    "one buffer": lambda to: to.ask(Metadata(("x" * 10_000,) * 2000), 0.3),
}


@pytest.mark.parametrize("send", SENDING.values(), ids=SENDING)
def test_a_broker_that_receives_slowly_is_not_waited_for_for_ever(
    broker: FakeBroker, send: Callable[[BrokerConnection], object]
) -> None:
    """Regression: each piece was received in time, and a task of the sink waited for the last one."""
    connection = connect(broker)
    connection.close()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        connection._socket = socket.create_connection(listener.getsockname())
        client, _ = listener.accept()
    with client:

        def receive() -> None:
            with suppress(OSError):
                while client.recv(65_536):
                    time.sleep(0.05)

        threading.Thread(target=receive, daemon=True).start()
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match="does not receive the request"):
            send(connection)
        assert time.monotonic() - begin < 2


def test_one_of_several_connections_has_an_answer(broker: FakeBroker) -> None:
    silent, answering = connect(broker), connect(broker)
    assert with_input([silent, answering], 0.01) == []
    broker.answers[messages.PRODUCE] = b""
    answering.begin(messages.PRODUCE, [b"a", b"b"], Deadline.after(5))
    assert with_input([silent, answering], 5) == [answering]


def test_a_name_server_that_hangs_is_not_waited_for_for_ever(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(broker.address)
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    named = Address("kafka.example", 9092)
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(TimeoutError, match=r"kafka\.example"):
            BrokerConnection(named, "me", 5.0, Security(), needed=(), begin_s=0.1)
    assert time.monotonic() - begin < 2
    assert resolver.asked == 1, "a thread for a name, however often it is asked for"
    resolver.may_answer.set()
    connection = BrokerConnection(named, "me", 5.0, Security(), needed=())
    assert connection.ask(ASK, 2.0) == FOUND


def test_a_name_that_is_not_known_or_no_name_is_an_error() -> None:
    with pytest.raises(OSError, match=r"not known|resolution"):
        BrokerConnection(Address("no-such-host.invalid", 9092), "me", 20.0, Security())
    for host in ("127.0.0.1\0x", "a..b", "a" * 64 + ".example", "x" * 300):
        with pytest.raises(ProtocolError, match="no host name"):
            BrokerConnection(Address(host, 9092), "me", 5.0, Security())


def test_a_name_that_is_too_long_for_a_request_is_an_error(broker: FakeBroker) -> None:
    with pytest.raises(ProtocolError, match="a text of 40000 bytes cannot be sent"):
        BrokerConnection(broker.address, "m" * 40_000, 5.0, Security())


def test_the_next_address_of_a_name_is_tried(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example is localhost, if a broker listens on IPv4 only."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", at) for at in (("127.0.0.1", 1), broker.address)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    connection = BrokerConnection(Address("kafka.example", 9092), "me", 5.0, Security(), needed=())
    assert connection.ask(ASK, 2.0) == FOUND


def test_a_connection_attempt_may_get_less_time_than_an_answer(full: Address) -> None:
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        BrokerConnection(full, "me", 60.0, Security(), connect_s=0.1)
    assert time.monotonic() - begin < 10


def test_a_name_is_found_after_a_fork_during_its_lookup(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the child waited for the thread of its parent, each time."""
    resolver = Resolver(broker.address)
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    with pytest.raises(TimeoutError, match=r"kafka\.example"):
        BrokerConnection(Address("kafka.example", 9092), "me", 5.0, Security(), needed=(), begin_s=0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [(socket.AF_INET, socket.SOCK_STREAM, 0, "", broker.address)])
    monkeypatch.setattr(os, "getpid", lambda: -1)
    connection = BrokerConnection(Address("kafka.example", 9092), "me", 5.0, Security(), needed=(), begin_s=2.0)
    assert connection.ask(ASK, 2.0) == FOUND
    resolver.may_answer.set()


def test_a_response_may_be_as_large_as_was_said_and_no_larger(broker: FakeBroker) -> None:
    broker.answers[KEY] = bytes(1000)
    connection = BrokerConnection(broker.address, "me", 5.0, Security(), needed=(), most_bytes=1003)
    with pytest.raises(LargeResponseError) as problem:
        connection.ask(ASK, 2.0)
    assert problem.value.length == 1004
    with pytest.raises(ProtocolError, match="0 groups"):
        BrokerConnection(broker.address, "me", 5.0, Security(), needed=(), most_bytes=1004).ask(ASK, 2.0)


def test_a_broker_may_hold_a_request_for_longer(broker: FakeBroker) -> None:
    broker.answers[messages.FETCH] = SILENCE
    broker.offered[messages.FETCH] = (10, 10)
    connection = BrokerConnection(broker.address, "me", 0.1, Security(), hold_s=0.4)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        connection.request(messages.FETCH, b"")
    assert 0.4 < time.monotonic() - begin < 3
