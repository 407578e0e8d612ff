"""The figures in the text of pages match the stored results."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from benchmarks.pages import kept

ROOT = Path(__file__).parents[2]
RESULTS = kept()


def measured(benchmark: str, cell: str, arm: str, metric: str) -> float:
    """Return the median that the tables show."""
    (found,) = (one for one in RESULTS[benchmark].cells if one.name == cell)
    return median(value for value in found.samples(arm, metric) if value is not None)


def idle_broker(arm: str) -> float:
    return measured("group_size", "100 members", arm, "idle_broker_percent")


def base(arm: str, metric: str) -> float:
    return measured("throughput", "base: 100 B, 8 part.", arm, metric)


def workers_mb() -> list[float]:
    return [measured("throughput", cell.name, "kafka-group", "worker_rss_mb") for cell in RESULTS["throughput"].cells]


# A page, a pattern in which each group is a number, and the functions that return these numbers before rounding.
QUOTES: list[tuple[str, str, list[Callable[[], float]]]] = [
    (
        "docs/tuning.md",
        r"used (\d+) % of a core in a \[measurement\]\S+ and (\d+) % with a heartbeat every 500 ms",
        [lambda: idle_broker("classic, 250 ms"), lambda: idle_broker("classic, 500 ms")],
    ),
    (
        "docs/tuning.md",
        r"largest worker peaked at (\d+) to (\d+) MB",
        [lambda: min(workers_mb()), lambda: max(workers_mb())],
    ),
    (
        "benchmarks/README.md",
        r"hundred idle members took (\d+) % of a core from the broker.*?they took (\d+) %.*?client (\d+) %",
        [partial(idle_broker, f"classic, {interval}") for interval in ("250 ms", "500 ms", "3 s")],
    ),
    (
        "benchmarks/README.md",
        r"about (\d+) % of what it takes with the built-in source",
        [lambda: 100 * base("kafka-group", "jvm_cpu_s") / base("kafka", "jvm_cpu_s")],
    ),
    (
        "benchmarks/README.md",
        r"records of 100 B takes some 0\.(\d\d) s more than handing prepared batches to Spark",
        [lambda: 100 * (base("kafka-group", "python_cpu_s") - base("ceiling", "python_cpu_s"))],
    ),
]


@pytest.mark.parametrize(("page", "text", "figures"), QUOTES, ids=[f"{page}: {text[:30]}" for page, text, _ in QUOTES])
def test_a_quoted_figure_is_the_measured_one(page: str, text: str, figures: list[Callable[[], float]]) -> None:
    words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    found = re.search(text, words)
    assert found, f"not in {page}: {text}"
    assert list(map(int, found.groups())) == [round(figure()) for figure in figures]
