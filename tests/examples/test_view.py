"""The display of the demo is complete, and fits wide and narrow terminals and plain lines."""

from __future__ import annotations

import io

import pytest
from audit import Row, audit
from rich.console import Console
from view import Frame, Line, LiveScreen, PlainScreen, clock, plain, render, report


def frame(**changes: object) -> Frame:
    default: dict[str, object] = {
        "seconds": 65,
        "phase": "three applications",
        "applications": [
            Line(name="etl-1", state="running", rows_per_s=1_234, partitions={p: 100 + p for p in range(9)}),
            Line(name="etl-2", state="leaving", rows_per_s=0, partitions={9: 1_234_567}),
            Line(name="etl-3", state="starting", rows_per_s=0, partitions={}),
        ],
        "unowned": [10, 11],
        "produced": 123_456,
        "produced_per_s": 2_000,
        "committed": 120_000,
        "committed_per_s": 1_990,
        "lag": 3_456,
        "problem": None,
    }
    return Frame(**{**default, **changes})  # type: ignore[arg-type]  # the tests pass what Frame has


def drawn(width: int, shown: Frame) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(render(shown, width))
    return capture.get()


@pytest.mark.parametrize("width", [120, 80, 64, 63, 50, 40])
def test_the_panel_shows_everything_within_the_width(width: int) -> None:
    text = drawn(width, frame())
    assert max(map(len, text.splitlines())) <= width
    shown = "01:05 etl-1 etl-2 etl-3 running leaving starting 0:100 8:108 9:1,234,567"
    shown += " 123,456 120,000 3,456 1,234 owner: 10 11"
    assert {*shown.split()} <= {*text.split()}, text


def test_the_panel_fits_a_terminal_of_24_lines() -> None:
    assert len(drawn(80, frame()).splitlines()) <= 12


def test_a_problem_with_the_broker_is_shown() -> None:
    assert "no answer from Kafka" in drawn(80, frame(problem="no answer from Kafka: timed out"))


def test_partitions_without_known_lag_are_shown_alone() -> None:
    lines = [Line(name="etl-1", state="running", rows_per_s=0, partitions={3: None})]
    assert "3" in drawn(80, frame(applications=lines, unowned=[])).split()


def test_the_plain_line_names_owners_rates_and_lag() -> None:
    text = plain(frame(problem="trouble"))
    assert text.startswith(
        "01:05  three applications: etl-1 running [0 1 2 3 4 5 6 7 8]  etl-2 leaving [9]  etl-3 starting []"
    )
    assert text.endswith("in 2,000/s  out 1,990/s  lag 3,456  (trouble)")


def test_plain_mode_prints_a_line_every_five_seconds_and_at_each_new_phase(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    for seconds in (0, 1, 4.9, 5, 6):
        screen.show(frame(seconds=seconds))
    screen.show(frame(seconds=7, phase="next"))
    screen.note(7.5, "etl-3 starts")
    printed = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in printed] == ["00:00", "00:05", "00:07", "00:07"]
    assert printed[-1] == "00:07  * etl-3 starts"


def test_notes_stay_on_the_terminal_and_the_panel_goes() -> None:
    out = io.StringIO()
    screen = LiveScreen(Console(file=out, width=80, force_terminal=True, legacy_windows=False))
    screen.start()
    screen.show(frame())
    screen.note(3, "etl-1 -> etl-3: partitions 0 1 in 0.3 s")
    screen.close()
    assert "etl-1 -> etl-3: partitions 0 1 in 0.3 s" in out.getvalue()


def test_the_report_names_what_was_lost_doubled_and_moved_where() -> None:
    def row(offset: int, at: float, application: str) -> Row:
        return Row(3, offset, f"k{offset}", 0, at - 1, at, application)

    rows = [row(0, 100, "etl-1"), row(1, 101, "etl-1"), row(1, 103, "etl-2"), row(2, 104, "etl-2")]
    text = report(audit({3: range(5)}, rows), started=90, width=120)
    assert "produced            5" in text
    assert "lost                2   3[3, 5)" in text
    assert "duplicated          1   3[1, 2)" in text
    assert "00:13  etl-1 -> etl-2: partitions 3 (2.0s at most)" in text


@pytest.mark.parametrize("width", [80, 40])
def test_the_report_fits_the_width(width: int) -> None:
    rows = [Row(3, n, "k", n, 1.0, 2.0 + n, f"etl-{n % 2}") for n in range(5)]
    text = report(audit({3: range(50)}, rows), started=0, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "hand-overs" in text


def test_the_clock_counts_minutes() -> None:
    assert (clock(0), clock(59.9), clock(125)) == ("00:00", "00:59", "02:05")
