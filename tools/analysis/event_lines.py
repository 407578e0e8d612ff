"""Reads the lines of event logs (option ``eventLog``), and filters them.  Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice, is_chosen

Json = dict[str, Any]

_YEAR_10000 = 253_402_300_800
"""The first time that Python's dates do not have, in seconds since 1970."""

_PARTITION = re.compile(r"(.+)-(\d{1,9})", re.DOTALL)


class EventLine(NamedTuple):
    """One event.

    Attributes
    ----------
    time : float
        Its time, in seconds since 1970.
    member : str
        The client id of the member.
    name : str
        The name of the event.
    fields : dict
        The other fields, as in docs/events.md.
    """

    time: float
    member: str
    name: str
    fields: Json

    def to_json(self) -> Json:
        """Return the JSON of the line."""
        return {"time": self.time, "member": self.member, "event": self.name, **self.fields}


class BadLine(NamedTuple):
    """A line that is no event, with the reason.  The first line has the number 1."""

    file: str
    number: int
    problem: str


def read_lines(file: str, lines: Iterable[bytes]) -> Iterator[EventLine | BadLine]:
    """Yield the event of each line that is not empty.

    Parameters
    ----------
    file : str
        Name of the file, for bad lines.
    lines : iterable of bytes
        The lines of the file.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _event(json.loads(line.decode("utf-8")))
        except UnicodeDecodeError:
            yield BadLine(file, number, "it is not UTF-8 text")
        except RecursionError:
            yield BadLine(file, number, "it is nested too deeply")
        except json.JSONDecodeError as problem:
            yield BadLine(file, number, f"it is not JSON ({problem.msg})")
        except ValueError as problem:
            yield BadLine(file, number, str(problem))


def partitions_of(line: EventLine) -> set[str]:
    """Return the topic-partitions that an event names, as ``orders-3``."""
    found: set[str] = set()
    for field, value in line.fields.items():
        if field == "partition":
            found.add(value)
        elif field in _FORMS and field != "topics":
            found.update(value)
    return found


def split(partition: str) -> tuple[str, int]:
    """Return the topic and the number of ``orders-3``.

    Raises
    ------
    ValueError
        If it has another form.
    """
    match = _PARTITION.fullmatch(partition)
    if match is None:
        raise ValueError(f"{partition[:80]!r} is not a partition like orders-3")
    return match[1], int(match[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Chooses events.  An empty collection or None chooses all.

    Attributes
    ----------
    topics : PartitionChoice
        Partitions, of which an event must name one.
    members, names : collection of str
        Client ids, with or without the end that names the query, and names of events.
    since, until : float or None
        Seconds since 1970; ``until`` itself is excluded.
    """

    topics: PartitionChoice
    members: Collection[str] = ()
    names: Collection[str] = ()
    since: float | None = None
    until: float | None = None

    def has(self, line: EventLine) -> bool:
        """Return whether an event is chosen."""
        if self.since is not None and line.time < self.since:
            return False
        if self.until is not None and line.time >= self.until:
            return False
        if self.names and line.name not in self.names:
            return False
        if self.members and line.member not in self.members and line.member.rpartition("-")[0] not in self.members:
            return False
        return not self.topics or any(is_chosen(self.topics, *split(tp)) for tp in partitions_of(line))


def _event(found: Any) -> EventLine:
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  # what a line holds is data
    time, member, name = (found.pop(key, None) for key in ("time", "member", "event"))
    if not _is_time(time) or not isinstance(member, str) or not isinstance(name, str):
        raise ValueError("'time', 'member' or 'event' is missing or has another type")
    for field, value in found.items():
        if field in _FORMS and not _FORMS[field](value):
            raise ValueError(f"the field {field!r} does not have the form of docs/events.md")
    return EventLine(float(time), member, name, found)


def _is_time(value: Any) -> bool:
    # Also false for NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _YEAR_10000


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_whole, value))


def _is_partition(value: Any) -> bool:
    return isinstance(value, str) and _PARTITION.fullmatch(value) is not None


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_partition, value))


def _mapping(of: Callable[[Any], bool], *, key: Callable[[Any], bool] = _is_partition) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(key(tp) and of(item) for tp, item in value.items())


_FORMS: Mapping[str, Callable[[Any], bool]] = {
    "partition": _is_partition,
    "partitions": _is_list,
    "not_owned": _is_list,
    "ranges": _mapping(_is_range),
    "skipped": _mapping(_is_range),
    "positions": _mapping(_is_whole),
    "offsets": _mapping(_is_whole),
    "topics": _mapping(_is_whole, key=lambda topic: isinstance(topic, str)),
}
