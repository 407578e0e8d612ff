"""What the options of a query say, parsed and checked: :class:`Settings`.

Keys come from Spark in lower case, so they are matched without case; errors name them as users write them.  Which
options there are says :data:`~pyspark_kafka_group.options.table.OPTIONS`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.client_config import value_of
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.kafka_properties import is_in_table, usual
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.options.parsers import MalformedError, StartingOffsets
from pyspark_kafka_group.options.property_checks import check_drain_timeout, check_properties, default_drain_timeout
from pyspark_kafka_group.options.table import OPTIONS, Option


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
    client_id: str = field(default=usual("client.id"))


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
        read_committed=value_of("isolation.level", properties) == "read_committed",
        start=StartPolicy(
            group_id=values["kafka.group.id"],
            default=default,
            explicit=explicit,
            fail_on_data_loss=values["failOnDataLoss"],
            on_rewind=values["onOffsetRewind"],
        ),
        session_timeout_s=float(value_of("session.timeout.ms", properties)) / 1000,
    )
    return Settings(
        group=group,
        columns=columns,
        max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
        min_records_per_task=values["minRecordsPerTask"],
        poll_timeout_s=values["kafkaConsumer.pollTimeoutMs"] / 1000,
        checkpoint=values["checkpointLocation"],
        event_log=values["eventLog"],
        client_id=value_of("client.id", properties),
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
    except MalformedError as malformed:
        raise OptionError(option.name, str(malformed), malformed.remedy) from None


def _check_known(key: str) -> None:
    names = {option.name.lower(): option.name for option in OPTIONS}
    if key in names or key.startswith("kafka."):
        return
    if is_in_table(key):
        raise OptionError(key, "it is not an option of this source.", f"Write kafka.{key} for a Kafka property.")
    if key in _NOT_YET:
        raise OptionError(_NOT_YET[key], "this version does not have it.", "Use subscribe with the topics' names.")
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"Did you mean {names[near[0]]!r}?" if near else "Kafka properties are written kafka.<name>."
    raise OptionError(key, "it is not an option of this source.", hint)


_NOT_YET = {"assign": "assign"}
