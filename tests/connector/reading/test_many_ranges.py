"""A task of many ranges takes no more of everything than its ranges, also while brokers have nothing to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import ReadTimeoutError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading import range_reader
from pyspark_kafka_group.reading.client_cache import open_client
from pyspark_kafka_group.reading.range_reader import RangeReader, ReadOptions
from pyspark_kafka_group.reading.reader_client import ReaderClient, ReaderEvent
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_with
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, PartitionMetadata, TopicMetadata
from tests.connector.columns.batches import batch_of
from tests.connector.columns.test_from_messages import record
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.socket_brokers import SocketBrokers
from tests.connector.reading.test_range_reader import FakeClock
from tests.wire import answers

COUNT = 100
RANGES = {TopicPartition("orders", n): OffsetRange.checked(0, 1) for n in range(COUNT)}
LEADER_NOT_AVAILABLE = 5


class _Electing(SocketBrokers):
    """Brokers whose first answers name no leader."""

    answers_without = 2

    def metadata(self) -> Any:
        if not self.answers_without:
            return super().metadata()
        self.answers_without -= 1
        partitions = tuple(PartitionMetadata(n, LEADER_NOT_AVAILABLE, -1, 0) for n in range(COUNT))
        topic = TopicMetadata("orders", 0, None, partitions)
        return answers.metadata(ClusterMetadata(dict(enumerate(self.addresses)), (topic,)))


@pytest.fixture
def brokers() -> Iterator[_Electing]:
    need_native_library()
    made = _Electing(1, "orders", COUNT, batch_of([record(0, value=b"a")]))
    yield made
    made.close()


def test_a_partition_without_a_leader_concerns_its_own_range(
    brokers: _Electing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each range handled the error of each other one.

    With 2,000 ranges, an election of two seconds took longer than kafkaConsumer.pollTimeoutMs.
    """
    handled: Counter[TopicPartition] = Counter()
    on_nothing = RangeReader.on_nothing

    def count(reader: RangeReader, event: ReaderEvent | None) -> None:
        handled[reader.tp] += event is not None
        on_nothing(reader, event)

    monkeypatch.setattr(RangeReader, "on_nothing", count)
    client = open_client(reader_config({"bootstrap.servers": brokers.bootstrap_servers}, "etl"))
    options = ReadOptions(columns=("offset",), fail_on_data_loss=True, timeout_s=20)
    assert sum(batch.num_rows for batch in read_with(client, RANGES, options)) == COUNT
    assert handled.keys() == RANGES.keys()
    assert max(handled.values()) <= 2
    client.close()


@pytest.mark.parametrize("answered", [True, False])
def test_all_ranges_share_the_answer_whether_their_partitions_exist(*, answered: bool) -> None:
    """Regression: each range asked for itself, over a new connection: a cluster that was away held a task for hours."""
    clock = FakeClock()
    client = MagicMock(spec=ReaderClient, errors={})
    client.poll.side_effect = lambda _ends, wait_s: clock.sleep(wait_s)
    client.watermarks.side_effect = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    client.partition_errors.side_effect = (lambda _s: {}) if answered else client.watermarks.side_effect
    client.text_of.return_value = "away"
    options = ReadOptions(columns=("offset",), fail_on_data_loss=True, timeout_s=20)
    with (
        patch.object(range_reader, "time", clock),
        patch.object(lasting, "time", clock),
        pytest.raises(ReadTimeoutError),
    ):
        list(read_with(client, RANGES, options))
    assert client.partition_errors.call_count == 1
