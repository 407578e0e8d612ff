"""What the member does around librdkafka's callbacks; the rest is in ``test_group_thread``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from pyspark_kafka_group.coordinator.member import Callbacks, Member
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.start import StartingOffset, StartPolicy


class StubConsumer:
    """Answers nothing, and notes what it is asked."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.asked: list[str] = []
        self.pending: list[Callable[[], None]] = []

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[Any]], None]) -> None:
        self.callbacks = callbacks

    def poll(self, timeout: float) -> None:
        while self.pending:
            self.pending.pop(0)()

    def memberid(self) -> str:
        return "member"

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.asked.append("assign")

    incremental_unassign = incremental_assign

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(f"metadata of {topic}")
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_after_each_rebalance_a_classic_member_may_join_again_at_once(
    protocol: str, callback: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka would wait for up to a second; the answer to a metadata request lifts that."""
    monkeypatch.setattr(confluent_kafka, "Consumer", StubConsumer)
    ignored = Callbacks(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None)
    settings = GroupSettings(
        properties={"group.protocol": protocol},
        group_id="g",
        topics=("t",),
        commit_mode=CommitMode.TRANSACTION,
        drain_timeout_s=1.0,
        read_committed=True,
        start=StartPolicy(group_id="g", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True),
    )
    member = Member(settings, client_id="c", callbacks=ignored)
    member.subscribe(["t"])
    consumer: Any = member._consumer
    consumer.pending.append(lambda: consumer.callbacks[callback](consumer, []))
    for _ in range(3):
        member.poll()
    assert consumer.asked == ["assign", *(["metadata of t"] if protocol == "classic" else [])]
