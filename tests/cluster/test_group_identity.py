"""The identity of a member, decoded from the bytes of librdkafka."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.cluster.group_identity import GroupIdentity, group_identity
from pyspark_kafka_group.testing import MockKafka

GROUP = "größe"


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        mock.create_topic("orders", 1)
        yield mock


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_real_members_bytes_are_understood(kafka: MockKafka, protocol: str) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": f"{GROUP}-{protocol}", "group.protocol": protocol})
    assert group_identity(consumer.consumer_group_metadata()).generation == -1
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 20
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.05)
    found = group_identity(consumer.consumer_group_metadata())
    assert found.member_id == consumer.memberid()
    assert found.generation >= 1
    assert found.instance_id is None
    consumer.close()


def test_a_static_members_bytes_are_understood(kafka: MockKafka) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": GROUP, "group.instance.id": "eins"})
    assert group_identity(consumer.consumer_group_metadata()) == GroupIdentity(-1, "", "eins")
    consumer.close()


names = st.text(st.characters(exclude_characters="\0", codec="utf-8"))


@given(generation=st.integers(-1, 2**31 - 1), group=names, member=names, instance=st.none() | names)
def test_all_identities_are_understood(generation: int, group: str, member: str, instance: str | None) -> None:
    rest = b"\1" if instance is None else b"\0" + instance.encode() + b"\0"
    data = b"CGMDv2:" + generation.to_bytes(4, sys.byteorder, signed=True)
    data += group.encode() + b"\0" + member.encode() + b"\0" + rest
    assert group_identity(data) == GroupIdentity(generation, member, instance)
    with pytest.raises(ValueError, match="unknown form"):
        group_identity(data[:-1])


@given(st.binary(max_size=40))
def test_other_bytes_are_refused(data: bytes) -> None:
    for metadata in (data, b"CGMDv3:" + data):
        with pytest.raises(ValueError, match="unknown form"):
            group_identity(metadata)
