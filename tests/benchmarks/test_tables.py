"""Tables for terminals and docs."""

from __future__ import annotations

import pytest

from benchmarks.samples import spread
from benchmarks.tables import WIDTH, Table, figure, figure_with_spread


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.01234, "0.012"),
        (0.00001, "1.0e-05"),
        (0.5, "0.500"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (999.4, "999"),
        (999.9, "1.00k"),
        (1234.0, "1.23k"),
        (1_500_000.0, "1.50M"),
        (999_900.0, "1.00M"),
        (2.5e9, "2.50G"),
        (-1234.0, "-1.23k"),
    ],
)
def test_a_figure_has_three_digits(value: float | None, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("repetitions", "text"), [([1000.0, 1100.0, 1300.0], "1.10k (1.00k-1.30k)"), ([1000.0], "1.00k"), ([], "-")]
)
def test_a_figure_shows_the_extremes_of_its_repetitions(repetitions: list[float], text: str) -> None:
    assert figure_with_spread(spread(repetitions)) == text


def test_columns_of_figures_are_aligned_to_the_right() -> None:
    table = Table(title="Records/s", header=["", "kafka"], rows=[["base", "1.00M"], ["64 partitions", "900k"]])
    assert table.text().splitlines() == [
        "Records/s",
        "               kafka",
        "-------------  -----",
        "base           1.00M",
        "64 partitions   900k",
    ]


def test_no_line_for_a_terminal_is_wider_than_it() -> None:
    long = "a name of a row that is very long " * 3
    table = Table(title=long * 2, header=["", *["kafka-group"] * 3], rows=[[long, *["1.10k (1.00k-1.30k)"] * 3]])
    assert max(map(len, table.text().splitlines())) <= WIDTH


def test_figures_survive_where_a_name_is_cut() -> None:
    table = Table(title="", header=["", "a", "b"], rows=[["x" * 90, "1.10k (1.00k-1.30k)", "2.20k"]])
    assert table.text().splitlines()[-1].endswith("~  1.10k (1.00k-1.30k)  2.20k")


def test_markdown_aligns_figures_to_the_right() -> None:
    table = Table(title="  Records/s", header=["", "kafka"], rows=[["base", "1.00M"]])
    assert table.markdown().splitlines() == [
        "**Records/s**",
        "",
        "|  | kafka |",
        "| --- | ---: |",
        "| base | 1.00M |",
    ]
