"""Stored results contain every repetition, and tables and pages come from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import goals, pages
from benchmarks.__main__ import BENCHMARKS
from benchmarks.results import Cell, Result
from benchmarks.views import VIEWS, report, tables


def _result(*, quick: bool = False, benchmark: str = "throughput") -> Result:
    result = Result(
        benchmark=benchmark,
        quick=quick,
        taken="2026-11-21 02:00 UTC",
        machine={"cpu": "Some CPU", "cores": 2},
        settings={"repetitions": 2},
    )
    cell = Cell(name="base")
    for kafka, ours in ((1_000_000.0, 2_000_000.0), (1_100_000.0, 2_200_000.0)):
        cell.add("kafka", {"records_per_s": kafka})
        cell.add("kafka-group", {"records_per_s": ours})
    result.cells.append(cell)
    return result


def test_a_stored_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = _result()
    assert Result.load(result.save(tmp_path)) == result


def test_a_result_of_another_format_is_refused(tmp_path: Path) -> None:
    file = _result().save(tmp_path)
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 0}))
    with pytest.raises(ValueError, match="run the benchmark again"):
        Result.load(file)


def test_tables_show_medians_and_ratios_of_what_was_measured() -> None:
    values, ratios = tables(_result())
    assert values.header == ["", "kafka", "kafka-group"]
    assert values.rows == [["base", "1.05M (1.00M-1.10M)", "2.10M (2.00M-2.20M)"]]
    assert ratios.header == ["", "kafka-group / kafka"]
    assert ratios.rows == [["base", "2.00 (2.00-2.00)"]]


def test_every_benchmark_has_tables() -> None:
    assert BENCHMARKS.keys() == VIEWS.keys()


def test_a_report_names_the_machine_fits_a_terminal_and_says_if_it_means_nothing() -> None:
    text = report(_result())
    assert "Some CPU, cores 2" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "MEAN NOTHING" not in text
    assert "MEAN NOTHING" in report(_result(quick=True))


_PAGE = "Before.\n<!-- figures: throughput -->\nold\n<!-- end of figures -->\nAfter.\n"


def test_a_page_gets_the_figures_between_its_marks() -> None:
    page = pages.rendered(_PAGE, {"throughput": _result()})
    assert page.startswith("Before.\n<!-- figures: throughput -->\n\nMeasured 2026-11-21")
    assert "| base | 2.00 (2.00-2.00) |" in page
    assert page.endswith("<!-- end of figures -->\nAfter.\n")
    assert "old" not in page
    assert pages.rendered(page, {"throughput": _result()}) == page


def test_a_page_says_what_is_not_measured_and_asks_for_benchmarks_that_exist() -> None:
    assert pages.NOT_MEASURED in pages.rendered(_PAGE, {})
    with pytest.raises(ValueError, match="no such benchmark"):
        pages.rendered(_PAGE.replace("throughput", "throughputs"), {})


def test_each_machine_of_benchmarks_is_described_once() -> None:
    assert pages.machines({"throughput": _result(), "start": _result()}) == "Some CPU, cores 2."
    other = _result()
    other.machine["cores"] = 64
    text = pages.machines({"throughput": _result(), "start": other})
    assert text == "- throughput: Some CPU, cores 2.\n- start: Some CPU, cores 64."


def test_figures_of_a_quick_run_are_never_kept(tmp_path: Path) -> None:
    file = _result(quick=True).save(tmp_path)
    with pytest.raises(ValueError, match="quick"):
        pages.publish([file])


def test_the_page_shows_the_results_that_are_kept() -> None:
    written = pages.PAGE.read_text(encoding="utf-8")
    assert written == pages.rendered(written, pages.kept()), 'run: make bench ARGS="render"'


def test_the_page_has_a_section_for_every_result_and_for_nothing_else() -> None:
    written = pages.PAGE.read_text(encoding="utf-8")
    assert [name for name in pages.kept() if f"<!-- figures: {name} -->" not in written] == []
    assert pages.NOT_MEASURED not in written


def test_the_table_of_goals_says_which_are_reached() -> None:
    result = _result()
    result.cells[0].name = "1 partition"
    result.cells[0].add("ceiling", {"records_per_s": 3_000_000.0})
    (missed,) = goals.table({"throughput": result}).rows
    assert missed[1:] == ["at least 2.50", "2.40", "2.00", "3.00", "missed"]
    result.cells[0].arms["kafka-group"]["records_per_s"] = [2_600_000.0, 2_900_000.0]
    assert goals.table({"throughput": result}).rows[0][-1] == "reached"
