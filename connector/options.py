"""The options of the source: one table that parses, validates and documents.

``docs/options.md`` is rendered from :data:`OPTIONS` and from the table of refused Kafka properties (a test
compares).  Keys come from Spark in lower case, so they are matched without case; errors name them as users write
them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.kafka_properties import REFUSED, check_drain_timeout, check_properties, default_drain_timeout
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.start import RewindPolicy, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.schema import COLUMNS, DEFAULT_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes
    ----------
    name : str
        As users write it.
    kind : str
        Type and unit, for the docs.
    default : str or None
        As text, for the docs and for parsing; None if the option is required or off.
    parse : callable
        Turns the text into the value; raises ``_MalformedError``.
    doc : str
        What it means.
    required : bool
        Whether the query cannot start without it.
    """

    name: str
    kind: str
    default: str | None
    parse: Callable[[str], Any]
    doc: str
    required: bool = False


class _MalformedError(Exception):
    """What is wrong with a value, and what to write instead."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise _MalformedError(f"{text!r} is neither true nor false.", "Write true or false.") from None


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise _MalformedError(f"{text!r} is not a positive whole number.", "Write a number such as 10000.")
    return value


def _text(text: str) -> str:
    if not text.strip():
        raise _MalformedError("it is empty.", "Give it a value.")
    return text.strip()


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise _MalformedError("it names no topic.", "Write one or more topics, as in 'orders,payments'.")
    return topics


def _pattern(text: str) -> str:
    pattern = _text(text)
    try:
        re.compile(pattern)
    except re.error as problem:
        raise _MalformedError(
            f"{pattern!r} is not a regular expression ({problem}).", "Write one such as 'orders-.*'."
        ) from None
    return pattern


def _columns(text: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in COLUMNS}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name.lower() not in known]
    if unknown or not names:
        problem = f"{unknown[0]!r} is not a column of this source." if unknown else "it names no column."
        raise _MalformedError(problem, f"Write some of {', '.join(COLUMNS)}, separated by commas.")
    wanted = {known[name.lower()] for name in names}
    return tuple(name for name in COLUMNS if name in wanted)


def _commit_mode(text: str) -> CommitMode:
    try:
        return CommitMode(text.strip().lower())
    except ValueError:
        raise _MalformedError(f"{text!r} is not a commit mode.", "Write transaction or plain.") from None


def _rewind_policy(text: str) -> RewindPolicy:
    try:
        return RewindPolicy(text.strip().lower())
    except ValueError:
        raise _MalformedError(f"{text!r} is not a policy.", "Write fail, checkpoint or group.") from None


def _local_path(text: str) -> Path:
    """Return the path of ``/a/b``, ``file:/a/b`` and ``file:///a/b``; like Hadoop, without decoding ``%20``."""
    path = _text(text)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
    if scheme is not None:
        if scheme[1].lower() != "file":
            raise _MalformedError(
                f"{path!r} is not a path on the driver's machine.",
                "Remove the option, and call pyspark_kafka_group.register(spark) where the query is started.",
            )
        path = re.sub("^//(localhost)?(?=/)", "", path[scheme.end() :])
    if not path.startswith("/") or path.startswith("//"):
        raise _MalformedError(f"{text!r} is not an absolute path.", "Write it as in /data/checkpoints/orders.")
    return Path(path)


_OFFSETS_EXAMPLE = 'Write earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest).'

StartingOffsets = StartingOffset | Mapping[TopicPartition, Offset | StartingOffset]


def _starting_offsets(text: str) -> StartingOffsets:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return StartingOffset(word)
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise _MalformedError(f"it is neither earliest, latest, nor JSON ({problem}).", _OFFSETS_EXAMPLE) from None
    if not isinstance(document, dict) or not all(isinstance(x, dict) for x in document.values()):
        raise _MalformedError("the JSON is not an object of objects.", _OFFSETS_EXAMPLE)
    offsets: dict[TopicPartition, Offset | StartingOffset] = {}
    for topic, partitions in document.items():
        for number, offset in partitions.items():
            if not number.isdecimal():
                raise _MalformedError(f"{number!r} is not a partition number of topic {topic!r}.", _OFFSETS_EXAMPLE)
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < -2:
                raise _MalformedError(f"{offset!r} is not an offset ({topic!r}, {number}).", _OFFSETS_EXAMPLE)
            word_or_offset = {-1: StartingOffset.LATEST, -2: StartingOffset.EARLIEST}.get(offset, Offset(offset))
            offsets[TopicPartition(topic, int(number))] = word_or_offset
    return offsets


OPTIONS: tuple[Option, ...] = (
    Option(
        name="kafka.bootstrap.servers",
        kind="text: host:port,...",
        default=None,
        parse=_text,
        required=True,
        doc="Where the cluster is.",
    ),
    Option(
        name="kafka.group.id",
        kind="text",
        default=None,
        parse=_text,
        required=True,
        doc="The consumer group. All queries with the same group share the partitions of their topics. Two sources of "
        "one query may have the same group only if they read different topics.",
    ),
    Option(
        name="subscribe",
        kind="text: topic,...",
        default=None,
        parse=_topics,
        doc="The topics to read; either this or subscribePattern is required. Members of one group may subscribe to "
        "different topics.",
    ),
    Option(
        name="subscribePattern",
        kind="regular expression",
        default=None,
        parse=_pattern,
        doc="In place of subscribe: what the whole names of the topics match, as Python's re.fullmatch has it. Topics "
        "that are created later are found within 30 s (kafka.topic.metadata.refresh.interval.ms) and read from their "
        "beginning. Kafka's own topics, whose names begin with two underscores, never match.",
    ),
    Option(
        name="startingOffsets",
        kind="earliest, latest, or JSON",
        default="latest",
        parse=_starting_offsets,
        doc="Where to start a partition that the group has never committed; -2 is earliest and -1 latest in JSON, "
        "and partitions that the JSON does not name start at their beginning. Wherever the group has a committed "
        "offset, that is where it goes on. Partitions that are added to a topic later start at their beginning.",
    ),
    Option(
        name="failOnDataLoss",
        kind="true or false",
        default="true",
        parse=_boolean,
        doc="Whether to end the query when records were deleted before they were read. If false, the exact range is "
        "logged and the query goes on at the nearest offset that exists.",
    ),
    Option(
        name="onOffsetRewind",
        kind="fail, checkpoint or group",
        default="fail",
        parse=_rewind_policy,
        doc="What to do when the group's committed offset is lower than this query has seen it, or gone: somebody has "
        "reset or deleted the group's offsets. fail: end the query with the exact range. checkpoint: go on at what the "
        "query has finished, and put the group's offset back there. group: follow the group and process the range "
        "again; where the offset is gone, start as startingOffsets says.",
    ),
    Option(
        name="includeHeaders",
        kind="true or false",
        default="false",
        parse=_boolean,
        doc="Whether rows have the column headers.",
    ),
    Option(
        name="columns",
        kind="text: column,...",
        default=",".join(DEFAULT_COLUMNS),
        parse=_columns,
        doc="Which columns rows have, in the order of Spark's own source. Spark does not tell a Python source "
        "which columns a query uses: leaving out what it does not use saves time.",
    ),
    Option(
        name="maxOffsetsPerTrigger",
        kind="number of records",
        default=None,
        parse=_count,
        doc="About how many offsets one batch reads at most, shared among the partitions by their backlog; every "
        "partition with a backlog gets at least one. Off: everything there is.",
    ),
    Option(
        name="minRecordsPerTask",
        kind="number of records",
        default="10000",
        parse=_count,
        doc="Ranges of a batch with fewer records share a task until it has about this many: a task costs some "
        "milliseconds, however little it reads. With 1, each topic-partition has a task of its own, as in Spark's own "
        "source: better where processing one record takes long.",
    ),
    Option(
        name="commitMode",
        kind="transaction or plain",
        default="transaction",
        parse=_commit_mode,
        doc="How offsets are committed to the group. transaction: in a Kafka transaction, fenced by the generation of "
        "the member. plain: with one OffsetCommit request, for clusters where transactions are not allowed.",
    ),
    Option(
        name="drainTimeoutMs",
        kind="milliseconds",
        default="120000",
        parse=_count,
        doc="How long a partition that the group asks for may stay until the running batch is finished and committed. "
        "When it is over the partition leaves uncommitted, and the next owner repeats what was in flight. Must be "
        "below kafka.max.poll.interval.ms (300000 unless set); if only that is set, and is short, the default is 10000 "
        "below it, or two thirds of it where that is more.",
    ),
    Option(
        name="kafkaConsumer.pollTimeoutMs",
        kind="milliseconds",
        default="120000",
        parse=_count,
        doc="How long an executor waits for records that should be there.",
    ),
    Option(
        name="checkpointLocation",
        kind="path on the driver's machine, or file: URI",
        default=None,
        parse=_local_path,
        doc="The checkpoint of the query, the same that writeStream has. With it the source sees in Spark's commit log "
        "that a batch is finished, and need not wait for the next trigger to hand partitions over. Not needed after "
        "pyspark_kafka_group.register(spark), and not with triggers that are close together.",
    ),
    Option(
        name="eventLog",
        kind="path on the driver's machine",
        default=None,
        parse=_text,
        doc="A file that gets one JSON object per event of this member: assigned, released, committed, and so on.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All options, parsed and checked.

    Attributes
    ----------
    group : GroupSettings
        What the coordinator needs.
    columns : tuple of str
        ``columns``, and headers if ``includeHeaders``.
    max_offsets_per_trigger : int or None
        ``maxOffsetsPerTrigger``; None is off.
    min_records_per_task : int
        ``minRecordsPerTask``.
    poll_timeout_s : float
        ``kafkaConsumer.pollTimeoutMs``, in seconds.
    checkpoint : Path or None
        ``checkpointLocation``.
    event_log : str or None
        ``eventLog``.
    client_id : str
        ``kafka.client.id``, the beginning of every client id of this source.
    """

    group: GroupSettings
    columns: tuple[str, ...]
    max_offsets_per_trigger: int | None
    min_records_per_task: int
    poll_timeout_s: float
    checkpoint: Path | None
    event_log: str | None
    client_id: str = field(default="kafka-group")


def parse(options: Mapping[str, str]) -> Settings:
    """Parse and check the options of ``spark.readStream.format("kafka-group")``.

    Parameters
    ----------
    options : mapping of str to str
        As Spark hands them over; case does not matter for keys.

    Raises
    ------
    OptionError
        For the first option that is missing, unknown, malformed or in conflict; it names the option and the remedy.
    """
    given = {key.lower(): value for key, value in options.items()}
    values = {option.name: _value(option, given) for option in OPTIONS}
    for key in given:
        _check_known(key)
    properties = {key.removeprefix("kafka."): value for key, value in given.items() if key.startswith("kafka.")}
    check_properties(properties)
    drain_timeout_ms: int = values["drainTimeoutMs"]
    if "draintimeoutms" not in given:
        drain_timeout_ms = default_drain_timeout(drain_timeout_ms, properties)
    check_drain_timeout(drain_timeout_ms, properties)
    topics, pattern = _subscription(values["subscribe"], values["subscribePattern"])
    starting: StartingOffsets = values["startingOffsets"]
    if isinstance(starting, StartingOffset):
        default, explicit = starting, {}
    else:
        default, explicit = StartingOffset.EARLIEST, dict(starting)
        named = {tp.topic for tp in explicit}
        mine = set(topics) if pattern is None else {topic for topic in named if re.fullmatch(pattern, topic)}
        if foreign := sorted(named - mine):
            where = "in subscribe" if pattern is None else "matched by subscribePattern"
            raise OptionError(
                "startingOffsets",
                f"it names a topic that is not {where}: {', '.join(foreign)}.",
                "Subscribe to the topic, too, or remove it here.",
            )
    columns: tuple[str, ...] = values["columns"]
    if values["includeHeaders"] and "headers" not in columns:
        columns = (*columns, "headers")
    group = GroupSettings(
        properties=properties,
        group_id=values["kafka.group.id"],
        topics=topics,
        pattern=pattern,
        commit_mode=values["commitMode"],
        drain_timeout_s=drain_timeout_ms / 1000,
        read_committed=properties.get("isolation.level", "read_committed") == "read_committed",
        start=StartPolicy(
            group_id=values["kafka.group.id"],
            default=default,
            explicit=explicit,
            fail_on_data_loss=values["failOnDataLoss"],
            on_rewind=values["onOffsetRewind"],
        ),
        session_timeout_s=float(properties.get("session.timeout.ms", 45_000)) / 1000,
    )
    return Settings(
        group=group,
        columns=columns,
        max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
        min_records_per_task=values["minRecordsPerTask"],
        poll_timeout_s=values["kafkaConsumer.pollTimeoutMs"] / 1000,
        checkpoint=values["checkpointLocation"],
        event_log=values["eventLog"],
        client_id=properties.get("client.id", "kafka-group"),
    )


def _subscription(topics: tuple[str, ...] | None, pattern: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the topics, or the pattern; exactly one of them is given."""
    if topics is None and pattern is None:
        raise OptionError("subscribe", "it is missing.", "Add .option('subscribe', ...), or subscribePattern.")
    if topics is not None and pattern is not None:
        raise OptionError("subscribePattern", "it is given together with subscribe.", "Remove one of the two.")
    return topics or (), pattern


def _value(option: Option, given: Mapping[str, str]) -> Any:
    text = given.get(option.name.lower(), option.default)
    if text is None:
        if option.required:
            raise OptionError(option.name, "it is missing.", f"Add .option({option.name!r}, ...). {option.doc}")
        return None
    try:
        return option.parse(text)
    except _MalformedError as malformed:
        raise OptionError(option.name, str(malformed), malformed.remedy) from None


def _check_known(key: str) -> None:
    names = {option.name.lower(): option.name for option in OPTIONS}
    if key in names or key.startswith("kafka."):
        return
    unprefixed = {refusal.key for refusal in REFUSED} | {"bootstrap.servers", "group.id", "group.protocol"}
    if key in unprefixed:
        raise OptionError(key, "it is not an option of this source.", f"Write kafka.{key} for a Kafka property.")
    if key in _NOT_YET:
        raise OptionError(_NOT_YET[key], "this version does not have it.", "Use subscribe with the topics' names.")
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"Did you mean {names[near[0]]!r}?" if near else "Kafka properties are written kafka.<name>."
    raise OptionError(key, "it is not an option of this source.", hint)


_NOT_YET = {"assign": "assign"}
