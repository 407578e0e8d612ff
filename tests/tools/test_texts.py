"""Tables that fit a terminal, and the format of times."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.tools.analysis.documents import moment
from pyspark_kafka_group.tools.texts import Style, TextColumn, clean, cut, duration, table, to_seconds

COLUMNS = (
    TextColumn("TOPIC", "topic", Style.TEXT),
    TextColumn("LAG", "lag"),
    TextColumn("CLIENT-ID", "client", Style.TEXT),
)


def row(topic: str, lag: int, client: str | None) -> dict[str, object]:
    return {"topic": topic, "lag": lag, "client": client}


def test_numbers_stand_to_the_right_and_nothing_is_a_dash() -> None:
    assert table(COLUMNS, [row("orders", 5, None), row("o", 12345, "app")]) == [
        "TOPIC     LAG  CLIENT-ID",
        "orders      5  -",
        "o       12345  app",
    ]


def test_long_names_lose_their_middle_until_a_line_fits() -> None:
    rows = [row("orders-" + "x" * 100 + "-eu", 10**18, "spark-application-" + "y" * 200 + "-7f3a")]
    lines = table(COLUMNS, rows, width=80)
    assert max(map(len, lines)) == 80
    assert lines[1].startswith("orders-xxx")
    assert lines[1].endswith("-7f3a")
    assert str(10**18) in lines[1]


def test_without_a_terminal_or_where_it_cannot_fit_nothing_is_cut() -> None:
    name = "orders-" + "x" * 200
    assert name in table(COLUMNS, [row(name, 5, name)])[1]
    (_, line) = table([TextColumn("N", "lag")] * 10, [{"lag": 10**18}], width=20)
    assert str(10**18) in line


def test_lines_that_come_one_by_one_have_the_same_widths() -> None:
    widths = (9, 5, 2)
    (head,) = table(COLUMNS, [], least=widths)
    assert [table(COLUMNS, [row("o", n, "a")], least=widths)[1].index("a") for n in (1, 99)] == [
        head.index("CLIENT")
    ] * 2


def test_cutting() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefgh", 5) == "ab…gh"
    assert len(cut("abcdefgh", 4)) == 4


def test_what_a_client_calls_itself_does_nothing_to_the_terminal() -> None:
    assert clean("a\x1b[2Jb\n") == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}"
    assert clean("größe 😀") == "größe 😀"


@pytest.mark.parametrize(
    ("time_ms", "written", "short"),
    [
        (0, "1970-01-01T00:00:00.000Z", "1970-01-01 00:00:00"),
        (1_795_377_600_123, "2026-11-22T20:00:00.123Z", "2026-11-22 20:00:00"),
        (2**63 - 1, str(2**63 - 1), str(2**63 - 1)),
        (-(2**63), str(-(2**63)), str(-(2**63))),
    ],
)
def test_times_are_utc_and_what_is_no_time_stays_a_number(time_ms: int, written: str, short: str) -> None:
    assert moment(time_ms) == written
    assert to_seconds(written) == short


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-0.5, "0 s"), (1.999, "1 s"), (61, "1 min 1 s"), (3_660, "1 h 1 min"), (90_000, "1 d 1 h")],
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
