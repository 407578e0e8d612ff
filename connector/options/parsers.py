"""From the text of an option to its value.

Each parser raises :class:`MalformedError`, which says what is wrong and what to write instead.  The caller knows which
option it is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark_kafka_group.columns.schema import COLUMNS
from pyspark_kafka_group.coordinator.settings import CommitMode
from pyspark_kafka_group.offsets.start_inputs import RewindPolicy, StartingOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition


class MalformedError(Exception):
    """What is wrong with a value, and what to write instead."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def boolean(text: str) -> bool:
    """Return the truth value of ``true`` or ``false``."""
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise MalformedError(f"{text!r} is neither true nor false.", "Write true or false.") from None


def count(text: str) -> int:
    """Return a positive whole number."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise MalformedError(f"{text!r} is not a positive whole number.", "Write a number such as 10000.")
    return value


def not_blank(text: str) -> str:
    """Return what is not blank, without the blanks around it."""
    if not text.strip():
        raise MalformedError("it is empty.", "Give it a value.")
    return text.strip()


def topics(text: str) -> tuple[str, ...]:
    """Return the topics of a list with commas, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise MalformedError("it names no topic.", "Write one or more topics, as in 'orders,payments'.")
    return names


def pattern(text: str) -> str:
    """Return a regular expression, as text."""
    pattern = not_blank(text)
    try:
        re.compile(pattern)
    except re.error as problem:
        raise MalformedError(
            f"{pattern!r} is not a regular expression ({problem}).", "Write one such as 'orders-.*'."
        ) from None
    return pattern


def columns(text: str) -> tuple[str, ...]:
    """Return columns of the source, in the order of its schema."""
    known = {name.lower(): name for name in COLUMNS}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name.lower() not in known]
    if unknown or not names:
        problem = f"{unknown[0]!r} is not a column of this source." if unknown else "it names no column."
        raise MalformedError(problem, f"Write some of {', '.join(COLUMNS)}, separated by commas.")
    wanted = {known[name.lower()] for name in names}
    return tuple(name for name in COLUMNS if name in wanted)


def commit_mode(text: str) -> CommitMode:
    """Return a commit mode."""
    try:
        return CommitMode(text.strip().lower())
    except ValueError:
        raise MalformedError(f"{text!r} is not a commit mode.", "Write transaction or plain.") from None


def rewind_policy(text: str) -> RewindPolicy:
    """Return what to do about a rewind."""
    try:
        return RewindPolicy(text.strip().lower())
    except ValueError:
        raise MalformedError(f"{text!r} is not a policy.", "Write fail, checkpoint or group.") from None


def local_path(text: str) -> Path:
    """Return the path of ``/a/b``, ``file:/a/b`` and ``file:///a/b``; like Hadoop, without decoding ``%20``."""
    path = not_blank(text)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
    if scheme is not None:
        if scheme[1].lower() != "file":
            raise MalformedError(
                f"{path!r} is not a path on the driver's machine.",
                "Remove the option, and call pyspark_kafka_group.register(spark) where the query is started.",
            )
        path = re.sub("^//(localhost)?(?=/)", "", path[scheme.end() :])
    if not path.startswith("/") or path.startswith("//"):
        raise MalformedError(f"{text!r} is not an absolute path.", "Write it as in /data/checkpoints/orders.")
    return Path(path)


_OFFSETS_EXAMPLE = 'Write earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest).'

StartingOffsets = StartingOffset | Mapping[TopicPartition, Offset | StartingOffset]


def starting_offsets(text: str) -> StartingOffsets:
    """Return a word, or offsets by topic-partition."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return StartingOffset(word)
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise MalformedError(f"it is neither earliest, latest, nor JSON ({problem}).", _OFFSETS_EXAMPLE) from None
    if not isinstance(document, dict) or not all(isinstance(x, dict) for x in document.values()):
        raise MalformedError("the JSON is not an object of objects.", _OFFSETS_EXAMPLE)
    offsets: dict[TopicPartition, Offset | StartingOffset] = {}
    for topic, partitions in document.items():
        for number, offset in partitions.items():
            if not number.isdecimal():
                raise MalformedError(f"{number!r} is not a partition number of topic {topic!r}.", _OFFSETS_EXAMPLE)
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < -2:
                raise MalformedError(f"{offset!r} is not an offset ({topic!r}, {number}).", _OFFSETS_EXAMPLE)
            word_or_offset = {-1: StartingOffset.LATEST, -2: StartingOffset.EARLIEST}.get(offset, Offset(offset))
            offsets[TopicPartition(topic, int(number))] = word_or_offset
    return offsets
