"""The harness measures hand-over latencies and pauses."""

from __future__ import annotations

from typing import Any

import pytest

from integration.hand_overs import hand_overs, outside, pauses, percentile
from integration.oracles import Member, Window
from integration.sink import Delivery

TP = "t-0"


def event(name: str, at: float, **fields: Any) -> dict[str, Any]:
    return {"time": at, "event": name, **fields}


def delivery(member: str, at: float, start: int) -> Delivery:
    return Delivery(member, at, 0, "t", 0, start, start + 1)


OLD = Member(
    "old",
    [
        event("started", 0.0, positions={TP: 0}),
        event("planned", 0.5, ranges={TP: [0, 1]}),
        event("draining", 0.8, partitions=[TP]),
        event("finished", 1.2, ranges={TP: [0, 1]}),
        event("committed", 1.3, offsets={TP: 1}),
        event("released", 1.3, partitions=[TP]),
    ],
    [delivery("old", 1.0, 0)],
)
NEW = Member(
    "new",
    [
        event("planned", 1.0, ranges={"t-1": [0, 1]}),
        event("assigned", 1.4, partitions=[TP]),
        event("started", 1.5, positions={TP: 1}),
        event("finished", 2.1, ranges={"t-1": [0, 1]}),
        event("planned", 2.2, ranges={TP: [1, 2]}),
    ],
    [delivery("new", 3.0, 1)],
)


def test_a_hand_over_lasts_from_row_to_row_without_the_batch_that_the_new_owner_was_running() -> None:
    (move,) = hand_overs([OLD, NEW])
    assert (move.old, move.new, move.clean) == ("old", "new", True)
    assert move.raw_s == pytest.approx(2.0)
    assert move.net_s == pytest.approx(2.0 - (2.1 - 1.5))
    idle = Member("new", [e for e in NEW.events if e["event"] != "finished"][1:], NEW.deliveries)
    (move,) = hand_overs([OLD, idle])
    assert move.net_s == move.raw_s


def test_the_steps_of_a_hand_over_are_told() -> None:
    (move,) = hand_overs([OLD, NEW])
    assert {step: round(at, 3) for step, at in move.reached.items()} == {
        "revoked": -0.2,
        "finished": 0.2,
        "committed": 0.3,
        "released": 0.3,
        "assigned": 0.4,
        "started": 0.5,
        "planned": 1.2,
        "rows": 2.0,
    }


def test_a_partition_that_was_not_released_did_not_leave_cleanly() -> None:
    killed = Member("old", OLD.events[:3], OLD.deliveries)
    (move,) = hand_overs([killed, NEW])
    assert not move.clean


def test_a_member_that_gets_its_own_partition_back_is_no_hand_over() -> None:
    again = Member("old", [*OLD.events, event("started", 1.5, positions={TP: 1})], [*OLD.deliveries])
    assert hand_overs([Member("old", again.events, [*OLD.deliveries, delivery("old", 3.0, 1)])]) == []


def test_a_pause_is_the_time_between_two_writes_of_one_owner() -> None:
    stays = Member(
        "a", [event("started", 0.0, positions={TP: 0})], [delivery("a", t, n) for n, t in enumerate((1, 2, 5))]
    )
    assert [p.seconds for p in pauses([stays])] == [1, 3]
    assert [p.seconds for p in outside(pauses([stays]), [Window(3.0, 4.0)])] == [1]
    assert [p.seconds for p in outside(pauses([stays]), [Window(3.0, 4.0, "somebody else")])] == [1, 3]


def test_a_partition_that_was_away_in_between_did_not_pause() -> None:
    away = Member(
        "a",
        [event("started", 0.0, positions={TP: 0}), event("started", 4.0, positions={TP: 1})],
        [delivery("a", 1.0, 0), delivery("a", 5.0, 1)],
    )
    assert pauses([away]) == []


def test_percentiles_are_values_that_occur() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.99) == 4.0
    assert percentile([], 0.5) is None
