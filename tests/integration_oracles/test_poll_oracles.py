"""Jepsen's checks find each planted fault, and accept correct runs."""

from __future__ import annotations

from typing import Any

from integration.oracles import Committed as Commit
from integration.oracles import Member, judge_commits_follow_sinks, judge_deliveries
from integration.poll_oracles import Transactions, defects_of_kafka, judge_polls, judge_transactions
from integration.sink import Delivery

TP = "t-0"
NONE: dict[str, frozenset[int]] = {}

# Two records; an aborted record and the marker of its transaction; one more record and its marker.
PRODUCED, INVISIBLE = {("t", 0): 6}, {TP: frozenset({2, 3, 5})}


def delivery(start: int, until: int, at: float, member: str = "a", batch: int = 0) -> Delivery:
    return Delivery(member, at, batch, "t", 0, start, until)


def member(name: str, deliveries: list[Delivery], *events: dict[str, Any]) -> Member:
    return Member(name, events, deliveries)


# ------------------------------------------------------------------------------------------- polls


def test_a_partition_that_moves_in_order_is_right() -> None:
    a = member("a", [delivery(0, 4, 1.0), delivery(9, 12, 3.0, batch=1)])
    b = member("b", [delivery(4, 9, 2.0, "b")])
    assert judge_polls([a, b], NONE) == []


def test_a_record_that_the_next_owner_skips_is_named_also_if_it_comes_later() -> None:
    a, b = member("a", [delivery(0, 4, 1.0), delivery(4, 6, 3.0)]), member("b", [delivery(6, 9, 2.0, "b")])
    skip, back = judge_polls([a, b], NONE)
    assert skip == "poll skip: b batch 0 at 2.000 t-0 [6, 9), and [4, 6) had come to nobody"
    assert back.startswith("nonmonotonic poll: a batch 0 at 3.000 t-0 [4, 6) after b batch 0")


def test_a_skip_within_a_batch_is_named() -> None:
    assert "[2, 3)" in judge_polls([member("a", [delivery(0, 2, 1.0), delivery(3, 4, 1.0)])], NONE)[0]


def test_what_no_reader_is_given_is_not_skipped() -> None:
    a = member("a", [delivery(0, 2, 1.0), delivery(4, 5, 1.0), delivery(6, 7, 2.0, batch=1)])
    assert judge_polls([a], INVISIBLE) == []


def test_the_next_owner_that_goes_back_is_named() -> None:
    a, b = member("a", [delivery(0, 6, 1.0)]), member("b", [delivery(4, 9, 2.0, "b")])
    (problem,) = judge_polls([a, b], NONE)
    assert problem == "nonmonotonic poll: b batch 0 at 2.000 t-0 [4, 9) after a batch 0 at 1.000 t-0 [0, 6): [4, 6)"


def test_going_back_in_a_declared_range_is_right_and_beside_it_is_not() -> None:
    told = {"time": 1.5, "event": "expired", "ranges": {TP: [5, 6]}}
    a, b = member("a", [delivery(0, 6, 1.0)], told), [delivery(5, 9, 2.0, "b"), delivery(4, 9, 2.0, "b")]
    assert judge_polls([a, member("b", b[:1])], NONE) == []
    (problem,) = judge_polls([a, member("b", b[1:])], NONE)
    assert problem.endswith(": [4, 5)")


def test_rows_of_a_batch_that_come_in_another_order_are_named() -> None:
    """The sink keeps the order of its rows; see the test of ``in_order``."""
    (skip, back) = judge_polls([member("a", [delivery(3, 5, 1.0), delivery(0, 3, 1.0)])], NONE)
    assert "poll skip" in skip
    assert "nonmonotonic poll" in back


# ------------------------------------------------------------------------------------ transactions


def test_an_aborted_record_in_a_sink_is_named() -> None:
    transactions = Transactions({TP: {0: 1.0, 1: 1.0, 4: 2.0}}, {TP: frozenset({2})})
    right = [delivery(0, 2, 1.5), delivery(4, 5, 2.5)]
    assert judge_transactions(transactions, NONE, right) == []
    (problem,) = judge_transactions(transactions, NONE, [delivery(0, 3, 1.5)])
    assert problem == "aborted read: a batch 0 at 1.500 t-0 [0, 3): [2, 3)"
    assert judge_transactions(transactions, {TP: frozenset({0, 1, 2})}, [delivery(0, 3, 1.5)]) == []


def test_a_record_that_came_before_its_transaction_was_committed_is_named() -> None:
    (problem,) = judge_transactions(Transactions({TP: {0: 1.0, 1: 2.0}}), NONE, [delivery(0, 2, 1.5)])
    assert problem == "precommitted read: a batch 0 at 1.500 t-0 [0, 2): [1, 2)"


def test_a_committed_record_that_the_log_has_lost_is_a_lost_write() -> None:
    transactions = Transactions({TP: {0: 1.0, 1: 1.0}}, {TP: frozenset({2})})
    assert defects_of_kafka(transactions, {TP: frozenset({0, 1})}) == []
    lost, read = defects_of_kafka(transactions, {TP: frozenset({0, 2})})
    assert lost.startswith("lost write: t-0 [1, 2)")
    assert read.startswith("aborted read: t-0 [2, 3)")


def test_records_between_invisible_ones_are_counted() -> None:
    verdict = judge_deliveries(PRODUCED, [member("a", [delivery(0, 2, 1.0), delivery(4, 5, 1.0)])], INVISIBLE)
    assert (verdict.produced, verdict.delivered, verdict.lost, verdict.violations) == (3, 3, 0, [])
    verdict = judge_deliveries(PRODUCED, [member("a", [delivery(0, 3, 1.0)])], INVISIBLE)
    assert (verdict.lost, verdict.foreign) == (1, 1)
    assert verdict.violations == ["delivered and not committed: t-0 [2, 3)", "lost: t-0 [4, 5)"]


def test_a_commit_may_pass_what_no_reader_is_given_and_nothing_else() -> None:
    deliveries = [delivery(0, 2, 1.0)]
    assert judge_commits_follow_sinks([Commit(2.0, TP, 4)], deliveries, INVISIBLE) == []
    assert judge_commits_follow_sinks([Commit(2.0, TP, 5)], deliveries, INVISIBLE)
    assert judge_commits_follow_sinks([Commit(2.0, TP, 4)], deliveries)
