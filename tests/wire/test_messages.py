"""Requests of fixed versions, and answers that a broker should not send."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.wire import messages
from pyspark_kafka_group.wire.fields import Reader
from pyspark_kafka_group.wire.name_lookup import addresses, server_list
from pyspark_kafka_group.wire.types import (
    Address,
    PropertyError,
    ProtocolError,
    RefusedCredentialsError,
    UnsupportedVersionError,
)


@pytest.mark.parametrize(
    "read",
    [messages.offered_versions, messages.check_sasl_handshake, messages.sasl_authenticated, messages.fetched],
)
@settings(max_examples=50)
@given(data=st.binary(max_size=200), huge=st.integers(0, 190))
def test_rubbish_is_a_protocol_error_and_no_other(read: Callable[[Reader], Any], data: bytes, huge: int) -> None:
    for rubbish in (
        data,
        bytes(len(data)),
        data[:huge] + b"\x7f\xff\xff\xff" + data[huge:],
        bytes(huge) + b"\x7f\xff\xff\xff",
    ):
        with suppress(ProtocolError):
            read(Reader(memoryview(rubbish)))


def test_a_broker_that_lacks_a_version_is_told_from_rubbish() -> None:
    with pytest.raises(UnsupportedVersionError, match="versions 11 to 12 of request 1, not 10"):
        messages.check_versions({messages.FETCH: (11, 12)}, [messages.FETCH])
    with pytest.raises(ProtocolError, match="error 35"):
        messages.offered_versions(Reader(memoryview(b"\0\x23\0\0\0\0")))


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("a:1", [Address("a", 1)]),
        ("a:1, SSL://b:2 ,[::1]:3", [Address("a", 1), Address("b", 2), Address("::1", 3)]),
        ("a:1,b,", [Address("a", 1), Address("b", 9092)]),
        (
            "PLAINTEXT://a:1,plaintext://b:2/,sasl_ssl://[::1]:3/x/y",
            [Address("a", 1), Address("b", 2), Address("::1", 3)],
        ),
        ("Sasl_Plaintext://a", [Address("a", 9092)]),
    ],
)
def test_servers_are_hosts_and_ports(servers: str, found: list[Address]) -> None:
    assert addresses(servers) == found
    assert addresses(server_list(found)) == found


@pytest.mark.parametrize(
    "servers", ["", " , ", "INTERNAL://a:1", "a:b", "a:1:2", "::1", "[::1", "a/b:1", "a:123456", "a:90921", "a:0"]
)
def test_servers_that_cannot_be_understood_are_an_error(servers: str) -> None:
    with pytest.raises(PropertyError, match=r"^bootstrap\.servers: "):
        addresses(servers)


def test_a_login_at_a_port_without_one_is_named() -> None:
    """Regression: the error was "the broker offers : error 34"."""
    with pytest.raises(RefusedCredentialsError, match="expects no login at this port"):
        messages.check_sasl_handshake(Reader(memoryview(b"\x00\x22\x00\x00\x00\x00")))
