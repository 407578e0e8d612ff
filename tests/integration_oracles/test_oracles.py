"""Each oracle of the soak accepts a correct run, and names the fault of a wrong run."""

from __future__ import annotations

from typing import Any

import pytest

from integration.oracles import (
    Committed,
    Member,
    Reset,
    Window,
    declared,
    judge_commits_follow_sinks,
    judge_deliveries,
    judge_members,
    judge_progress,
    judge_rising,
    judge_stalls,
    memberships,
)
from integration.sink import Delivery

TP = "t-0"
PRODUCED = {("t", 0): 10}


def event(name: str, at: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {"time": at, "event": name, **fields}


def delivery(start: int, until: int, *, member: str = "a", at: float = 0.0, batch: int = 0) -> Delivery:
    return Delivery(member, at, batch, "t", 0, start, until)


def member(name: str, deliveries: list[Delivery], events: list[dict[str, Any]] | None = None) -> Member:
    return Member(name, events or [], deliveries)


# ------------------------------------------------------------------------------------- deliveries


@pytest.mark.parametrize(
    ("a", "b", "violations"),
    [
        ([delivery(0, 4)], [delivery(4, 10)], []),
        ([delivery(0, 4), delivery(5, 10)], [], ["lost: t-0 [4, 5)"]),
        ([], [], ["lost: t-0 [0, 10)"]),
        ([delivery(0, 12)], [], ["never produced"]),
        ([delivery(0, 6)], [delivery(4, 10, member="b")], ["t-0 [4, 6), by a batch 0 at 0.000 t-0 [0, 6); b batch 0"]),
        ([delivery(0, 10), delivery(3, 4)], [], ["t-0 [3, 4)"]),  # within one batch
    ],
)
def test_each_record_comes_once(a: list[Delivery], b: list[Delivery], violations: list[str]) -> None:
    verdict = judge_deliveries(PRODUCED, [member("a", a), member("b", b)])
    assert len(verdict.violations) == len(violations)
    for found, words in zip(verdict.violations, violations, strict=True):
        assert words in found


@pytest.mark.parametrize(
    ("expired", "declared", "violations"), [([4, 6], 2, []), ([4, 5], 1, ["twice and not declared: t-0 [5, 6)"])]
)
def test_a_declared_duplicate_is_counted_and_excuses_nothing_beside_it(
    expired: list[int], declared: int, violations: list[str]
) -> None:
    told = [event("expired", ranges={TP: expired})]
    verdict = judge_deliveries(PRODUCED, [member("a", [delivery(0, 6)], told), member("b", [delivery(4, 10)])])
    assert (verdict.produced, verdict.delivered) == (10, 10)
    assert (verdict.duplicated, verdict.undeclared, verdict.declared_records) == (declared, 2 - declared, declared)
    assert [found.split(", by ")[0] for found in verdict.violations] == violations


# -------------------------------------------------------------------------------- declared ranges


PLANNED = [event("joined"), event("planned", ranges={TP: [0, 5]})]


@pytest.mark.parametrize(
    ("told", "ranges"),
    [
        ([*PLANNED, event("planned", ranges={TP: [5, 8]}), event("committed", offsets={TP: 3})],
         [(TP, 3, 5), (TP, 5, 8)]),
        ([*PLANNED, event("committed", offsets={TP: 5})], []),
        ([*PLANNED, event("expired", ranges={TP: [2, 5]}), event("left", clean=False)], [(TP, 2, 5)]),
        ([event("replayed", ranges={TP: [0, 5]}, not_owned=[TP], skipped={"t-1": [7, 9]}), event("left")],
         [(TP, 0, 5), ("t-1", 7, 9)]),
    ],
    ids=["killed", "killed after its commit", "left", "replayed what it did not own, and skipped"],
)  # fmt: skip
def test_a_process_declares_what_it_may_have_left_unfinished(
    told: list[dict[str, Any]], ranges: list[tuple[str, int, int]]
) -> None:
    assert list(declared(told)) == ranges


def test_a_restart_begins_a_new_membership() -> None:
    restarted = [event("joined"), event("left")]
    assert list(memberships([*PLANNED, *restarted])) == [PLANNED, restarted]


# ----------------------------------------------------------------------------------------- members


def test_a_member_that_plans_with_a_gap_is_named() -> None:
    told = [event("joined"), event("started", positions={TP: 0}), event("planned", ranges={TP: [1, 5]})]
    (problem,) = judge_members([member("a", [], told)])
    assert "was at 0" in problem


def test_a_member_that_commits_what_is_not_finished_is_named() -> None:
    told = [event("started", positions={TP: 0}), event("planned", ranges={TP: [0, 5]})]
    (problem,) = judge_members([member("a", [], [*told, event("committed", offsets={TP: 5})])])
    assert "finished 0" in problem


def test_a_restarted_member_goes_on_after_its_replay() -> None:
    started = [event("joined"), event("started", positions={TP: 0})]
    killed = [*started, event("planned", ranges={TP: [0, 5]})]
    restarted = [
        *started,
        event("replayed", ranges={TP: [0, 5]}, not_owned=[]),
        event("planned", ranges={TP: [5, 6]}),
    ]
    assert judge_members([member("a", [], [*killed, *restarted])]) == []
    restarted[-1] = event("planned", ranges={TP: [0, 6]})
    assert len(judge_members([member("a", [], [*killed, *restarted])])) == 1


# ----------------------------------------------------------------------------------------- commits


def test_a_committed_offset_that_goes_back_is_named() -> None:
    history = [Committed(1.0, TP, 5), Committed(2.0, "t-1", 3), Committed(3.0, TP, 4)]
    assert judge_rising(history[:2]) == []
    (problem,) = judge_rising(history)
    assert "t-0 from 5 (at 1.000) to 4 (at 3.000)" in problem


def test_a_committed_offset_that_vanishes_is_named() -> None:
    (problem,) = judge_rising([Committed(1.0, TP, None), Committed(2.0, TP, 5), Committed(3.0, TP, None)])
    assert "to nothing" in problem


def test_an_offset_that_an_operator_has_set_back_may_go_back_until_it_is_put_back() -> None:
    history = [Committed(1.0, TP, 5), Committed(2.0, TP, 0), Committed(3.0, TP, 5), Committed(4.0, TP, 6)]
    assert judge_rising(history, [Reset(TP, 1.9, 3.1)]) == []
    assert judge_rising(history, [Reset("t-1", 1.9, 3.1)])
    (problem,) = judge_rising([*history, Committed(5.0, TP, 4)], [Reset(TP, 1.9, 3.1)])
    assert "from 6 (at 4.000) to 4" in problem


def test_a_delayed_plain_commit_may_move_an_offset_back_if_the_query_restores_it() -> None:
    history = [Committed(1.0, TP, 6), Committed(2.0, TP, 4), Committed(5.0, TP, 7)]
    assert judge_rising(history, late=[Window(1.5, 2.5)]) == []
    assert judge_rising(history, late=[Window(3.0, 9.0)])
    assert judge_rising(history[:2], late=[Window(1.5, 2.5)])
    assert judge_rising([*history[:2], Committed(60.0, TP, 7)], late=[Window(1.5, 2.5)])


def test_a_commit_of_what_no_sink_holds_yet_is_named() -> None:
    deliveries = [delivery(0, 5, at=1.0), delivery(5, 8, member="b", at=3.0)]
    commits = [Committed(1.5, TP, 5), Committed(3.5, TP, 8)]
    assert judge_commits_follow_sinks(commits, deliveries) == []
    (problem,) = judge_commits_follow_sinks([*commits, Committed(2.0, TP, 6)], deliveries)
    assert "held all records below 5" in problem


def test_a_commit_beyond_a_gap_is_named() -> None:
    assert judge_commits_follow_sinks([Committed(2.0, TP, 8)], [delivery(0, 3), delivery(4, 8)])


# ---------------------------------------------------------------------------------------- progress


def test_a_partition_that_stands_still_with_a_lag_is_told_once() -> None:
    samples = [Committed(float(t), TP, min(t, 5)) for t in range(30)]
    (problem,) = judge_progress(samples, lambda *_: 100, longest_s=10.0)
    assert problem == "stood still: t-0 at 5 for 10 s and more from 5.000 on"


def test_nobody_can_go_on_without_any_broker() -> None:
    samples = [Committed(float(t), TP, 5) for t in range(30)]
    assert judge_progress(samples, lambda *_: 100, longest_s=10.0, away=[Window(2.0, 9.0), Window(15.0, 19.0)]) == []
    (problem,) = judge_progress(samples, lambda *_: 100, longest_s=10.0, away=[Window(2.0, 9.0), Window(15.0, 18.0)])
    assert problem.endswith("from 18.000 on")
    assert judge_progress(samples, lambda *_: 100, longest_s=10.0, away=[Window(4.0, 40.0)]) == []


def test_a_partition_without_lag_or_with_progress_does_not_stand_still() -> None:
    assert judge_progress([Committed(float(t), TP, 5) for t in range(30)], lambda *_: 5, longest_s=10.0) == []
    assert judge_progress([Committed(float(t), TP, t // 8) for t in range(30)], lambda *_: 100, longest_s=10.0) == []


def test_a_partition_that_was_never_committed_stands_still() -> None:
    assert judge_progress([Committed(float(t), TP, None) for t in range(30)], lambda *_: 100, longest_s=10.0)


# ------------------------------------------------------------------------------------------ stalls


def planned_beside(until: float, *more: dict[str, Any]) -> list[Member]:
    """Return a member that owns two partitions and plans only ``t-1``, once a second."""
    others = [event("planned", float(t), ranges={"t-1": [t, t + 1]}) for t in range(1, int(until))]
    events = [event("joined"), event("started", positions={TP: 3, "t-1": 0}), *others, *more]
    return [member("a", [], sorted(events, key=lambda one: one["time"]))]


def test_a_partition_that_is_left_out_must_be_reported() -> None:
    (problem,) = judge_stalls(planned_beside(20.0), lambda *_: 10)
    assert problem == "left out and not reported: a t-0 at 3 from 1.000 to 17.000"
    assert judge_stalls(planned_beside(20.0, event("heldBack", 10.0, partitions=[TP])), lambda *_: 10) == []
    assert judge_stalls(planned_beside(20.0, event("heldBack", 10.0, partitions=["t-1"])), lambda *_: 10)


def test_a_batch_that_takes_long_leaves_nothing_out() -> None:
    """The query planned the batch while the partition had no leader, and plans nothing else while the batch runs."""
    slow = [event("planned", 1.0, ranges={"t-1": [0, 1]}), event("planned", 30.0, ranges={"t-1": [1, 2]})]
    events = [event("joined"), event("started", positions={TP: 3, "t-1": 0}), *slow]
    assert judge_stalls([member("a", [], events)], lambda *_: 10) != []
    slow[0]["ranges"][TP] = [3, 4]
    assert judge_stalls([member("a", [], events)], lambda *_: 10) == []


def test_a_partition_may_be_left_out_if_it_has_nothing_to_read_or_has_moved() -> None:
    assert judge_stalls(planned_beside(20.0), lambda *_: 3) == []
    assert judge_stalls(planned_beside(20.0, event("planned", 9.5, ranges={TP: [3, 10]})), lambda *_: 10) == []
    assert judge_stalls(planned_beside(20.0, event("released", 9.5, partitions=[TP])), lambda *_: 10) == []
    assert judge_stalls(planned_beside(20.0), lambda tp, time: 10 if time > 8.0 else 3) == []
    assert judge_stalls(planned_beside(20.0), lambda *_: 10, unknown={TP}) == []
