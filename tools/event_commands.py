"""``events`` and ``timeline``: read event logs.  They need no cluster.

Names come from event logs that anyone may have written.  In the page of a timeline they are data in JSON and text in
tables, never markup.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice
from pyspark_kafka_group.tools.analysis.documents import moment
from pyspark_kafka_group.tools.analysis.event_lines import EventFilter, EventLine, read_lines
from pyspark_kafka_group.tools.analysis.timeline import TOTALS, Timeline
from pyspark_kafka_group.tools.analysis.timeline import timeline as timeline_of
from pyspark_kafka_group.tools.command_base import FOUND, echo, fail, say, since_option, time_of, topics_option
from pyspark_kafka_group.tools.texts import clean, duration, to_seconds

Command = Callable[..., None]

_NAMED = 20
"""Maximum number of bad lines that are named, because all lines of another kind of file are bad."""


def filtered(command: Command) -> Command:
    """Add the files, and the options that choose events, to a command."""
    options = (
        click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)),
        click.option("--until", "until_ms", metavar="TIME", callback=time_of, help="Only what happened before."),
        since_option,
        click.option(
            "--application",
            "members",
            multiple=True,
            metavar="CLIENT-ID",
            help="Only this member, with or without its end -1a2b3c4d. Repeat it for more members.",
        ),
        topics_option,
    )
    for option in options:
        command = option(command)
    return command


@click.command()
@filtered
@click.option("--event", "names", multiple=True, metavar="NAME", help="Only these events. Repeat it for more events.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines of the log.")
def events(
    *,
    files: Sequence[Path],
    names: Sequence[str],
    members: Sequence[str],
    topics: PartitionChoice,
    since_ms: int | None,
    until_ms: int | None,
    as_json: bool,
) -> None:
    """Show the events of event logs in order of time.

    The option eventLog writes event logs. A line that is no event is reported on standard error
    and left out. The command then ends with 1.

    \b
    Examples:
      kafka-group events --event expired --event lost *.events.jsonl
      kafka-group events --topics orders:3 --since 2026-11-22 --json etl.jsonl
    """
    log = _EventLog(files)
    wanted = EventFilter(
        names=names, members=members, topics=topics, since=_seconds(since_ms), until=_seconds(until_ms)
    )
    for line in sorted((line for line in log if wanted.has(line)), key=lambda line: line.time):
        echo(json.dumps(line.to_json()) if as_json else _text(line))
    log.end()


@click.command()
@filtered
@click.option(
    "-o", "--output", default="timeline.html", metavar="FILE", help="The file to write; - is standard output."
)
def timeline(
    *,
    files: Sequence[Path],
    members: Sequence[str],
    topics: PartitionChoice,
    since_ms: int | None,
    until_ms: int | None,
    output: str,
) -> None:
    """Draw who owned which partition when, from event logs.

    The picture also shows batches and lag. It is one HTML file that loads nothing else. A line
    that is no event is reported on standard error and left out. The command then ends with 1. It
    also ends with 1 if there is no event.

    --since and --until choose the time that the page shows at first. The file has all events.

    \b
    Example:
      kafka-group timeline -o orders.html etl-1.events.jsonl etl-2.events.jsonl
    """
    log = _EventLog(files)
    wanted = EventFilter(topics={}, members=members)
    made = timeline_of((line for line in log if wanted.has(line)), topics=topics)
    if not made.members:
        say("these files contain no such event.")
        raise click.exceptions.Exit(FOUND)
    text = page(made, since=_seconds(since_ms), until=_seconds(until_ms))
    if output == "-":
        echo(text.encode(), nl=False)  # the page says that it is UTF-8
    else:
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as problem:
            fail(f"{output}: {problem.strerror or problem}. Name another file with --output.")
        say(f"{output}: {len(made.partitions)} partitions, {len(made.members)} applications.")
    log.end()


class _EventLog:
    """Return the events of some files.  Report each line that is no event on standard error."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._bad = 0

    def __iter__(self) -> Iterator[EventLine]:
        for path in self._files:
            try:
                with path.open("rb") as file:
                    for line in read_lines(str(path), file):
                        if isinstance(line, EventLine):
                            yield line
                            continue
                        self._bad += 1
                        if self._bad <= _NAMED:
                            say(f"{line.file}:{line.number} is left out: {line.problem}.")
            except OSError as problem:
                fail(f"{path}: {problem.strerror or problem}. Name event logs that the option eventLog has written.")

    def end(self) -> None:
        """End with 1 if a line was left out."""
        if self._bad > _NAMED:
            say(f"{self._bad - _NAMED} more lines are left out.")
        if self._bad:
            raise click.exceptions.Exit(FOUND)


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _text(line: EventLine) -> str:
    what = ", ".join(f"{field} {_plain(value)}" for field, value in line.fields.items())
    return "  ".join(clean(part) for part in (moment(int(line.time * 1000)), line.member, line.name, what)).rstrip()


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, int) for item in value):
        return f"[{value[0]}, {value[1]})"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


_TEMPLATE = Path(__file__).with_name("timeline.html")


def page(made: Timeline, *, since: float | None = None, until: float | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    made : Timeline
        The timeline.
    since, until : float or None
        The time that the page shows at first, in seconds since 1970; by default all of it.
    """
    span = f"{_moment(made.start)} to {_moment(made.end)} UTC, {duration(made.end - made.start)}"
    count = f"{len(made.members)} applications, {len(made.partitions)} partitions"
    parts = {
        "title": "kafka-group timeline",
        "summary": html.escape(f"{count}, {span}"),
        "rows": "\n".join(
            f"<tr><th>{html.escape(member)}</th>{''.join(f'<td>{totals[name]:,}</td>' for name in TOTALS)}</tr>"
            for member, totals in made.members.items()
        ),
        "head": "".join(f"<th>{html.escape(name)}</th>" for name in ("application", *TOTALS.values())),
        "data": as_script(_data(made, since, until)),
    }
    # Deliberate: cut, not replaced one after another.  A name may look like the mark of another part
    # (`test_a_timeline_is_one_file_that_loads_nothing_and_escapes_names`).
    pieces = _TEMPLATE.read_text(encoding="utf-8").split("@@")
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


def as_script(value: Any) -> str:
    """Return JSON for use inside a ``script`` element: nothing in it ends the element."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: other characters are escaped
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _data(made: Timeline, since: float | None, until: float | None) -> dict[str, Any]:
    members = {member: at for at, member in enumerate(made.members)}
    partitions = {partition: at for at, partition in enumerate(made.partitions)}

    def ms(time: float) -> int:
        return round(1000 * (time - made.start))

    return {
        "start": round(1000 * made.start),
        "end": max(1, ms(made.end)),
        "view": [0 if since is None else ms(since), ms(made.end if until is None else until)],
        "members": list(members),
        "partitions": list(partitions),
        "spans": [
            [
                members[span.member],
                partitions[span.partition],
                ms(span.start),
                ms(span.end),
                -1 if span.draining is None else ms(span.draining),
                span.how,
            ]
            for span in made.ownerships
        ],
        "batches": [
            [members[b.member], ms(b.start), ms(b.end), b.records, b.count, int(b.replay)] for b in made.batches
        ],
        "marks": [[members[mark.member], ms(mark.time), mark.name, mark.partitions] for mark in made.marks],
        "lag": [[members[member], ms(time), lag] for time, member, lag in made.lag],
    }


def _moment(time: float) -> str:
    return to_seconds(moment(int(1000 * time)))
