"""The commands that read event logs.  They ask no cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pyspark_kafka_group.tools.analysis.documents import moment
from pyspark_kafka_group.tools.analysis.event_lines import BadLine, EventLine, Wanted, read_lines
from pyspark_kafka_group.tools.analysis.timeline import timeline as timeline_of
from pyspark_kafka_group.tools.command_base import FAILED, FOUND, topics_option
from pyspark_kafka_group.tools.tables import clean
from pyspark_kafka_group.tools.timeline_page import page

Command = Callable[..., None]

# So many are named; a file of another kind has only bad lines.
_NAMED = 20


def _time(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Return a time in seconds since 1970; without a zone it is UTC."""
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no time: write 2026-11-22T20:41:03 (UTC), or seconds since 1970"
        ) from None
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()


def filtered(command: Command) -> Command:
    """Give a command the files, and the options that choose events."""
    options = (
        click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)),
        click.option("--until", metavar="TIME", callback=_time, help="Only what was before."),
        click.option(
            "--since", metavar="TIME", callback=_time, help="Only from then on, ISO 8601 or seconds since 1970."
        ),
        click.option(
            "--application",
            "members",
            multiple=True,
            metavar="CLIENT-ID",
            help="Only of this member, with or without its end -1a2b3c4d; may be repeated.",
        ),
        topics_option,
    )
    for option in options:
        command = option(command)
    return command


@click.command()
@filtered
@click.option("--event", "names", multiple=True, metavar="NAME", help="Only these events; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they were written.")
def events(files: Sequence[Path], names: Sequence[str], as_json: bool, **chosen: Any) -> None:
    """Shows the events of event logs (the option eventLog), by time.

    A line that is no event is told on standard error and left out; the command then ends with 1.

    \b
    Examples:
      kafka-group events --event expired --event lost *.events.jsonl
      kafka-group events --topics orders:3 --since 2026-11-22 --json etl.jsonl
    """
    read = _Read(files)
    wanted = Wanted(names=names, **chosen)
    for line in sorted((line for line in read if wanted.has(line)), key=lambda line: line.time):
        click.echo(json.dumps(line.to_json()) if as_json else _text(line))
    read.end()


@click.command()
@filtered
@click.option(
    "-o", "--output", default="timeline.html", metavar="FILE", help="Where to write it; - is standard output."
)
def timeline(files: Sequence[Path], output: str, **chosen: Any) -> None:
    """Draws who owned which partition when, with batches and lag, from event logs.

    The picture is one HTML file that needs nothing else.  A line that is no event is told on
    standard error and left out; the command then ends with 1, as it does if there is no event.
    --since and --until say what is seen at first; all of it is in the file.

    \b
    Example:
      kafka-group timeline -o orders.html etl-1.events.jsonl etl-2.events.jsonl
    """
    read = _Read(files)
    topics, since, until = chosen.pop("topics"), chosen.pop("since"), chosen.pop("until")
    wanted = Wanted(topics={}, **chosen)
    made = timeline_of(line for line in read if wanted.has(line))
    if topics:
        only = Wanted(topics=topics)
        made.spans = [span for span in made.spans if only.has(EventLine(0, "", "", {"partition": span.partition}))]
        shown = {span.partition for span in made.spans}
        made.partitions = [partition for partition in made.partitions if partition in shown]
    if not made.members:
        _say("there is no such event in these files.")
        raise click.exceptions.Exit(FOUND)
    text = page(made, since=since, until=until)
    if output == "-":
        click.echo(text, nl=False)
    else:
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as problem:
            _say(f"{output}: {problem.strerror or problem}. Name another file with --output.")
            raise click.exceptions.Exit(FAILED) from None
        _say(f"{output}: {len(made.partitions)} partitions, {len(made.members)} applications.")
    read.end()


class _Read:
    """The events of some files; what is no event is told on standard error."""

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
                        else:
                            self._tell(line)
            except OSError as problem:
                _say(f"{path}: {problem.strerror or problem}. Name event logs, as the option eventLog does.")
                raise click.exceptions.Exit(FAILED) from None

    def end(self) -> None:
        """End with 1 if something was left out."""
        if self._bad > _NAMED:
            _say(f"and {self._bad - _NAMED} more lines are left out.")
        if self._bad:
            raise click.exceptions.Exit(FOUND)

    def _tell(self, line: BadLine) -> None:
        self._bad += 1
        if self._bad <= _NAMED:
            _say(f"{line.file}:{line.number} is left out: {line.problem}.")


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


def _say(text: str) -> None:
    click.echo(f"kafka-group: {clean(text)}", err=True)
