"""Parses the texts of options.

Each parser raises :class:`MalformedError` with the problem and a remedy.  The caller adds the name of the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_kafka_group.cluster.properties.durations import duration_ms
from pyspark_kafka_group.columns.schema import COLUMNS
from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.offsets.types import LARGEST_NUMBER, Offset, TopicPartition, is_name


class MalformedError(Exception):
    """A malformed value, with the problem and a remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def boolean(text: str) -> bool:
    """Return the truth value of ``true`` or ``false``."""
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise MalformedError(f"{text!r} is neither true nor false.", "Write true or false.") from None


def _number(text: str, lowest: int, what: str, remedy: str) -> int:
    # Deliberate: not int() alone, which also reads 1_000 and the digits of other scripts.
    value = int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", text) else -1
    if not lowest <= value <= _MAX_LONG:
        raise MalformedError(f"{text!r} is not {what}.", remedy)
    return value


def count(text: str) -> int:
    """Return a positive whole number."""
    return _number(text, 1, "a positive whole number", "Write a number such as 10000.")


def whole_number(text: str) -> int:
    """Return a whole number that is not negative."""
    return _number(text, 0, "a whole number", "Write a number such as 3.")


def milliseconds_since_1970(text: str) -> int:
    """Return a time in milliseconds since 1970.

    Negative times have a special meaning for brokers: -1 is the end of a log.
    """
    return _number(text, 0, "a time in milliseconds since 1970", "Write one such as 1577836800000.")


class Form(NamedTuple):
    """The form of an option's value.

    Attributes
    ----------
    text : str
        Type and unit, for the docs.
    parse : callable
        Converts the text of a user.  Raises :class:`MalformedError`.
    """

    text: str
    parse: Callable[[str], Any]


def choice(words: type[Enum], what: str, all_words: str) -> Form:
    """Return the form of the words of an enumeration.

    Parameters
    ----------
    words : type of Enum
        The enumeration.  Its values are the words, in lower case.
    what : str
        A name for one of them, with an article.
    all_words : str
        The words in their documented form.
    """

    def parse(text: str) -> Enum:
        try:
            return words(text.strip().lower())
        except ValueError:
            raise MalformedError(f"{text!r} is not {what}.", f"Write {all_words}.") from None

    return Form(all_words, parse)


def not_blank(text: str) -> str:
    """Return the text without surrounding blanks.  Refuse an empty one."""
    if not text.strip():
        raise MalformedError("it is empty.", "Give it a value.")
    return text.strip()


def topics(text: str) -> tuple[str, ...]:
    """Return the topics of a comma-separated list, without duplicates."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    remedy = "Write one or more topics, as in 'orders,payments'."
    if not names:
        raise MalformedError("it names no topic.", remedy)
    _check_topics(names, remedy)
    return names


def _check_topics(names: Iterable[str], remedy: str) -> None:
    """Refuse names that no topic can have and no request can carry.  Brokers refuse the others."""
    for name in names:
        if len(name) > _LONGEST_TOPIC or not is_name(name):
            raise MalformedError(f"{name[:50]!r} cannot be the name of a topic.", remedy)


def pattern(text: str) -> str:
    """Return the text of a valid regular expression."""
    pattern = not_blank(text)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise MalformedError(
            f"{pattern[:200]!r} is not a regular expression ({problem}).", "Write one such as 'orders-.*'."
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


def local_path(text: str) -> Path:
    """Return the path of ``/a/b``, ``file:/a/b`` or ``file:///a/b``.  Like Hadoop, do not decode ``%20``."""
    path = not_blank(text)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
    if scheme is not None:
        if scheme[1].lower() != "file":
            raise MalformedError(
                f"{path!r} is not a path on the driver's machine.",
                "Remove the option, and call pyspark_kafka_group.register(spark) before you start the query.",
            )
        path = re.sub("^//(localhost)?(?=/)", "", path[scheme.end() :])
    if not path.startswith("/") or path.startswith("//"):
        raise MalformedError(f"{text!r} is not an absolute path.", "Write it as in /data/checkpoints/orders.")
    return Path(path)


def duration(text: str) -> int:
    """Return a duration such as ``30s``, ``15m`` or ``5 minutes`` in milliseconds, which is also the default unit."""
    found = duration_ms(text, alone="ms")
    if found is None or found > _MAX_LONG:
        raise MalformedError(
            f"{text!r} is not a duration.", "Write one such as 30s, 15m or 5 minutes, or 30000 for ms."
        )
    return int(found)


def event_log(text: str) -> str:
    """Return the path of an event log.

    Deliberate: no other names.  Whoever writes options must not append lines to a file that a program executes.
    """
    path = not_blank(text)
    if not path.endswith(".jsonl"):
        raise MalformedError(f"{path!r} does not end in .jsonl.", "Name a file such as /var/log/orders.jsonl.")
    return path


def positive_duration(text: str) -> int:
    """Return a duration as `duration` does.  Refuse one of less than a millisecond."""
    found = duration(text)
    if not found:
        raise MalformedError(f"{text!r} is too short.", "Write one such as 30s, 15m or 5 minutes, or 30000 for ms.")
    return found


_STREAM_START = (
    "it is neither earliest, latest, nor JSON",
    'Write earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest).',
)
_BATCH_START = (
    "it is neither earliest, committed, nor JSON",
    'Write earliest, committed, or JSON such as {"orders": {"0": 23, "1": -2}} (-2 earliest).',
)
_BATCH_END = (
    "it is neither latest nor JSON",
    'Write latest, or JSON such as {"orders": {"0": 230, "1": -1}} (-1 latest).',
)
_TIMES_EXAMPLE = 'Write JSON such as {"orders": {"0": 1577836800000, "1": 1577836800000}}, in milliseconds since 1970.'
_PARTITIONS_EXAMPLE = 'Write JSON such as {"orders": [0, 1], "payments": [0]}.'

_MAX_LONG = 2**63 - 1
_LONGEST_TOPIC = 249


class GivenOffsets(NamedTuple):
    """The offsets of a JSON option.

    Attributes
    ----------
    partitions : mapping
        The offset of each topic-partition.  -1 becomes latest, and -2 earliest.
    topics : mapping
        The word of each topic that has one word for all its partitions.
    """

    partitions: Mapping[TopicPartition, Offset | StartingOffset]
    topics: Mapping[str, StartingOffset]


StartingOffsets = StartingOffset | GivenOffsets

COMMITTED = "committed"
"""A value of ``startingOffsets`` in a batch read."""


def starting_offsets(text: str) -> StartingOffsets:
    """Return a word, or offsets by topic-partition."""
    if text.strip().lower() == COMMITTED:
        raise MalformedError(
            "it is committed, which is for batch reads. A stream resumes at the committed offsets anyway.", "Remove it."
        )
    return _offsets(text, *_STREAM_START)


def batch_starting_offsets(text: str) -> StartingOffsets | str:
    """Return :data:`COMMITTED`, a word, or offsets by topic-partition."""
    return COMMITTED if text.strip().lower() == COMMITTED else _offsets(text, *_BATCH_START)


def ending_offsets(text: str) -> StartingOffsets:
    """Return a word, or offsets by topic-partition."""
    return _offsets(text, *_BATCH_END)


def _offsets(text: str, problem: str, example: str) -> StartingOffsets:
    """Return a word, or the offsets of ``{"orders": {"0": 23, "1": -2}, "payments": "earliest"}``."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return StartingOffset(word)
    document = _json(text, problem, example)
    words = {-1: StartingOffset.LATEST, -2: StartingOffset.EARLIEST}
    by_topic = {}
    if isinstance(document, dict):
        for topic, word in document.items():
            if isinstance(word, str) and word.strip().lower() in ("earliest", "latest"):
                by_topic[topic] = StartingOffset(word.strip().lower())
        _check_topics(by_topic, example)
        document = {topic: numbers for topic, numbers in document.items() if topic not in by_topic}
    numbers = _by_partition(document, "an offset", -2, example)
    return GivenOffsets({tp: words.get(number, Offset(number)) for tp, number in numbers.items()}, by_topic)


def partition_times(text: str) -> dict[TopicPartition, int]:
    """Return the time of each topic-partition, in milliseconds since 1970."""
    return _by_partition(_json(text, "it is not JSON", _TIMES_EXAMPLE), "a time", 0, _TIMES_EXAMPLE)


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """Return the topic-partitions of ``{"orders": [0, 1]}``, in order."""
    document = _json(text, "it is not JSON", _PARTITIONS_EXAMPLE)
    if not isinstance(document, dict) or not all(isinstance(x, list) for x in document.values()):
        raise MalformedError("the JSON is not an object of lists.", _PARTITIONS_EXAMPLE)
    _check_topics(document, _PARTITIONS_EXAMPLE)
    found = set()
    for topic, numbers in document.items():
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LARGEST_NUMBER:
                raise MalformedError(f"{number!r} is not a partition number of topic {topic!r}.", _PARTITIONS_EXAMPLE)
            found.add(TopicPartition(topic, number))
    if not found:
        raise MalformedError("it names no partition.", _PARTITIONS_EXAMPLE)
    return tuple(sorted(found))


def _by_partition(document: Any, kind: str, lowest: int, example: str) -> dict[TopicPartition, int]:
    """Return the whole number of each topic-partition."""
    if not isinstance(document, dict) or not all(isinstance(x, dict) for x in document.values()):
        raise MalformedError("the JSON is not an object of objects.", example)
    _check_topics(document, example)
    found: dict[TopicPartition, int] = {}
    for topic, numbers in document.items():
        for key, number in numbers.items():
            if not re.fullmatch("[0-9]{1,10}", key) or int(key) > LARGEST_NUMBER:
                raise MalformedError(f"{key[:50]!r} is not a partition number of topic {topic!r}.", example)
            if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= _MAX_LONG:
                raise MalformedError(f"{number!r} is not {kind} ({topic!r}, {key}).", example)
            if TopicPartition(topic, int(key)) in found:
                raise MalformedError(f"it names partition {int(key)} of topic {topic!r} twice.", example)
            found[TopicPartition(topic, int(key))] = number
    return found


def _json(text: str, problem: str, example: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            # Python's json silently keeps only the last one.
            raise MalformedError(f"it names {twice!r} twice.", example)
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as found:
        raise MalformedError(f"{problem} ({found}).", example) from None


TEXT = Form("text", not_blank)
BOOLEAN = Form("true or false", boolean)
RECORDS = Form("number of records", count)
TIME = Form("milliseconds since 1970", milliseconds_since_1970)
DURATION = Form("duration, such as 30s or 30000 (ms)", duration)
POSITIVE_DURATION = DURATION._replace(parse=positive_duration)
