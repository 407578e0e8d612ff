"""Tables within the width of a terminal."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.tools.analysis.documents import moment
from pyspark_kafka_group.tools.tables import Column, clean, cut, duration, table

COLUMNS = (Column("TOPIC", shrinks=True), Column("LAG", number=True), Column("CLIENT-ID", shrinks=True))


def test_numbers_stand_to_the_right_and_nothing_is_a_dash() -> None:
    assert table(COLUMNS, [["orders", 5, None], ["o", 12345, "app"]]) == [
        "TOPIC     LAG  CLIENT-ID",
        "orders      5  -",
        "o       12345  app",
    ]


def test_long_names_lose_their_middle_until_a_line_fits() -> None:
    rows = [["orders-" + "x" * 100 + "-eu", 10**18, "spark-application-" + "y" * 200 + "-7f3a"]]
    lines = table(COLUMNS, rows, width=80)
    assert max(map(len, lines)) == 80
    assert lines[1].startswith("orders-xxx")
    assert lines[1].endswith("-7f3a")
    assert str(10**18) in lines[1]
    assert rows[0][0] in table(COLUMNS, rows, width=None)[1]  # type: ignore[operator]


def test_a_table_that_cannot_fit_is_wide_all_the_same() -> None:
    (_, line) = table([Column("N", number=True)] * 10, [[10**18] * 10], width=20)
    assert str(10**18) in line


def test_cutting() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefgh", 5) == "ab…gh"
    assert len(cut("abcdefgh", 4)) == 4


def test_what_a_client_calls_itself_does_nothing_to_the_terminal() -> None:
    assert clean("a\x1b[2Jb\n") == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}"
    assert clean("größe 😀") == "größe 😀"


@pytest.mark.parametrize(
    ("time_ms", "short", "shown"),
    [
        (0, True, "1970-01-01 00:00:00"),
        (1_795_377_600_123, False, "2026-11-22T20:00:00.123Z"),
        (2**63 - 1, True, str(2**63 - 1)),
        (-(2**63), False, str(-(2**63))),
    ],
)
def test_times_are_utc_and_what_is_no_time_stays_a_number(time_ms: int, short: bool, shown: str) -> None:
    assert moment(time_ms, short=short) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(-5, "0 s"), (1_999, "1 s"), (61_000, "1 min 1 s"), (3_660_000, "1 h 1 min"), (90_000_000, "1 d 1 h")],
)
def test_durations_have_two_units_at_most(milliseconds: int, shown: str) -> None:
    assert duration(milliseconds) == shown
