"""``describe``, ``coordinator``, ``doctor`` and ``watch``: a group as it is now."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.errors import AuthenticationError, OptionError
from pyspark_kafka_group.tools.analysis.documents import (
    Document,
    coordinator_document,
    group_document,
    listed_group_document,
    sample_document,
)
from pyspark_kafka_group.tools.analysis.group_checks import named
from pyspark_kafka_group.tools.analysis.group_samples import GroupSample, following
from pyspark_kafka_group.tools.analysis.group_view import (
    GroupView,
    answered,
    view_group,
    with_statuses,
    with_time_lags,
)
from pyspark_kafka_group.tools.analysis.lag_judgement import Status
from pyspark_kafka_group.tools.analysis.offsets_topic import OffsetsTopicHeldBackError, OffsetsTopicUnreadableError
from pyspark_kafka_group.tools.command_base import (
    FOUND,
    Command,
    connected,
    echo,
    fail,
    interval,
    polls,
    say,
    show,
    wide_option,
)
from pyspark_kafka_group.tools.doctor.examination import diagnose, diagnosis_document, examine
from pyspark_kafka_group.tools.doctor.spark_facts import judge_spark, spark_document, spark_facts
from pyspark_kafka_group.tools.texts import (
    coordinator_text,
    diagnosis_text,
    group_text,
    groups_text,
    sample_text,
    spark_text,
    terminal_width,
)


@click.command()
@connected
@click.option("--no-status", is_flag=True, help="Do not judge the lag. Judging it reads the offsets topic.")
@wide_option
def describe(
    *,
    inspection: Cluster,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    no_status: bool,
    wide: bool,
) -> None:
    """Show the members, committed offsets and lag of GROUP.

    BEHIND is the age of the record at the committed offset. CATCH-UP is the time until the lag
    is 0, at the rate of the last commits. A group that keeps up has none.

    LAG counts what the group can still read. Records that the brokers deleted before the group read
    them have a line of their own.

    \b
    STATUS judges the lag by the last ten commits, as LinkedIn's Burrow does:
      OK        no lag, a lag that falls at times, or a group that keeps up: its
                last commit has everything that the log had two commits ago
      WARN      the offset moves, but the lag never falls
      STALL     the group commits, but the offset does not move
      STOP      the group no longer commits
      REWIND    the offset went back and has not come back yet
      HELDBACK  no leader answers: nothing can be read, and the lag is unknown
      BEYOND    the log ends before the committed offset

    Ends with 1 if the group does not exist, or a partition is at STALL, STOP, REWIND,
    HELDBACK or BEYOND.

    \b
    Examples:
      kafka-group describe -b localhost:9092 orders-etl
      kafka-group describe --profile prod --json orders-etl | jq .lag
    """
    view = with_time_lags(answered(lambda: _existing(inspection, group)), inspection)
    if not no_status:
        try:
            view = with_statuses(view, inspection, properties)
        except (OffsetsTopicUnreadableError, OffsetsTopicHeldBackError, OptionError, TryAgainError) as problem:
            say(f"the lag is not judged. {problem}")
    document = group_document(view)
    show([document], as_json, lambda: group_text(document, wide=wide, width=terminal_width()))
    if view.status is Status.ERR:
        raise click.exceptions.Exit(FOUND)


def _existing(inspection: Cluster, group: str) -> GroupView:
    view = view_group(inspection, group)
    view.check_exists()
    return view


_HIDDEN = ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")


def _no_group(command: Command) -> Command:
    return command


@click.command()
@partial(connected, group=_no_group)
def groups(inspection: Cluster, properties: dict[str, str], as_json: bool) -> None:
    """List the groups of consumers, with their members and lag.

    A lag is a dash if no leader answers for one of the partitions, a log ends before the
    committed offset, or nothing is committed.

    Groups are not shown if this user may not describe them or one of their topics. A line on
    standard error has their number. If the cluster does not answer for a group, a line names it,
    and the command ends with 2 after the list.

    \b
    Examples:
      kafka-group groups -b localhost:9092
      kafka-group groups --profile prod --json | jq 'select(.lag != 0)'
    """
    del properties
    documents: list[Document] = []
    refused, silent = 0, dict[str, TryAgainError]()
    for name in answered(inspection.group_ids):
        ask = partial(view_group, inspection, name)
        try:  # only once with patience: many groups may have the coordinator that does not answer
            documents.append(listed_group_document(ask() if silent else answered(ask)))
        except TryAgainError as problem:
            silent[name] = problem
        except AuthenticationError as problem:
            if getattr(problem, "code", "") not in _HIDDEN:
                raise
            refused += 1
    show(documents, as_json, lambda: groups_text(documents, width=terminal_width()))
    if refused:
        say(f"groups not shown, because this user may not describe them or one of their topics: {refused}.")
    if silent:
        first = next(iter(silent.values()))
        fail(f"groups not shown, because the cluster does not answer: {named([*silent])} ({first}).")


@click.command()
@connected
def coordinator(inspection: Cluster, properties: dict[str, str], group: str, as_json: bool) -> None:
    """Show which broker coordinates GROUP, and why.

    The group need not exist.

    \b
    Example:
      kafka-group coordinator -b localhost:9092 orders-etl
    """
    del properties
    document = answered(lambda: coordinator_document(inspection, group))
    show([document], as_json, lambda: coordinator_text(document))


def _spark_first(options: dict[str, Any]) -> dict[str, Any]:
    """Answer ``--spark``, which needs no cluster."""
    if options.pop("spark"):
        facts = spark_facts()
        document = spark_document(facts, judge_spark(facts))
        show([document], options["as_json"], lambda: spark_text(document))
        raise click.exceptions.Exit(0 if document["healthy"] else FOUND)
    if options["group"] is None:
        raise click.UsageError("Missing argument 'GROUP'. Without one, use --spark.")
    return options


@click.command()
@partial(connected, group=click.argument("group", required=False), prepare=_spark_first)
@click.option(
    "--topics",
    multiple=True,
    metavar="TOPIC",
    help="Also examine this topic, which a query will read. Repeat it for more topics.",
)
@click.option("--spark", is_flag=True, help="Examine this Python and its Spark, and no cluster.")
def doctor(
    *, inspection: Cluster, properties: dict[str, str], group: str, as_json: bool, topics: tuple[str, ...]
) -> None:
    """Find what is wrong with GROUP.

    It looks for a lag that is a problem, needless rebalances, and records and offsets that are
    lost or will be soon. It also looks for transactions that hold readers back, missing rights,
    and features that the cluster lacks. It changes nothing, and has the rights of the user of
    this connection.

    With --topics the group need not exist yet: the doctor checks what a query needs before its
    first start. With --spark it needs no group: it prints which Python, Spark and libraries it
    finds, and what a query would lack there.

    Each finding has a code, a subject, the evidence, and a remedy. A NOTE is no fault: it names a
    feature that the cluster lacks, and the option that suits it. Ends with 1 if the group does not
    exist or there is more than notes, and with 2 if the command has failed.

    \b
    Examples:
      kafka-group doctor -b localhost:9092 orders-etl
      kafka-group doctor --profile prod --topics orders new-group
      kafka-group doctor --profile prod --json orders-etl | jq .findings[].code
      kafka-group doctor --spark
    """
    facts = answered(lambda: examine(inspection, properties, group, topics))
    document = diagnosis_document(facts, diagnose(facts))
    show([document], as_json, lambda: diagnosis_text(document))
    if not document["healthy"]:
        raise click.exceptions.Exit(FOUND)


Shown = Callable[[list[str]], None]


@click.command()
@connected
@click.option(
    "--interval",
    type=interval,
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Time between two polls, such as 10s.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after N polls.")
def watch(
    *,
    inspection: Cluster,
    properties: dict[str, str],
    group: str,
    as_json: bool,
    interval: float,
    count: int | None,
) -> None:
    """Show GROUP live: owners, lag, rates and rebalances.

    IN/S and OUT/S are offsets per second over the last 30 s, or the last three commits: how fast the
    log grows, and how fast the group commits. The partitions with the largest lag come first. A rebalance between two
    polls may not be counted.

    Press Ctrl-C to stop. With --json there is one object a line for each poll.

    \b
    Examples:
      kafka-group watch -b localhost:9092 orders-etl
      kafka-group watch --profile prod --json --interval 10 --count 6 orders-etl
    """
    del properties
    sample: GroupSample | None = None
    try:
        with _plain() if as_json or not sys.stdout.isatty() else _screen() as shown:
            for _ in polls(interval, count):
                problem = None
                try:
                    if sample is None:
                        view = answered(lambda: _existing(inspection, group))
                    else:
                        view = view_group(inspection, group)
                    sample = following(sample, with_time_lags(view, inspection), time_ms=int(time.time() * 1000))
                except TryAgainError as failure:
                    if sample is None:
                        raise
                    problem = str(failure)
                document = sample_document(sample, problem)
                if as_json:
                    shown([json.dumps(document)])
                else:
                    shown(sample_text(document, interval=interval, width=terminal_width()))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None


@contextmanager
def _plain() -> Iterator[Shown]:
    """Write each poll after the one before, for files and pipes."""
    begun = False

    def shown(lines: list[str]) -> None:
        nonlocal begun
        if begun and len(lines) > 1:
            echo("")
        begun = True
        echo("\n".join(lines))

    yield shown


@contextmanager
def _screen() -> Iterator[Shown]:
    """Write to a separate screen of the terminal, which is restored afterwards."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    # `timeout 60 kafka-group watch` ends it so, and the terminal must not stay on the separate screen.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    console = Console(width=terminal_width(), highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def shown(lines: list[str]) -> None:
            height = console.size.height
            if len(lines) > height:
                lines = [*lines[: height - 1], f"... {len(lines) - height + 1} more"]
            live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)

        yield shown
