"""Connecting to a name with several addresses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from pyspark_kafka_group.wire.name_lookup import Endpoint, connected
from pyspark_kafka_group.wire.types import UnreachableError


def at(listener: socket.socket) -> Endpoint:
    return Endpoint(socket.AF_INET, socket.SOCK_STREAM, 0, listener.getsockname(), "there")


REFUSED = Endpoint(socket.AF_INET, socket.SOCK_STREAM, 0, ("127.0.0.1", 1), "refused")
NO_FAMILY = Endpoint(1234, socket.SOCK_STREAM, 0, ("127.0.0.1", 1), "of a family that the system does not know")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as made:
        yield made


@pytest.fixture
def full(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield a listener that neither accepts nor refuses, until it accepts the first connection."""
    with socket.create_connection(listener.getsockname()):
        yield listener


def test_an_address_that_answers_late_is_connected_to_although_there_are_many(full: socket.socket) -> None:
    """Regression: nine addresses got a ninth of a second each, so none across an ocean could be connected to."""

    def accept() -> None:
        full.accept()[0].close()

    later = threading.Timer(0.4, accept)  # the system of the client tries again after a second
    later.start()
    made, host = connected([at(full), *[REFUSED] * 3], 3.0)
    with made:
        assert host == "there"
    later.join()


def test_an_address_that_does_not_answer_leaves_time_for_the_next(full: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        made, _ = connected([at(full), at(other)], 0.2)
        with made:
            assert made.getpeername() == other.getsockname()


@pytest.mark.parametrize("first", [REFUSED, NO_FAMILY])
def test_the_next_address_is_tried_if_one_cannot_be(first: Endpoint, listener: socket.socket) -> None:
    """Regression: a family that the system does not have ended the attempts."""
    with closing(connected([first, at(listener)], 20.0)[0]) as made:
        assert made.getpeername() == listener.getsockname()


@pytest.mark.parametrize("found", [[REFUSED, NO_FAMILY], [NO_FAMILY, REFUSED]])
def test_the_error_is_that_of_an_address_that_this_machine_reaches(found: list[Endpoint]) -> None:
    """Regression: it was that of the last one, so a broker that was down looked like a problem of IPv6."""
    with pytest.raises(ConnectionRefusedError):
        connected(found, 20.0)
    with pytest.raises(OSError, match="family"):
        connected([NO_FAMILY], 20.0)


@pytest.mark.parametrize("other", [REFUSED, NO_FAMILY])
def test_an_address_that_is_silent_is_the_error_whatever_the_others_say(full: socket.socket, other: Endpoint) -> None:
    """Regression: a broker that was away looked like a problem of IPv6, because its own attempt had no error yet."""
    for found in ([at(full), other], [other, at(full)]):
        with pytest.raises(UnreachableError):
            connected(found, 0.1)


def test_silence_is_a_timeout(full: socket.socket) -> None:
    with pytest.raises(TimeoutError):
        connected([at(full)] * 3, 0.1)
