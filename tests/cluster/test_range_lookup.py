"""The questions behind a batch read: which answers count, and which are asked for again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.cluster import range_lookup
from pyspark_kafka_group.cluster.range_lookup import RangeLookup
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_group import LIST, fake_group, listed

TP = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_group("orders", [25], 20) as made:
        yield made


@pytest.fixture
def lookup(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeLookup]:
    monkeypatch.setattr(range_lookup, "_ASK_AGAIN_S", 0.01)
    properties = {"bootstrap.servers": str(broker.address)}
    made = RangeLookup(properties, group_id="etl", read_committed=True, attempts=1, pause_s=0.0)
    yield made
    made.close()


def test_a_log_end_that_goes_back_for_a_moment(broker: FakeBroker, lookup: RangeLookup) -> None:
    """Regression: a bookmark read records again, or ended with DataLossError."""
    broker.answers[LIST] = [listed({TP: 20}), listed({TP: 20}), listed({TP: 25})]
    assert lookup.high_watermarks({TP: Offset(25)}) == {TP: 25}


def test_a_log_end_that_stays_below(lookup: RangeLookup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_lookup, "SHORTER_S", 0.1)
    assert lookup.high_watermarks({TP: Offset(25)}) == {TP: 20}
