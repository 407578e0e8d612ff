"""Parses what users type: partitions, times, and where to set offsets (the grammar of ``kcl group seek``).  Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

from pyspark_kafka_group.cluster.properties.durations import duration_ms
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import LARGEST_NUMBER, LARGEST_OFFSET, Offset, TopicPartition, is_name

_SINCE_1970_MS = {9: 1e3, 10: 1e3, 13: 1.0, 19: 1e-6}
"""Milliseconds in one unit of a number, by its number of digits: seconds, milliseconds or nanoseconds."""

TIME_FORMS = (
    "-1h or -2d12h before now, 2026-01-31, 2026-01-31T12:00:00Z (UTC is the default), or seconds, milliseconds or "
    "nanoseconds since 1970"
)
_TARGET_FORMS = (
    "start, end, start+10, end-10, 1234 for an offset, +10 or -10 from the committed offset, or @ and a time: "
    f"{TIME_FORMS}"
)

PartitionChoice = Mapping[str, frozenset[int] | None]
"""Partition numbers by topic; None for the whole topic.  An empty mapping chooses everything."""


def parse_partitions(values: Iterable[str]) -> PartitionChoice:
    """Return the partitions of ``orders`` or ``orders:0,2``.

    Raises
    ------
    ConfigurationError
        If a value has another form.
    """
    wanted: dict[str, frozenset[int] | None] = {}
    for value in values:
        match = re.fullmatch(r"([\w.-]+)(?::(\d{1,9}(?:,\d{1,9})*))?", value, re.ASCII)
        if match is None:
            raise ConfigurationError(f"{value!r} is not a topic. Write orders, or orders:0,2 for two partitions.")
        topic, numbers = match.groups()
        before = wanted.get(topic, frozenset())
        if numbers is None or before is None:
            wanted[topic] = None
        else:
            wanted[topic] = before | {int(number) for number in numbers.split(",")}
    return wanted


def is_chosen(choice: PartitionChoice, topic: str, partition: int) -> bool:
    """Return whether a partition is chosen."""
    numbers = choice.get(topic, frozenset())
    return not choice or numbers is None or partition in numbers


def without(choice: PartitionChoice, known: Collection[TopicPartition]) -> PartitionChoice:
    """Return a choice without the known partitions, and without whole topics that have a known partition."""
    topics = {tp.topic for tp in known}
    left = {
        topic: None if numbers is None else frozenset(n for n in numbers if TopicPartition(topic, n) not in known)
        for topic, numbers in choice.items()
    }
    return {topic: rest for topic, rest in left.items() if (topic not in topics if rest is None else rest)}


def choice_of(partitions: Iterable[TopicPartition]) -> PartitionChoice:
    """Return the choice of only these partitions."""
    numbers: dict[str, set[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, set()).add(number)
    return {topic: frozenset(found) for topic, found in numbers.items()}


class TargetKind(Enum):
    """The point from which a target counts."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    COMMITTED = "committed"
    TIME = "time"  # in milliseconds since 1970


class Target(NamedTuple):
    """The value of ``--to``."""

    kind: TargetKind
    value: int = 0


def parse_target(text: str, *, now_ms: int) -> Target:
    """Return the target that ``--to`` names.

    Parameters
    ----------
    text : str
        The value.
    now_ms : int
        The time, in milliseconds since 1970.

    Raises
    ------
    ConfigurationError
        If the value has another form.
    """
    target = None
    if text.startswith("@"):
        time_ms = parse_time(text[1:], now_ms=now_ms)
        target = None if time_ms is None else Target(TargetKind.TIME, time_ms)
    elif match := re.fullmatch(r"(start|end)?([+-]?\d{1,19})?", text, re.ASCII):
        word, number = match.groups()
        value = int(number or 0)
        if word is None and number:
            target = Target(TargetKind.COMMITTED if number[0] in "+-" else TargetKind.OFFSET, value)
        elif word == "start" and (number is None or number[0] == "+"):
            target = Target(TargetKind.START, value)
        elif word == "end" and (number is None or number[0] == "-"):
            target = Target(TargetKind.END, value)
    if target is None or abs(target.value) > LARGEST_OFFSET:
        raise ConfigurationError(f"--to {text!r} is not valid. Write {_TARGET_FORMS}.")
    return target


def parse_time(text: str, *, now_ms: int) -> int | None:
    """Return a time in milliseconds since 1970; None for a text in another form than :data:`TIME_FORMS`."""
    if text.startswith("-") and (ago := duration_ms(text[1:], alone=None)) is not None:
        return int(now_ms - ago) if ago <= now_ms else None
    if match := re.fullmatch(r"(\d+)([.]\d+)?", text, re.ASCII):
        number, fraction = match.groups()
        unit = _SINCE_1970_MS.get(len(number))
        if unit is None or (fraction and unit < 1e3):
            return None
        return int(float(text) * unit) if fraction else int(number) * int(unit) if unit >= 1 else int(number) // 10**6
    if not re.fullmatch(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d([.]\d+)?)?([Zz]|[+-]\d\d:\d\d)?)?", text, re.ASCII):
        return None
    try:
        when = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    since_1970 = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return int(since_1970 * 1000) if since_1970 >= 0 else None


def parse_offsets(text: str, *, source: str) -> Mapping[TopicPartition, Offset]:
    """Return the offsets of ``[{"topic": "orders", "partition": 0, "offset": 100}, ...]``; other keys are ignored.

    Parameters
    ----------
    text : str
        The content of the file.
    source : str
        Name of the file in errors.

    Raises
    ------
    ConfigurationError
        If it has another form, or names a partition twice.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    found: dict[TopicPartition, Offset] = {}
    for entry in document if isinstance(document, list) else [None]:
        parsed = _offset(entry)
        if parsed is None:
            what = "it is not a JSON list" if entry is None else f"{json.dumps(entry)[:80]} is not an offset"
            raise ConfigurationError(
                f'{source}: {what}. Write a list like [{{"topic": "orders", "partition": 0, "offset": 100}}].'
            )
        tp, offset = parsed
        if tp in found:
            raise ConfigurationError(f"{source}: it names {tp} twice. Keep one of its offsets.")
        found[tp] = offset
    if not found:
        raise ConfigurationError(f"{source}: it contains no offset. Write at least one.")
    return found


def _offset(entry: Any) -> tuple[TopicPartition, Offset] | None:
    match entry:
        case {"topic": str(topic), "partition": int(partition), "offset": int(offset)}:
            numbers = not isinstance(partition, bool) and not isinstance(offset, bool)
            exists = 0 <= partition <= LARGEST_NUMBER and 0 <= offset <= LARGEST_OFFSET
            if topic and is_name(topic) and numbers and exists:
                return TopicPartition(topic, partition), Offset(offset)
        case _:
            pass
    return None
