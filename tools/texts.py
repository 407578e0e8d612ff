"""The text that commands print for people: the documents of ``--json`` as lines and tables."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from shutil import get_terminal_size
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.types import printable
from pyspark_kafka_group.tools.analysis.documents import Document
from pyspark_kafka_group.tools.analysis.offsets_topic import OFFSETS_TOPIC

_PARAGRAPH = 80
"""Width of wrapped text."""

_NAMED = 8
"""Maximum number of partitions that a line names."""

_GAP = "  "
_SHORTEST = 8
_CUT = "…"


class Style(Enum):
    """The style of a column."""

    TEXT = "text"  # on the left; loses its middle if the terminal is narrow
    WORD = "word"  # on the left; never cut
    NUMBER = "number"  # on the right; never cut


class TextColumn(NamedTuple):
    """A column: its head, and the key of its value or a function that computes it from the document."""

    head: str
    value: str | Callable[[Document], object]
    style: Style = Style.NUMBER

    def cell(self, document: Document) -> str:
        """Return the text of a cell."""
        return clean(document[self.value] if isinstance(self.value, str) else self.value(document))


def terminal_width() -> int | None:
    """Return the width of the terminal; None for a file or a pipe, in which nothing may be cut."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    columns: Sequence[TextColumn],
    documents: Iterable[Document],
    *,
    width: int | None = None,
    least: Sequence[int] = (),
) -> list[str]:
    """Return the lines of a table, the heads first.

    Parameters
    ----------
    columns : sequence of TextColumn
        The columns.
    documents : iterable of Document
        One for each row.
    width : int, optional
        Maximum length of a line, as far as columns can be cut.  By default nothing is cut.
    least : sequence of int
        Minimum width of each column.
    """
    rows = [[column.head for column in columns], *([column.cell(doc) for column in columns] for doc in documents)]
    widths = [max(map(len, cells)) for cells in zip(*rows, *([" " * n for n in least],) if least else (), strict=True)]
    cuttable = [at for at, column in enumerate(columns) if column.style is Style.TEXT]
    while width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        longest = max(cuttable, key=lambda at: widths[at], default=None)
        if longest is None or widths[longest] <= _SHORTEST:
            break
        widths[longest] -= 1
    return [_line(cells, columns, widths) for cells in rows]


def _line(cells: Sequence[str], columns: Sequence[TextColumn], widths: Sequence[int]) -> str:
    shown = [
        cut(cell, width).rjust(width) if column.style is Style.NUMBER else cut(cell, width).ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return _GAP.join(shown).rstrip()


def cut(text: str, width: int) -> str:
    """Return a text that fits, with its middle cut, because names differ at their ends."""
    if len(text) <= width:
        return text
    left = (width - 1) // 2
    return text[:left] + _CUT + text[len(text) - (width - 1 - left) :]


def clean(value: object) -> str:
    """Return a value without characters that control a terminal; a dash for None."""
    return "-" if value is None else printable(str(value))


def duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 24 * 3600:
        return f"{whole // 3600} h {whole // 60 % 60} min"
    return f"{whole // 86400} d {whole // 3600 % 24} h"


def brief(seconds: float | None) -> str | None:
    """Return a duration in at most six characters; None for None."""
    if seconds is None:
        return None
    for limit, unit, size in ((99.5, "s", 1), (99.5 * 60, "m", 60), (47.5 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{_short(seconds / size)}{unit}"
    return f"{min(seconds / 86400, 99999):.0f}d"


def _short(number: float) -> str:
    return f"{number:.1f}" if 0 < number < 9.95 else f"{number:.0f}"


def _rate(per_second: float | None) -> str | None:
    return None if per_second is None else _short(per_second)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def to_seconds(time: str) -> str:
    """Return a time of a document without its fraction and zone; a number that is no time stays a number."""
    return time[:19].replace("T", " ") if time.endswith("Z") else time


_TIME = TextColumn("TIME (UTC)", lambda doc: to_seconds(doc["time"]), Style.WORD)
_TOPIC = TextColumn("TOPIC", "topic", Style.TEXT)
_TOPIC_PARTITION = TextColumn("TOPIC-PARTITION", lambda doc: f"{doc['topic']}-{doc['partition']}", Style.TEXT)
_PARTITION = TextColumn("PARTITION", "partition")
_OFFSET = TextColumn("CURRENT-OFFSET", "committed_offset")
_LAG = TextColumn("LAG", "lag")
_BEHIND = TextColumn("BEHIND", lambda doc: brief(doc["lag_seconds"]))
_CATCH_UP = TextColumn("CATCH-UP", lambda doc: brief(doc["catch_up_seconds"] or None))
_STATUS = TextColumn("STATUS", lambda doc: None if doc["status"] == "NOTFOUND" else doc["status"], Style.WORD)
_CLIENT = TextColumn("CLIENT-ID", "client_id", Style.TEXT)

_NARROW = (_TOPIC, _PARTITION, _OFFSET, _LAG, _BEHIND, _CATCH_UP, _STATUS, _CLIENT)
# Kafka's own columns come first, in their order.
_WIDE = (
    TextColumn("GROUP", "group", Style.WORD),
    *(_TOPIC, _PARTITION, _OFFSET, TextColumn("LOG-END-OFFSET", "log_end_offset"), _LAG),
    TextColumn("CONSUMER-ID", "member_id", Style.WORD),
    TextColumn("HOST", "host", Style.WORD),
    *(_CLIENT, TextColumn("LEADER-EPOCH", "leader_epoch"), _BEHIND, _CATCH_UP, _STATUS),
)
_LIVE = (
    _TOPIC,
    TextColumn("PART", "partition"),
    TextColumn("OFFSET", "committed_offset"),
    *(_LAG, _BEHIND),
    TextColumn("IN/S", lambda doc: _rate(doc["produced_per_second"])),
    TextColumn("OUT/S", lambda doc: _rate(doc["consumed_per_second"])),
    _CLIENT,
)


def group_text(document: Document, *, wide: bool = False, width: int | None = None) -> list[str]:
    """Return the lines of ``describe``."""
    count = _count(len(document["members"]), "member")
    first = f"{clean(document['group'])}: {document['state']}, {_protocol(document)}, {count}"
    first += f", {_lag(document)}" + (f", {document['status']}" if document["status"] else "")
    where = f"coordinator: {_broker(document['coordinator'])}"
    lines = [first, *_in_time(document), *_unread(document), *_held_back(document), *_beyond(document), where, ""]
    if not document["partitions"]:
        return [*lines, "The group has no committed offsets, and its members have no partitions."]
    return [*lines, *table(_WIDE if wide else _NARROW, document["partitions"], width=None if wide else width)]


def _lag(document: Document) -> str:
    return f"lag {'unknown' if document['lag'] is None else document['lag']}"


def _protocol(document: Document) -> str:
    assignor = document["assignor"]
    return f"{document['protocol']} protocol" + (f" ({clean(assignor)})" if assignor else "")


def _unread(document: Document) -> list[str]:
    """Return lines for records that wait for a member, and for those that the brokers have deleted."""
    lines = []
    if document["lag"] and not document["members"]:
        lines.append("no members: the records wait until one starts")
    expired = [f"{part['topic']}-{part['partition']}" for part in document["partitions"] if part["expired"]]
    if expired:
        offsets = _count(document["expired"], "offset")
        lines.append(
            f"expired: the brokers deleted {offsets} before the group read them, and they are not part of the lag "
            f"({_names(expired)})"
        )
    return lines


def _in_time(document: Document) -> list[str]:
    """Return a line with the time lag of the group, if it has one."""
    behind, left = document["lag_seconds"], document["catch_up_seconds"]
    return [f"{duration(behind)} behind" + (f", caught up in {duration(left)}" if left else "")] if behind else []


def _held_back(document: Document) -> list[str]:
    """Return a line for each problem that keeps partitions from being read."""
    by_problem: dict[str, list[str]] = {}
    for part in document["partitions"]:
        if part["problem"] is not None:
            by_problem.setdefault(part["problem"], []).append(f"{part['topic']}-{part['partition']}")
    return [
        f"held back, and not part of the lag: {clean(', '.join(names))} ({clean(problem)})"
        for problem, names in by_problem.items()
    ]


def _beyond(document: Document) -> list[str]:
    """Return a line for the partitions whose log ends before the committed offset."""
    beyond = [f"{part['topic']}-{part['partition']}" for part in document["partitions"] if (part["lag"] or 0) < 0]
    return [f"beyond the end of the log, and not part of the lag: {_names(beyond)}"] if beyond else []


def _names(names: Sequence[str]) -> str:
    return clean(", ".join(names[:_NAMED])) + (" ..." if len(names) > _NAMED else "")


def sample_text(document: Document, *, interval: float, width: int | None = None) -> list[str]:
    """Return the lines of one poll of ``watch``, the partitions with the largest lag first."""
    count = _count(len(document["members"]), "member")
    rates = [clean(_rate(document[key])) for key in ("produced_per_second", "consumed_per_second")]
    lines = [
        f"{clean(document['group'])}: {document['state']}, {_protocol(document)}, {count}",
        ", ".join([_lag(document), *_in_time(document)]),
        f"in {rates[0]}/s, out {rates[1]}/s, rebalances: {document['rebalances']}",
        f"{to_seconds(document['time'])} UTC, every {interval:g} s",
    ]
    if document["error"] is not None:
        lines.append(f"the cluster does not answer now: {clean(document['error'])}")
    parts = sorted(document["partitions"], key=lambda part: -1 if part["lag"] is None else part["lag"], reverse=True)
    return [*(line if width is None else cut(line, width) for line in lines), "", *table(_LIVE, parts, width=width)]


_GROUPS = (
    TextColumn("GROUP", "group", Style.TEXT),
    TextColumn("STATE", "state", Style.WORD),
    TextColumn("PROTOCOL", "protocol", Style.WORD),
    TextColumn("MEMBERS", "members"),
    TextColumn("LAG", "lag"),
    TextColumn("TOPICS", lambda doc: ", ".join(doc["topics"]) or None, Style.TEXT),
)


def groups_text(documents: Sequence[Document], *, width: int | None = None) -> list[str]:
    """Return the lines of ``groups``."""
    if not documents:
        return ["The cluster has no groups of consumers that this user may see."]
    return table(_GROUPS, documents, width=width)


def coordinator_text(document: Document) -> list[str]:
    """Return the lines of ``coordinator``."""
    first = f"{clean(document['group'])} is coordinated by {_broker(document['coordinator'])}."
    partitions, partition, leader = (
        document[key] for key in ("offsets_topic_partitions", "offsets_topic_partition", "leader")
    )
    if partitions is None:
        return [first, f"The reason is unknown: {OFFSETS_TOPIC} does not exist, or this user may not see it."]
    led_by = "It has no leader." if leader is None else f"Broker {leader} leads that partition."
    lines = [
        first,
        f"Its name has the hash {document['hash']} (Java's hashCode), and {OFFSETS_TOPIC} has {partitions}",
        f"partitions: {abs(document['hash'])} % {partitions} = {partition}. {led_by}",
    ]
    if leader is not None and leader != document["coordinator"]["node_id"]:
        lines.append("The two differ, because the leadership is moving. Ask again.")
    return lines


def _broker(coordinator: Document) -> str:
    node = coordinator["node_id"]
    return f"{'a broker' if node is None else f'broker {node}'}, {coordinator['host']}:{coordinator['port']}"


def committer(document: Document) -> str | None:
    """Return the committer, as far as the log shows it."""
    if document["committed_offset"] is None:
        return None
    if document["reset_by"] is not None:
        return f"reset by {document['reset_by']}"
    if document["client_id"] is not None:
        return str(document["client_id"])
    if document["query_id"] is not None:
        return f"query {document['query_id']}"
    return "no member" if document["members"] == 0 else "unknown"


_BY = TextColumn("BY", committer, Style.TEXT)

HISTORY = (
    _TIME,
    _TOPIC_PARTITION,
    TextColumn("FROM", "previous_offset"),
    TextColumn("TO", "committed_offset"),
    TextColumn("MOVE", "move", Style.WORD),
    _BY,
)
"""The columns of ``history``."""


def polled_widths(width: int | None) -> tuple[int, ...]:
    """Return widths for `HISTORY`, if its lines come one by one: at least 80 columns."""
    return 19, 15 + max(0, (width or 100) - 80), 9, 9, 7, 11


def _what(document: Document) -> object:
    return document["ended"] if document["kind"] == "ended" else document["kind"]


def _from(document: Document) -> object:
    return document["highest_offset" if document["kind"] == "rewind" else "previous_offset"]


def _to(document: Document) -> object:
    return document["lowest_offset" if document["kind"] == "rewind" else "committed_offset"]


def _recovered(document: Document) -> str | None:
    if document["kind"] != "rewind":
        return None
    if document["recovered"] is None:
        return "not yet"
    began, ended = (datetime.fromisoformat(document[key]) for key in ("time", "recovered"))
    return f"after {duration((ended - began).total_seconds())}"


INCIDENTS = (
    _TIME,
    _TOPIC_PARTITION,
    TextColumn("WHAT", _what, Style.WORD),
    TextColumn("FROM", _from),
    TextColumn("TO", _to),
    _BY,
    TextColumn("RECOVERED", _recovered, Style.WORD),
)
"""The columns of ``rewinds``."""


def _moved(document: Document) -> str | None:
    before = document["committed_offset"]
    return None if before is None else f"{document['new_offset'] - before:+}"


_RESET = (
    *(_TOPIC, _PARTITION, _OFFSET),
    TextColumn("NEW-OFFSET", "new_offset"),
    TextColumn("MOVED", _moved),
    TextColumn("NEW-LAG", lambda doc: doc["log_end_offset"] - doc["new_offset"]),
)


def _skipped(document: Document) -> int:
    """Return how many offsets a change leaves out.  What the brokers have deleted does not count."""
    before = document["committed_offset"]
    return 0 if before is None else document["new_offset"] - max(before, document["log_start_offset"])


def reset_text(document: Document, *, intended: bool = False, width: int | None = None) -> list[str]:
    """Return the lines of ``reset``."""
    of = f"{_count(len(document['partitions']), 'offset')} of {clean(document['group'])}"
    done = f"Set {of}." if document["executed"] else f"Nothing was changed. --execute sets {of}."
    lines = [*table(_RESET, document["partitions"], width=width), "", done]
    parts = document["partitions"]
    skipped = [many for part in parts if (many := _skipped(part)) > 0]
    if skipped:
        of = f"{_count(sum(skipped), 'offset')} in {_count(len(skipped), 'partition')}"
        lines += _wrapped(f"The group skips the records of {of}.", "")
    if any(part["committed_offset"] is not None and part["new_offset"] < part["committed_offset"] for part in parts):
        stops = "stops at its next start with OffsetRewindError. Use --intended, or start it once with "
        accepts = "accepts the new offsets at its next start, once"
        lines += _wrapped(
            f"A query with a checkpoint {accepts if intended else stops + 'onOffsetRewind=group'}. A query with assign "
            f"and a checkpoint ignores the reset.",
            "",
        )
    return lines


def diagnosis_text(document: Document) -> list[str]:
    """Return the lines of ``doctor``."""
    of = f"{document['state']}, {_count(document['members'], 'member')}, {_count(document['partitions'], 'partition')}"
    return [f"{clean(document['group'])}: {_verdict(document)} ({of})", *_finding_lines(document)]


def spark_text(document: Document) -> list[str]:
    """Return the lines of ``doctor --spark``."""
    facts = [f"{name}: {clean(value)}" for name, value in document["facts"].items()]
    return [*facts, "", f"this Python: {_verdict(document)}", *_finding_lines(document)]


def _verdict(document: Document) -> str:
    findings: list[dict[str, Any]] = document["findings"]
    notes = sum(finding["severity"] == "NOTE" for finding in findings)
    bad = len(findings) - notes
    first = _count(bad, "finding") if bad else "nothing is wrong"
    return first + (f", {_count(notes, 'note')}" if notes else "")


def _finding_lines(document: Document) -> list[str]:
    lines = []
    for finding in document["findings"]:
        lines += ["", *_wrapped(f"{finding['severity']} {finding['code']}: {clean(finding['object'])}", "")]
        for text in (finding["evidence"], finding["remedy"]):
            lines += _wrapped(f"{clean(text[:1].upper() + text[1:])}.", "  ")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        _PARAGRAPH,
        initial_indent=indent,
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
