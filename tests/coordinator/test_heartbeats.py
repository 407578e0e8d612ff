"""A member of KIP-848 and its heartbeats, with the real client and a broker that answers them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from pyspark_kafka_group.coordinator.member import Callbacks, Member, Standing
from pyspark_kafka_group.wire.fields import Writer
from pyspark_kafka_group.wire.group_requests import FindCoordinator
from pyspark_kafka_group.wire.topic_requests import Metadata
from tests.coordinator.test_member import settings
from tests.wire.fake_broker import Asked, ByRequest, FakeBroker
from tests.wire.fake_group import topic_metadata

HEARTBEAT = 68
COORDINATOR_LOAD_IN_PROGRESS = 14

# So many come while a broker loads a group for some seconds: librdkafka asks three times with each heartbeat.
FAILURES = 40


class Coordinator(FakeBroker):
    """Answers heartbeats, and each one with an error while `failures` is above 0."""

    failures = 0
    heartbeats = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.offered |= {FindCoordinator.api.key: (0, 2), HEARTBEAT: (0, 1)}  # what librdkafka speaks
        self.answers |= {
            Metadata.api.key: topic_metadata([self], {"t": 1}),
            FindCoordinator.api.key: self._address(),
            HEARTBEAT: ByRequest(self._heartbeat),
        }

    def _address(self) -> bytes:
        host, port = self.address
        return struct.pack(f">ihhih{len(host)}si", 0, 0, -1, 1, len(host), host.encode(), port)

    def _heartbeat(self, asked: Asked) -> bytes:
        error = COORDINATOR_LOAD_IN_PROGRESS if self.failures else 0
        self.failures = max(0, self.failures - 1)
        self.heartbeats += not error
        out = Writer(flexible=True)
        out.end()  # of the header
        out.int32(0)  # throttle time
        out.int16(error)
        out.text(None)  # error message
        out.text("member-1")
        out.int32(1)  # epoch
        out.int32(5000)  # heartbeat interval
        out.int8(-1)  # no new assignment
        out.end()
        return bytes(out)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    broker = Coordinator()
    yield broker
    broker.close()


def test_heartbeats_go_on_after_many_have_failed(coordinator: Coordinator) -> None:
    """Regression: after ten failed ones, each question for changes put off the heartbeat until the next question."""
    member = Member(
        settings("consumer", **{"bootstrap.servers": "{}:{}".format(*coordinator.address)}),
        client_id="c",
        callbacks=Callbacks(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None),
    )
    member.subscribe(["t"])

    def poll_until(count: int) -> None:
        deadline = time.monotonic() + 15
        while coordinator.heartbeats < count and time.monotonic() < deadline:
            member.poll()
            time.sleep(0.01)
        assert coordinator.heartbeats >= count, f"{coordinator.failures} of {FAILURES} failures were not even asked for"

    try:
        poll_until(1)
        assert member.standing in (Standing.JOINING, Standing.ADMITTED)
        poll_until(3)
        coordinator.failures = FAILURES
        poll_until(coordinator.heartbeats + 3)
    finally:
        member.close()
