"""The file keeps one result per row of versions, and the page shows failed and missing runs."""

from __future__ import annotations

from pathlib import Path

from integration.compatibility.rows import ROWS, Result, load, store, table

VERSIONS = {
    "kafka": "3.9.1",
    "pyspark": "4.3.0",
    "confluent-kafka": "2.16.1",
    "librdkafka": "2.16.0",
    "python": "3.11.7",
}


def result(row: str, *, passed: tuple[str, ...] = ("test_a",), failed: tuple[str, ...] = ()) -> Result:
    return Result(row=row, date="2026-01-02", versions=VERSIONS, passed=passed, failed=failed)


def test_a_row_that_runs_again_replaces_its_result_and_keeps_the_others(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    first, second = ROWS[0].name, ROWS[1].name
    store([result(second), result(first), result("no-such-row")], file)
    store([result(first, failed=("test_b",))], file)
    found = load(file)
    assert [*found] == [first, second]
    assert (found[first].good, found[second].good) == (False, True)


def test_nothing_that_passed_is_no_success() -> None:
    assert not result("x", passed=()).good


def test_the_page_has_a_line_for_each_row() -> None:
    first, second = ROWS[0].name, ROWS[1].name
    lines = table({first: result(first, failed=("test_b",)), second: result(second)}).splitlines()[2:]
    assert len(lines) == len(ROWS)
    assert "| 3.9.1 | 4.3.0 | 2.16.1 | 2.16.0 | 3.11.7 | 2026-01-02 |" in lines[0]
    assert "**1 failed**: test_b" in lines[0]
    assert lines[1].endswith("| 1 passed |")
    assert all(line.endswith("| **not run** |") for line in lines[2:])


def test_rows_with_the_same_pins_share_an_environment() -> None:
    assert len({row.environment for row in ROWS}) < len(ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all((Path(__file__).parents[2] / test.partition("::")[0]).exists() for row in ROWS for test in row.tests)
