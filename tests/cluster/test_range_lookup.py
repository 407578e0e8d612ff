"""The questions behind a batch read: which answers count, and how often the lookup repeats a question."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import MagicMock

import pytest

from pyspark_kafka_group.cluster import range_lookup
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.range_lookup import GonePartitionsError, RangeLookup
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import BrokerError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.topic_requests import ListedOffset
from tests.wire import answers
from tests.wire.fake_broker import Answer, FakeBroker
from tests.wire.fake_group import CLASSIC, LIST, classic, fake_group, listed

TP = TopicPartition("orders", 0)
LOADING = classic("", error_code("COORDINATOR_LOAD_IN_PROGRESS"))


def failed(name: str) -> Answer:
    return answers.listed({TP: ListedOffset(error_code(name), -1, -1)})


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_group("orders", [25], 20) as made:
        yield made


@pytest.fixture
def lookup(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeLookup]:
    monkeypatch.setattr(range_lookup, "_ASK_AGAIN_S", 0.01)
    properties = {"bootstrap.servers": str(broker.address)}
    made = RangeLookup(properties, group_id="etl", read_committed=True, attempts=10, pause_s=0.0)
    yield made
    made.close()


@pytest.mark.parametrize("open_transactions", [True, False])
def test_a_log_end_that_goes_back_for_a_moment(
    broker: FakeBroker, lookup: RangeLookup, open_transactions: bool
) -> None:
    """Regression: a bookmark read records again, left some out, or ended with DataLossError."""
    broker.answers[LIST] = [listed({TP: 20}), listed({TP: 20}), listed({TP: 25})]
    assert lookup.log_ends_reaching({TP: Offset(25)}, open_transactions=open_transactions) == {TP: 25}


def test_a_log_end_that_stays_below(lookup: RangeLookup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "SHORTER_S", 0.1)
    assert lookup.log_ends_reaching({TP: Offset(25)}, open_transactions=True) == {TP: 20}


def test_a_partition_that_a_broker_does_not_know_for_a_moment(broker: FakeBroker, lookup: RangeLookup) -> None:
    """Regression: a read left the partition out, and a bookmark committed it."""
    lookup._attempts = 3
    broker.answers[LIST] = [
        *[failed("UNKNOWN_TOPIC_OR_PARTITION")] * 5,
        failed("NOT_LEADER_OR_FOLLOWER"),
        listed({TP: 25}),
    ]
    assert lookup.log_ends([TP]) == {TP: 25}


@pytest.mark.parametrize(
    ("name", "error"), [("UNKNOWN_TOPIC_OR_PARTITION", GonePartitionsError), ("LEADER_NOT_AVAILABLE", BrokerError)]
)
def test_a_partition_that_goes_on_failing(
    broker: FakeBroker, lookup: RangeLookup, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]
) -> None:
    monkeypatch.setattr(range_lookup, "PATIENCE_S", 0.1)
    broker.answers[LIST] = failed(name)
    with pytest.raises(error, match="orders-0"):
        lookup.log_ends([TP])


def test_a_patient_lookup_waits_for_a_coordinator(broker: FakeBroker, lookup: RangeLookup) -> None:
    """Regression: a bookmark did not commit if the coordinator moved at that moment, and the next run repeated all."""
    broker.answers[CLASSIC] = [LOADING, LOADING, LOADING, classic("Empty")]
    lookup._attempts, lookup._patience_s = 1, 60.0
    lookup.check_group()


def test_a_question_is_repeated_as_often_as_the_user_wants(broker: FakeBroker, lookup: RangeLookup) -> None:
    broker.answers[CLASSIC] = LOADING
    lookup._attempts = 3
    with pytest.raises(BrokerError, match="did not answer 3 times"):
        lookup.check_group()


def test_a_commit_without_a_clear_answer_is_sent_once(lookup: RangeLookup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may commit meanwhile, so the bookmark has to look again."""
    commit = MagicMock(side_effect=TryAgainError("no answer"))
    monkeypatch.setattr(lookup._cluster, "commit", commit)
    with pytest.raises(TryAgainError):
        lookup.commit({TP: (Offset(25), "")})
    assert commit.call_count == 1
