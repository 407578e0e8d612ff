"""One state of a table: what each format tells the driver, and how it commits on exactly this state."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores.lake_history import Lost, OffsetSpan, Spans

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.landing.files import NewFile

Files = Mapping[TopicPartition, Sequence["NewFile"]]
"""The files of each topic-partition."""


def new_number() -> int:
    """Return a number for the new offsets of a topic that no earlier ones have had."""
    return time.time_ns() // 1_000_000


class TableState(ABC):
    """One state of a table, and the way to commit on exactly this state."""

    id: str
    """The table's id."""
    columns: Mapping[str, bool]
    """The table's columns, and whether they take null."""
    partitioning: tuple[str, ...]
    """What the table is partitioned by, so that a change is noticed."""
    ids: Mapping[str, int] = MappingProxyType({})
    """The numbers by which files name columns and their fields; empty if they use the names."""
    topic_ids: Mapping[str, str]
    """The ids of the topics whose records the table has, as far as they were noted."""
    landed: Mapping[str, int]
    """The topics that landing fills, each with the number of its offsets: 1, and another one after each `forget`."""
    version: int
    """The number of the state."""
    lost: Lost
    """The offsets whose records a rollback has removed."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the table's columns."""

    @abstractmethod
    def add_columns(self, source: pa.Schema) -> None:
        """Add what the table lacks of the source, so that it takes null."""

    @abstractmethod
    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return the next offset that the table stores; None if it stores none."""

    @abstractmethod
    def outdated(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those whose stored offsets are of another table, which this one has replaced."""

    @abstractmethod
    def forget(self, topic: str) -> None:
        """Begin new offsets for a topic, and forget its id."""

    @abstractmethod
    def note_topics(self, ids: Mapping[str, str], landed: Iterable[str]) -> None:
        """Note the ids of topics in the table, and that landing fills topics."""

    @abstractmethod
    def holds(self, paths: Iterable[str]) -> bool:
        """Return whether the table consists, among others, of these files."""

    @abstractmethod
    def has_rows(self, tp: TopicPartition, span: OffsetSpan) -> bool:
        """Return whether the table has rows of these records."""

    @abstractmethod
    def commit(self, files: Files, offsets: Mapping[TopicPartition, int], note: Spans, *, alone: bool) -> None:
        """Add the files, and store the next offsets, in one commit.

        Parameters
        ----------
        files, offsets
            The files, and the next offsets of their topic-partitions.
        note
            The offsets that the commit covers, for the table's history.
        alone
            Whether any other commit since this look is a conflict; else only one that stores one of these offsets.
        """
