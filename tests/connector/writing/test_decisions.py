"""The decision to commit a batch, as it is kept in Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.errors import SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.writing.decisions import (
    Decision,
    Transaction,
    decision_offsets,
    newest_decision,
    sink_transactional_id,
)

transactions = st.builds(
    Transaction,
    st.integers(0, 99999),
    st.integers(0, 3),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
)
decisions = st.builds(
    Decision,
    st.integers(0, 2**40),
    st.lists(transactions, min_size=1, max_size=400, unique=True).map(lambda found: tuple(sorted(found))),
)


@given(decisions)
def test_what_is_kept_is_read_again_and_fits(decision: Decision) -> None:
    kept = decision_offsets("t", decision)
    assert newest_decision(kept) == decision
    assert all(len(metadata) <= 4096 for _, metadata in kept.values())
    assert [tp.partition for tp in kept] == list(range(len(kept)))


@given(decisions, decisions)
def test_the_newest_one_counts(one: Decision, other: Decision) -> None:
    """A later decision with fewer pieces leaves pieces of the one before."""
    older, newer = sorted((one, other), key=lambda decision: decision.batch)
    if older.batch == newer.batch:
        return
    kept = {**decision_offsets("t", older), **decision_offsets("t", newer)}
    assert newest_decision(kept) == newer


def test_a_format_that_stays() -> None:
    decision = Decision(7, (Transaction(0, 0, 1000, 3), Transaction(1, 2, 1001, 0)))
    assert decision_offsets("t", decision) == {
        TopicPartition("t", 0): (7, '{"v":1,"piece":0,"pieces":1,"transactions":"0.0.1000.3,1.2.1001.0"}')
    }
    assert sink_transactional_id("q", 1, 2) == "kafka-group-sink-q-1-2"


def test_no_offsets_are_no_decision() -> None:
    assert newest_decision({}) is None


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ("", "cannot be understood"),
        ("{}", "cannot be understood"),
        ('{"v":2,"piece":0,"pieces":1,"transactions":"0.0.1.1"}', "version 2"),
        ('{"v":1,"piece":0,"pieces":1,"transactions":"0.0"}', "cannot be understood"),
        ('{"v":1,"piece":0,"pieces":2,"transactions":"0.0.1.1"}', "is incomplete"),
    ],
)
def test_what_cannot_be_understood_is_an_error(metadata: str, text: str) -> None:
    with pytest.raises(SinkTransactionError, match=text):
        newest_decision({TopicPartition("t", 0): (7, metadata)})
