"""Writes a timeline as one HTML file, from ``timeline.html``.

Names come from event logs that anyone may have written.  They are data in JSON and text in tables, never markup.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from pyspark_kafka_group.tools.analysis.documents import moment
from pyspark_kafka_group.tools.analysis.timeline import TOTALS, Timeline
from pyspark_kafka_group.tools.texts import duration, to_seconds

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
