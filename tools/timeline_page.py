"""The timeline as one HTML file: its data and tables.  What it looks like is in ``timeline_template``.

Names come from event logs, which anybody may have written: they are data in JSON, text in tables, and never markup.
"""

from __future__ import annotations

import html
import json
from typing import Any

from pyspark_kafka_group.tools.analysis.documents import moment
from pyspark_kafka_group.tools.analysis.timeline import MemberSums, Timeline
from pyspark_kafka_group.tools.tables import duration
from pyspark_kafka_group.tools.timeline_template import TEMPLATE

_HEAD = (
    "application",
    "batches",
    "records",
    "partitions that came",
    "released",
    "expired",
    "lost",
    "ended untold",
    "commits",
    "failed commits",
)

_TITLE = "kafka-group timeline"


def page(made: Timeline, *, since: float | None = None, until: float | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    made : Timeline
        What it shows.
    since, until : float or None
        The stretch of time that is seen at first, in seconds since 1970; None for the beginning and the end.
    """
    span = f"{_moment(made.start)} to {_moment(made.end)} UTC, {duration(int(1000 * (made.end - made.start)))}"
    count = f"{len(made.members)} applications, {len(made.partitions)} partitions"
    parts = {
        "title": html.escape(_TITLE),
        "summary": html.escape(f"{count}, {span}"),
        "rows": "\n".join(_row(member, sums) for member, sums in made.members.items()),
        "head": "".join(f"<th>{html.escape(name)}</th>" for name in _HEAD),
        "data": as_script(_data(made, since, until)),
    }
    # Deliberate: cut, not replaced one after another.  A name may look like the place of another part.
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(TEMPLATE.split("@@")))


def as_script(value: Any) -> str:
    """Return JSON that can stand inside a ``script`` element: nothing in it ends the element."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: other characters are escaped
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _row(member: str, sums: MemberSums) -> str:
    numbers = (
        sums.batches,
        sums.records,
        sums.assigned,
        sums.released,
        sums.expired,
        sums.lost,
        sums.taken,
        sums.commits,
        sums.failed_commits,
    )
    cells = "".join(f"<td>{number:,}</td>" for number in numbers)
    return f"<tr><th>{html.escape(member)}</th>{cells}</tr>"


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
            for span in made.spans
        ],
        "batches": [
            [members[b.member], ms(b.start), ms(b.end), b.records, b.count, int(b.replay)] for b in made.batches
        ],
        "marks": [[members[mark.member], ms(mark.time), mark.name, mark.partitions] for mark in made.marks],
        "lag": [[members[member], ms(time), lag] for time, member, lag in made.lag],
    }


def _moment(time: float) -> str:
    return moment(int(1000 * time), short=True)
