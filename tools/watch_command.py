"""``watch``: a group, live."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection
from pyspark_kafka_group.tools.analysis.documents import sample_document
from pyspark_kafka_group.tools.analysis.group_samples import Sample, following
from pyspark_kafka_group.tools.analysis.group_view import view_group
from pyspark_kafka_group.tools.analysis.live_group import dated, patiently
from pyspark_kafka_group.tools.command_base import Interval, connected, looks, missing
from pyspark_kafka_group.tools.reports import sample_report
from pyspark_kafka_group.tools.tables import WIDTH

Show = Callable[[list[str]], None]


@click.command()
@connected
@click.option(
    "--interval",
    type=Interval(),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many looks.")
def watch(
    *,
    inspection: GroupInspection,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    interval: float,
    count: int | None,
) -> None:
    """Shows GROUP live: who has what, lag, throughput and rebalances.

    IN/S and OUT/S are offsets per second since the look before: how fast the log grows, and how fast
    the group commits.  Those that are furthest behind come first.  A rebalance counts if it shows in
    two looks; there may have been more.

    Ctrl-C ends it.  With --json there is one object a line for each look.

    \b
    Examples:
      kafka-group watch -b localhost:9092 orders-etl
      kafka-group watch --profile prod --json --interval 10 --count 6 orders-etl
    """
    del properties
    sample: Sample | None = None
    try:
        with _plain() if as_json or not sys.stdout.isatty() else _terminal() as show:
            for number in looks(interval, count):
                problem = None
                try:
                    view = view_group(inspection, group) if number else patiently(lambda: view_group(inspection, group))
                    if number == 0 and not view.exists:
                        missing(group)
                    sample = following(sample, dated(view, inspection), time_ms=int(time.time() * 1000))
                except TryAgainError as failure:
                    if sample is None:
                        raise
                    problem = str(failure)
                if as_json:
                    show([json.dumps(sample_document(sample, problem))])
                else:
                    show(sample_report(sample, problem, interval=interval))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None


@contextmanager
def _plain() -> Iterator[Show]:
    """For files and pipes: one look after the other."""
    begun = False

    def show(lines: list[str]) -> None:
        nonlocal begun
        if begun and len(lines) > 1:
            click.echo()
        begun = True
        for line in lines:
            click.echo(line)
        sys.stdout.flush()

    yield show


@contextmanager
def _terminal() -> Iterator[Show]:
    """On a screen of its own, which is gone afterwards with all that was changed of the terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(width=min(WIDTH, shutil.get_terminal_size().columns), highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def show(lines: list[str]) -> None:
            height = console.size.height
            if len(lines) > height:
                lines = [*lines[: height - 1], f"... {len(lines) - height + 1} more"]
            live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)

        yield show
