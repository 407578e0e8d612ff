"""The demo's audit finds each kind of fault in the sink's rows, and measures hand-overs and pauses from them."""

from __future__ import annotations

import pytest
from audit import Row, audit, ranges


def row(offset: int, at: float, application: str = "etl-1", *, partition: int = 0, **changes: object) -> Row:
    """Return a row that was appended at second 0, and is the only one with its key."""
    default = Row(
        partition=partition,
        offset=offset,
        key=f"{partition}:{offset}",
        sequence=0,
        appended_at=0.0,
        delivered_at=at,
        application=application,
    )
    return default._replace(**changes)  # type: ignore[arg-type]  # the tests pass what Row has


def test_exactly_what_was_produced_passes() -> None:
    found = audit({0: range(3)}, [row(0, 1), row(1, 1), row(2, 2)])
    assert found.passed
    assert (found.produced, found.delivered, found.lost, found.duplicated, found.keys) == (3, 3, 0, 0, 3)


def test_missing_records_are_lost_and_named_as_ranges() -> None:
    found = audit({0: range(6), 1: range(2)}, [row(0, 1), row(3, 1), row(5, 1)])
    assert not found.passed
    assert found.lost == 5
    assert found.lost_ranges == {0: [range(1, 3), range(4, 5)], 1: [range(2)]}


def test_second_deliveries_are_duplicates_whoever_made_them() -> None:
    found = audit({0: range(2)}, [row(0, 1), row(1, 1), row(1, 2), row(1, 3, "etl-2")])
    assert not found.passed
    assert found.duplicated == 2
    assert found.duplicated_ranges == {0: [range(1, 2)]}
    assert found.lost == 0


def test_a_row_that_was_never_produced_fails() -> None:
    found = audit({0: range(1)}, [row(0, 1), row(7, 1), row(0, 1, partition=3)])
    assert not found.passed
    assert found.unknown == 2


def test_a_key_whose_later_event_becomes_visible_first_fails() -> None:
    rows = [row(0, 5, key="k", sequence=0), row(1, 4, key="k", sequence=1), row(2, 6, key="k", sequence=2)]
    found = audit({0: range(3)}, rows)
    assert not found.passed
    assert found.out_of_order == 1


def test_a_duplicate_does_not_count_as_disorder_as_well() -> None:
    rows = [row(0, 1, key="k", sequence=0), row(1, 2, key="k", sequence=1), row(0, 3, key="k", sequence=0)]
    assert audit({0: range(2)}, rows).out_of_order == 0


def test_hand_over_latency_runs_from_the_last_row_of_the_old_owner_to_the_first_of_the_new() -> None:
    rows = [row(0, 1), row(1, 2), row(2, 4.5, "etl-2"), row(3, 5, "etl-2"), row(4, 9, "etl-1")]
    found = audit({0: range(5)}, rows)
    assert [(h.offset, h.old, h.new, h.at, h.latency_s) for h in found.hand_overs] == [
        (2, "etl-1", "etl-2", 4.5, 2.5),
        (4, "etl-2", "etl-1", 9, 4),
    ]


def test_a_pause_counts_only_while_a_record_waits_and_the_owner_stays() -> None:
    rows = [
        row(0, 1),
        row(1, 4, appended_at=0.5),  # waited from 1 to 4
        row(2, 20, appended_at=19),  # no record waited until 19
        row(3, 90, "etl-2"),  # a hand-over, no pause
    ]
    pause = audit({0: range(4)}, rows).longest_pause
    assert pause is not None
    assert (pause.application, pause.at, pause.seconds) == ("etl-1", 1, 3)


def test_rows_of_one_delivery_are_no_pause() -> None:
    assert audit({0: range(2)}, [row(0, 3), row(1, 3)]).longest_pause is None


def test_delay_runs_from_the_append_to_the_visible_row() -> None:
    found = audit({0: range(3)}, [row(0, 1.0), row(1, 2.0), row(2, 9.0)])
    assert (found.delay_median_s, found.delay_p99_s) == (2.0, 9.0)


def test_an_empty_sink_loses_everything() -> None:
    found = audit({0: range(4)}, [])
    assert (found.lost, found.delivered, found.longest_pause, found.hand_overs) == (4, 0, None, [])


@pytest.mark.parametrize(
    ("offsets", "folded"),
    [([], []), ([4], [range(4, 5)]), ([0, 1, 2, 5, 7, 8], [range(3), range(5, 6), range(7, 9)])],
)
def test_offsets_fold_into_ranges(offsets: list[int], folded: list[range]) -> None:
    assert list(ranges(offsets)) == folded
