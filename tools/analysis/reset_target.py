"""Where to set offsets, as people write it: the grammar of ``--to``, which is that of ``kcl group seek``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

_LARGEST = 2**63 - 1

_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3600e3, "d": 86400e3}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_DURATION = re.compile(rf"(?:{_AMOUNT.pattern})+", re.ASCII)
_SECONDS, _MILLISECONDS, _NANOSECONDS = (9, 10), (13,), (19,)
"""How many digits a number has that is a time since 1970 in these units."""

_FORMS = (
    "write start, end, start+10, end-10, 1234 for an offset, +10 or -10 from the committed offset, or a time: @-1h, "
    "@2026-01-31, @2026-01-31T12:00:00Z, or @ and seconds, milliseconds or nanoseconds since 1970"
)


class Kind(Enum):
    """What a target counts from."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    COMMITTED = "committed"  # so many from the committed offset
    TIME = "time"  # in milliseconds since 1970


class Target(NamedTuple):
    """What ``--to`` says."""

    kind: Kind
    value: int = 0


def parse_target(text: str, *, now_ms: int) -> Target:
    """Read what ``--to`` says.

    Parameters
    ----------
    text : str
        As it was typed.
    now_ms : int
        The time, in milliseconds since 1970.

    Raises
    ------
    ConfigurationError
        If that is no target.
    """
    target = None
    if text.startswith("@"):
        time_ms = _time(text[1:], now_ms)
        target = None if time_ms is None else Target(Kind.TIME, time_ms)
    elif match := re.fullmatch(r"(start|end)?([+-]?\d{1,19})?", text, re.ASCII):
        word, number = match.groups()
        value = int(number or 0)
        if word is None and number:
            target = Target(Kind.COMMITTED if number[0] in "+-" else Kind.OFFSET, value)
        elif word == "start" and (number is None or number[0] == "+"):
            target = Target(Kind.START, value)
        elif word == "end" and (number is None or number[0] == "-"):
            target = Target(Kind.END, value)
    if target is None or abs(target.value) > _LARGEST:
        raise ConfigurationError(f"--to {text!r} cannot be understood: {_FORMS}.")
    return target


def _time(text: str, now_ms: int) -> int | None:
    """Return milliseconds since 1970."""
    if text.startswith("-") and _DURATION.fullmatch(text[1:]):
        ago = sum(float(amount) * _UNITS_MS[unit] for amount, unit in _AMOUNT.findall(text[1:]))
        return int(now_ms - ago) if ago <= now_ms else None
    if re.fullmatch(r"\d+", text, re.ASCII):
        for digits, size in ((_SECONDS, 1000.0), (_MILLISECONDS, 1.0), (_NANOSECONDS, 1e-6)):
            if len(text) in digits:
                return int(text) * 1000 if size > 1 else int(text) if size == 1 else int(text) // 1_000_000
        return None
    if not re.fullmatch(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d([.]\d+)?)?([Zz]|[+-]\d\d:\d\d)?)?", text, re.ASCII):
        return None
    try:
        when = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since_1970 = when.timestamp()
    return int(since_1970 * 1000) if since_1970 >= 0 else None


def parse_offsets(text: str, *, source: str) -> Mapping[TopicPartition, Offset]:
    """Read a file of offsets: ``[{"topic": "orders", "partition": 0, "offset": 100}, ...]``; other keys do not matter.

    Parameters
    ----------
    text : str
        What is in the file.
    source : str
        What to call the file in errors.

    Raises
    ------
    ConfigurationError
        If it is of another form, or names a partition twice.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    found: dict[TopicPartition, Offset] = {}
    for entry in document if isinstance(document, list) else [None]:
        tp, offset = _entry(entry)
        if tp is None:
            what = "it is no JSON list" if entry is None else f"{json.dumps(entry)[:80]} is no offset"
            raise ConfigurationError(
                f'{source}: {what}. It has to be like [{{"topic": "orders", "partition": 0, "offset": 100}}].'
            )
        if tp in found:
            raise ConfigurationError(f"{source}: {tp} is there twice. Keep one of its offsets.")
        found[tp] = offset
    if not found:
        raise ConfigurationError(f"{source}: there is no offset in it.")
    return found


def _entry(entry: Any) -> tuple[TopicPartition | None, Offset]:
    found = entry if isinstance(entry, dict) else {}
    topic, partition, offset = found.get("topic"), found.get("partition"), found.get("offset")
    if isinstance(topic, str) and topic and isinstance(partition, int) and isinstance(offset, int):
        numbers = not isinstance(partition, bool) and not isinstance(offset, bool)
        if numbers and 0 <= partition < 2**31 and 0 <= offset <= _LARGEST:
            return TopicPartition(topic, partition), Offset(offset)
    return None, Offset(0)
