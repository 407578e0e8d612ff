"""The decision to commit a batch, as Kafka stores it."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.errors import SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.writing.commit_decision import Decision, Transaction, decision_offsets, newest_decision
from pyspark_kafka_group.writing.row_digest import RowDigest

transactions = st.builds(
    Transaction,
    st.integers(0, 99999),
    st.integers(0, 9),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
)
decisions = st.builds(
    Decision,
    st.integers(0, 2**40),
    st.lists(transactions, min_size=1, max_size=100, unique=True).map(lambda found: tuple(sorted(found))),
    st.builds(RowDigest, st.integers(0, 2**60), st.integers(0, 2**64 - 1)),
)
DIGEST = RowDigest(5, 2**64 - 1)


@given(decisions)
def test_what_is_kept_is_read_again_and_fits(decision: Decision) -> None:
    kept = decision_offsets(["a", "b"], decision)
    assert newest_decision(kept) == decision
    assert all(len(metadata) <= 4096 for _, metadata in kept.values())
    assert [*kept] == [TopicPartition("a", 0), TopicPartition("b", 0)]


@given(decisions, decisions)
def test_the_newest_one_counts(one: Decision, other: Decision) -> None:
    """A later decision has other topics."""
    older, newer = sorted((one, other), key=lambda decision: decision.batch)
    if older.batch == newer.batch:
        return
    kept = {**decision_offsets(["a", "b"], older), **decision_offsets(["b", "c"], newer)}
    assert newest_decision(kept) == newer


def test_there_is_room_for_hundreds_of_tasks() -> None:
    """This holds even if their producers began at different times."""
    made = tuple(Transaction(n, n % 2, 7919 * n % 100_000, 31 * n % 500) for n in range(500))
    assert newest_decision(decision_offsets(["t"], Decision(7, made, DIGEST))) == Decision(7, made, DIGEST)
    more = tuple(Transaction(n, 0, 7919 * n * n % 2**40, 31 * n * n % 2**15) for n in range(2000))
    with pytest.raises(SinkTransactionError, match=r"2000 tasks with rows.*Write with fewer tasks"):
        decision_offsets(["t"], Decision(7, more, DIGEST))


def test_a_format_that_stays() -> None:
    decision = Decision(7, (Transaction(0, 0, 1000, 3), Transaction(1, 2, 1001, 0)), DIGEST)
    kept = {
        TopicPartition("t", 0): (
            7,
            '{"v":3,"rows":5,"sum":"ffffffffffffffff","transactions":"eNqLjjbQMYzVAZJGQNLQwADCNdbRNY6NBQBq/AcV"}',
        )
    }
    assert newest_decision(kept) == decision
    assert decision_offsets(["t"], decision).keys() == kept.keys()


def test_no_offsets_are_no_decision() -> None:
    assert newest_decision({}) is None


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ("", "cannot read"),
        ("{}", "cannot read"),
        ('{"v":1,"piece":0,"pieces":1,"transactions":"0.0.1.1"}', "version 1"),
        (json.dumps({"v": 3, "rows": 1, "sum": "0", "transactions": "rubbish"}), "cannot read"),
        (json.dumps({"v": 3, "rows": 1, "sum": "0", "transactions": b64encode(b"rubbish").decode()}), "cannot read"),
    ],
)
def test_what_cannot_be_understood_is_an_error(metadata: str, text: str) -> None:
    with pytest.raises(SinkTransactionError, match=text):
        newest_decision({TopicPartition("t", 0): (7, metadata)})
