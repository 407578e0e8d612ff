"""What is asked of the cluster about a group beyond its present state; the command line and the views share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark_kafka_group.offsets.client_config import Properties
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_inspection import DatedOffset, GroupInspection
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.errors import OffsetsTopicUnreadableError
from pyspark_kafka_group.tools.analysis.group_view import GroupView
from pyspark_kafka_group.tools.analysis.history import DEFAULT_RETENTION_S, History
from pyspark_kafka_group.tools.analysis.lag_judgement import LOOK_BACK_S, judge
from pyspark_kafka_group.tools.analysis.offsets_topic import read_group
from pyspark_kafka_group.tools.analysis.retention import offsets_retention_s
from pyspark_kafka_group.tools.analysis.time_lag import lag_seconds
from pyspark_kafka_group.wire.deadline import Deadline

_PATIENCE_S = 10.0
_PAUSE_S = 0.5

T = TypeVar("T")
Say = Callable[[str], None]


def _nothing(_text: str) -> None:
    """Say it to nobody."""


def patiently(ask: Callable[[], T]) -> T:
    """Ask until there is an answer: a coordinator may be loading, or moving.

    Raises
    ------
    TryAgainError
        If there is none for ten seconds.
    """
    deadline = Deadline.after(_PATIENCE_S)
    while True:
        try:
            return ask()
        except TryAgainError:
            if deadline.left_s < _PAUSE_S:
                raise
        time.sleep(_PAUSE_S)


def dated(view: GroupView, inspection: GroupInspection) -> GroupView:
    """Return the view with how far the group is behind in time; without, if the leaders do not answer just now."""
    behind = view.behind

    def records_at(times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, DatedOffset | None]:
        return inspection.records_at(times_ms, leaders=leaders).found

    try:
        leaders = inspection.look({tp.topic for tp in behind}).leaders if behind else None
        return view.dated(lag_seconds(behind, records_at, now_ms=int(time.time() * 1000)))
    except TryAgainError:
        return view


def judged(view: GroupView, inspection: GroupInspection, properties: Properties, say: Say = _nothing) -> GroupView:
    """Return the view with a verdict on the lag of each partition; without, if the offsets topic may not be read."""
    now_ms = int(time.time() * 1000)
    try:
        records = read_group(properties, view.group, since_ms=now_ms - int(LOOK_BACK_S * 1000))
        return view.judged(judge(view, records, lambda times: inspection.ends_at(times).found, now_ms=now_ms))
    except (
        OffsetsTopicUnreadableError,
        TryAgainError,
        OptionError,
    ) as problem:
        say(f"the lag is not judged. {problem}")
        return view


def history_of(inspection: GroupInspection, properties: Properties, group: str, say: Say = _nothing) -> History:
    """Return what makes a group's records a history, with the topics and the retention that the cluster has now."""
    broker = patiently(lambda: inspection.coordinator(group))
    topics = patiently(inspection.all_topics)
    retention_s = None if broker.node_id is None else offsets_retention_s(properties, broker.node_id)
    if retention_s is None:
        retention_s = DEFAULT_RETENTION_S
        say("the brokers do not tell offsets.retention.minutes: 7 days are assumed, to tell expired from deleted.")
    return History({name: info.topic_id for name, info in topics.items()}, retention_s=retention_s)
