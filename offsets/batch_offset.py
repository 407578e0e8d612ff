"""The offset that Spark logs for each batch: one canonical JSON, format version 2.

.. code-block:: json

    {"version": 2, "query": "6f2c...", "topics": {
        "orders": {"<topic id>": {"<lineage>": {"0": [250, 150, 4, 7, 0, -1], "8": [90, 0, 4]}}}}}

Each list has three numbers for each partition, ``until, size, leader epoch``: the batch reads ``size`` offsets below
``until``.  The key is the first partition of the list, and the others follow without a gap: here 0, 1 and 8.  Spark
writes such a text for each batch, so lists of many partitions keep it short.

Partitions that the batch does not read stay, with size 0: the query has finished everything below ``until``.  They stay
also while another member owns them.

An offset belongs to one log.  The topic id (KIP-516) distinguishes it from the log of a topic that was created again
under the same name.  The leader epoch (KIP-320) distinguishes it from a log that was truncated below ``until``.  And it
descends from one start of the group, its lineage.  A reset of the group's offsets begins another one (see
:mod:`pyspark_kafka_group.offsets.commit_metadata`).  An unknown topic id is empty, and an unknown leader epoch is -1.

Spark compares offsets as text and stores the text as it is.  So equal offsets must have equal text: topics, ids and
lineages are sorted, partitions are in numeric order, and nothing volatile is in it.  The end of a batch says what it
reads.  After a restart, Spark first calls ``partitions`` of the logged batch, and it never stores the result of
``initialOffset``.

Processed offsets rise, except where the query has to go back: a replayed batch skipped what another member owns, the
group's offset was rewound, or the log is another one.  ``"rewinds": n`` then counts how often, so that an
offset never has the text of an earlier one; without it the number is 0.

``"first": ["orders"]`` names the topics that existed when the query was started for the first time and of which it has
started no partition yet.  After a restart, `startingOffsets` still decides where they start.  Other topics that match a
pattern came later, and are read from their beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.types import LARGEST_NUMBER, LeaderEpoch, OffsetRange, TopicPartition, is_name

FORMAT_VERSION = 2

# The end of the running batch, and of the one before: Spark reports that one as finished when the next is planned.
_KNOWN = 2

# How an unknown topic id and an unknown leader epoch are written.
_NO_ID = ""
_NO_EPOCH = -1


class PartitionEntry(NamedTuple):
    """The part of one offset that belongs to one partition.

    Attributes
    ----------
    range : OffsetRange
        The range that the batch reads; empty for a partition that it does not read.  ``range.until`` is the processed
        offset.
    leader_epoch : LeaderEpoch or None
        A leader epoch under which the log had everything below ``range.until``; None if unknown.
    topic_id : str or None
        The id of the topic; None if unknown.
    lineage : str
        The start of the group that the offsets descend from.
    """

    range: OffsetRange
    leader_epoch: LeaderEpoch | None
    topic_id: str | None
    lineage: str


@dataclass(frozen=True, slots=True)
class BatchOffset:
    """The end offset of one batch.

    Attributes
    ----------
    query_id : str or None
        The id of the query, for its whole life; None only in :data:`INITIAL`, before batch 0.
    entries : mapping of TopicPartition to PartitionEntry
        Every partition this query has ever planned or resolved.
    rewinds : int
        How often a processed offset of this query has gone back.
    first : tuple of str
        The topics that existed at the first start of the query and are not in ``entries``, sorted.
    """

    query_id: str | None
    entries: Mapping[TopicPartition, PartitionEntry] = field(default_factory=dict)
    rewinds: int = 0
    first: tuple[str, ...] = ()

    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """Return the ranges that the batch reads, without the empty ones."""
        return {tp: entry.range for tp, entry in self.entries.items() if entry.range.size}

    def to_json(self) -> dict[str, Any]:
        """Return the canonical JSON object; equal offsets give equal text."""
        topics: dict[str, dict[str, dict[str, dict[str, list[int]]]]] = {}
        log: tuple[str, str | None, str] | None = None
        following = -1
        numbers: list[int] = []
        for (topic, partition), ((start, until), leader_epoch, topic_id, lineage) in sorted(self.entries.items()):
            if partition != following or log != (topic, topic_id, lineage):
                log = topic, topic_id, lineage
                lineages = topics.setdefault(topic, {}).setdefault(topic_id or _NO_ID, {})
                numbers = lineages.setdefault(lineage, {})[str(partition)] = []
            numbers += (until, until - start, _NO_EPOCH if leader_epoch is None else leader_epoch)
            following = partition + 1
        rewinds = {"rewinds": self.rewinds} if self.rewinds else {}
        in_order = {
            topic: {topic_id: dict(sorted(lineages.items())) for topic_id, lineages in sorted(logs.items())}
            for topic, logs in topics.items()
        }
        first = {"first": [*self.first]} if self.first else {}
        return {"version": FORMAT_VERSION, "query": self.query_id, **rewinds, **first, "topics": in_order}

    @classmethod
    def from_json(cls, document: Any) -> BatchOffset:
        """Read an offset that Spark returns.

        Raises
        ------
        OffsetFormatError
            If the offset was not written by this source, or has another format version.
        """
        if _is_of_sparks_source(document):
            raise OffsetFormatError(
                "it is one of Spark's own source, format('kafka').",
                "Give the group its offsets with 'kafka-group import-checkpoint -b SERVERS --group GROUP CHECKPOINT', "
                "and start with a new checkpoint.",
            )
        if not isinstance(document, dict) or "version" not in document:
            raise OffsetFormatError("it was not written by the kafka-group source.")
        version = document["version"]
        if type(version) is not int or version != FORMAT_VERSION:
            raise OffsetFormatError(f"its format version is {version!r}, not {FORMAT_VERSION}.")
        try:
            entries = dict(_entries(document["topics"]))
            first = _names(document.get("first", []))
            return cls(_query_id(document["query"]), entries, _count(document.get("rewinds", 0)), first)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise OffsetFormatError(f"it is malformed ({problem}).") from problem


def _is_of_sparks_source(document: Any) -> bool:
    """Tell whether this is an offset of Spark's own Kafka source: a number for each partition of each topic."""
    return (
        isinstance(document, dict)
        and bool(document)
        and all(
            isinstance(partitions, dict)
            and partitions
            and all(number.isdecimal() and type(offset) is int for number, offset in partitions.items())
            for partitions in document.values()
        )
    )


class OffsetTexts:
    """Turns offsets into JSON and back, and remembers the last ones.

    Spark returns each offset several times for each batch, and many times a second while there is nothing to read.  A
    comparison of two documents takes a tenth of the time of parsing one.
    """

    def __init__(self) -> None:
        self._known: deque[tuple[dict[str, Any], BatchOffset]] = deque(maxlen=_KNOWN)

    def write(self, offset: BatchOffset) -> dict[str, Any]:
        """Return the canonical JSON object of ``offset``; do not change it."""
        for document, known in self._known:
            if known is offset:
                return document
        document = offset.to_json()
        self._known.append((document, offset))
        return document

    def read(self, document: Any) -> BatchOffset:
        """Read an offset that Spark returns; a remembered offset is returned as the same object.

        Raises
        ------
        OffsetFormatError
            See :meth:`BatchOffset.from_json`.
        """
        for known, offset in self._known:
            if known == document:
                return offset
        offset = BatchOffset.from_json(document)
        self._known.append((document, offset))
        return offset


def _entries(topics: Any) -> Iterator[tuple[TopicPartition, PartitionEntry]]:
    for topic, logs in topics.items():
        _check_name(topic)
        known: set[int] = set()
        for topic_id, lineages in logs.items():
            for lineage, lists in lineages.items():
                for partition, (until, size, leader_epoch) in _listed(lists):
                    if partition in known:
                        raise ValueError(f"{topic}-{partition} is there twice")
                    known.add(partition)
                    found = OffsetRange.checked(until - size, until)
                    yield (
                        TopicPartition(topic, partition),
                        PartitionEntry(found, _leader_epoch(leader_epoch), topic_id or None, lineage),
                    )


def _listed(lists: Any) -> Iterator[tuple[int, tuple[int, int, int]]]:
    for first, numbers in lists.items():
        # bool is an int to Python, and a float compares like one: neither is an offset.
        if type(numbers) is not list or not numbers or len(numbers) % 3 or {*map(type, numbers)} != {int}:
            raise TypeError(f"{numbers!r:.100} is not [until, size, leader epoch, ...]")
        following = iter(numbers)
        count = len(numbers) // 3
        yield from enumerate(zip(following, following, following, strict=True), _partition(first, count))


def _leader_epoch(number: int) -> LeaderEpoch | None:
    if not _NO_EPOCH <= number <= LARGEST_NUMBER:
        raise ValueError(f"{number} is not a leader epoch")
    return None if number == _NO_EPOCH else LeaderEpoch(number)


def _names(value: Any) -> tuple[str, ...]:
    if type(value) is not list or not all(type(name) is str for name in value):
        raise TypeError(f"{value!r:.100} is not a list of topics")
    return tuple(value)


def _query_id(value: Any) -> str | None:
    if not isinstance(value, str | None):
        raise TypeError(f"{value!r} is not a query id")
    _check_name(value or "")
    return value


def _check_name(text: str) -> None:
    if not is_name(text):
        raise ValueError(f"{text!r:.100} is not a name")


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value


def _partition(number: str, count: int) -> int:
    """Return the first of ``count`` partitions."""
    partition = int(number)
    if partition < 0 or partition + count - 1 > LARGEST_NUMBER or number != str(partition):
        raise ValueError(f"{number!r} is not a partition number")
    return partition


INITIAL = BatchOffset(query_id=None)
"""The result of ``initialOffset``: the same in every process, because Spark never stores it."""
