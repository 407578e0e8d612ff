"""What a query says about a cluster that it cannot reach when it starts."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from pyspark_kafka_group.cluster import group_offsets
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.offsets.errors import BrokerError
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.testing.ports import free_ports


def connecting_to(servers: str, **properties: str) -> None:
    offsets = GroupOffsets({"bootstrap.servers": servers, **properties}, group_id="etl", read_committed=True)
    try:
        offsets.connect(["orders"])
    finally:
        offsets.close()


def fail_lookups(monkeypatch: pytest.MonkeyPatch, code: int, text: str) -> None:
    def fail(*_: Any) -> None:
        raise socket.gaierror(code, text)

    monkeypatch.setattr(socket, "getaddrinfo", fail)


def test_an_unknown_name_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_lookups(monkeypatch, socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(group_offsets, "_RETRY_S", 3600.0)
    with pytest.raises(BrokerError, match=r"no name server knows a host of 'kafka:9092'\. Correct the name"):
        connecting_to("kafka:9092")


def test_a_name_server_that_does_not_answer_may_answer_later(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_lookups(monkeypatch, socket.EAI_AGAIN, "Temporary failure in name resolution")
    monkeypatch.setattr(group_offsets, "CONNECT_TIMEOUT_S", 0.1)
    with pytest.raises(BrokerError, match=r"answered within 0\.1 s \(Temporary failure in name resolution\)"):
        connecting_to("kafka:9092")


def test_a_cluster_far_away_is_reached() -> None:
    """Regression: each attempt ended before TCP, the login and the first answer were through, and began anew."""
    with MockKafka(brokers=3) as kafka:
        kafka.create_topic("orders", 1)
        for broker in (1, 2, 3):
            kafka.set_round_trip_ms(broker, 400)
        connecting_to(kafka.bootstrap_servers)


def test_a_new_topic_of_a_cluster_far_away_gets_as_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempts after the first answer may take as long as the one that had it."""
    asked_s: list[float] = []

    def ask(_self: GroupOffsets, _topics: object, timeout_s: float) -> dict[str, int]:
        asked_s.append(timeout_s)
        if timeout_s < 8:
            raise TryAgainError("timed out")
        return {"orders": len(asked_s) // 5}

    monkeypatch.setattr(GroupOffsets, "_partition_counts", ask)
    monkeypatch.setattr(group_offsets, "_RETRY_S", 0.001)
    connecting_to("127.0.0.1:1")
    assert asked_s == [2, 4, 8, 8, 8]


def test_one_wrong_name_beside_a_broker_that_is_down_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    [port] = free_ports(1)
    monkeypatch.setattr(group_offsets, "CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr("pyspark_kafka_group.offsets.wait_notice.FIRST_S", 0.1)
    with caplog.at_level(logging.WARNING), pytest.raises(BrokerError, match=r"0\.5 s \(Connection refused\)\. Check"):
        connecting_to(f"127.0.0.1:{port},no-such-host.invalid:9092")
    assert [record.getMessage() for record in caplog.records] == [
        f"The cluster at '127.0.0.1:{port},no-such-host.invalid:9092' has not answered for 0 s (Connection refused). "
        f"Trying for 0.5 s."
    ]


@pytest.mark.parametrize(
    ("answer", "properties", "said"),
    [
        (b"", {}, "the broker closed the connection, as at a port that wants a login or TLS"),
        (b"", {"security.protocol": "ssl"}, "it does not speak TLS at this port"),
        (b"\0\0\0\4\0\0\0\1", {"security.protocol": "ssl"}, "it does not speak TLS at this port"),
    ],
)
def test_a_port_with_another_protocol_is_named(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, properties: dict[str, str], said: str
) -> None:
    import threading

    monkeypatch.setattr(group_offsets, "CONNECT_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(BrokerError) as raised:
            connecting_to(f"127.0.0.1:{server.getsockname()[1]}", **properties)
        server.shutdown(socket.SHUT_RDWR)
    assert f"({said})" in str(raised.value)
