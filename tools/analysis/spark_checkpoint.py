"""Reads from a checkpoint where a query with Spark's own Kafka source has stopped.

Spark resumes a query after its last finished batch: the newest one in ``commits``, with the offsets that ``offsets``
has for it.  A query without a finished batch resumes at the start that its source has stored in ``sources/N/0``.

The way back is a group's offsets as text for the option ``startingOffsets`` of Spark's source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.notes import BookmarkNote, read
from pyspark_kafka_group.offsets.spark_commit_log import batches_in, sources_in
from pyspark_kafka_group.offsets.types import LARGEST_NUMBER, LARGEST_OFFSET, Offset, TopicPartition, is_name
from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice
from pyspark_kafka_group.tools.analysis.group_checks import check_exist, listed, named, offsets_at_rest, stable_offsets


class SparkCheckpoint(NamedTuple):
    """The progress of a query, as its checkpoint has it.

    Attributes
    ----------
    finished : int or None
        The last finished batch; None if there is none.
    unfinished : int or None
        The next batch, which Spark has begun and not finished; None if there is none.
    kafka_sources : mapping of str to mapping
        The next offset of each partition, by the name of the source that is Spark's own Kafka source.
    """

    finished: int | None
    unfinished: int | None
    kafka_sources: Mapping[str, Mapping[TopicPartition, Offset]]


def read_checkpoint(location: str) -> SparkCheckpoint:
    """Read the checkpoint of a query.

    Parameters
    ----------
    location : str
        A folder of this machine, also as a ``file:`` URI.

    Raises
    ------
    ConfigurationError
        If it is not there, is not the checkpoint of a query, is not complete, or has a format that is unknown here.
    """
    folder = _folder(location)
    try:
        return _read(folder)
    except OSError as problem:
        raise ConfigurationError(
            f"{location}: {problem.strerror or problem} ({problem.filename}). Name the checkpoint of a query, the "
            f"folder of its option checkpointLocation."
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{location}: it is not UTF-8 text. Name the checkpoint of a query.") from None


def _folder(location: str) -> Path:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", location)
    if scheme is None:
        return Path(location)
    url = urlsplit(location)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return Path(unquote(url.path))
    raise ConfigurationError(
        f"{location}: it is not on this machine. Copy its folders offsets, commits and sources into a folder here, "
        f"and name that folder."
    )


def _read(folder: Path) -> SparkCheckpoint:
    begun, finished = (batches_in(folder / log) for log in ("offsets", "commits"))
    last = finished[-1] if finished else None
    if last is None:
        if begun and begun[-1] > 0:
            raise ConfigurationError(f"{folder}: the folder commits is empty. Copy its files as well.")
        offsets = {file.parent.name: _start(file) for file in sorted((folder / "sources").glob("*/0"))}
    else:
        file = folder / "offsets" / str(last)
        if last not in begun:
            raise ConfigurationError(f"{file}: it is missing, although batch {last} is finished. Copy it as well.")
        text = file.read_text(encoding="utf-8")
        version, *lines = text.split("\n")
        # The first line is metadata.  In version 2, the other lines begin with the name of the source.
        values = [line.partition(":")[2] if version == "v2" and at else line for at, line in enumerate(lines)]
        # Continuous processing writes no metadata.
        _check_whole(file, [values[0] or "-", *values[1:]] if len(values) > 1 else [""])
        offsets = sources_in(text)
        if not offsets:
            raise ConfigurationError(f"{file}: its format is unknown here. Use a newer version of kafka-group.")
    of_kafka = {name: _of_kafka(offset) for name, offset in offsets.items()}
    return SparkCheckpoint(
        finished=last,
        unfinished=begun[-1] if begun and begun[-1] != last else None,
        kafka_sources={name: found for name, found in of_kafka.items() if found is not None},
    )


def _start(file: Path) -> Any:
    """Return the start that a source has stored; None if it is not JSON, as with other sources."""
    # Deliberate: Spark's Kafka source writes a zero byte first, for Spark 2.1.0 (SPARK-19517).
    text = file.read_text(encoding="utf-8").removeprefix("\0").removeprefix("v1\n")
    if "\n" not in text:  # other sources write several objects
        _check_whole(file, [text])
    return _json(text)


def _check_whole(file: Path, values: Sequence[str]) -> None:
    """Refuse a file that was not copied to its end: the offset of a cut line looks like that of another source."""
    if not all(value and (value[0] != "{" or _json(value) is not None) for value in values):
        raise ConfigurationError(f"{file}: it is cut or damaged. Copy it again.")


def _json(text: str) -> Any:
    """Return what JSON means; None for other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_kafka(offset: Any) -> dict[TopicPartition, Offset] | None:
    """Return the offsets that Spark's own Kafka source has written; None for the offset of another source."""
    if not isinstance(offset, dict):
        return None
    found = {}
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict) or not is_name(topic):
            return None
        for number, next_offset in partitions.items():
            if not re.fullmatch(r"\d{1,10}", number) or int(number) > LARGEST_NUMBER:
                return None
            if type(next_offset) is not int or not 0 <= next_offset <= LARGEST_OFFSET:
                return None
            found[TopicPartition(topic, int(number))] = Offset(next_offset)
    return found


def chosen_source(checkpoint: SparkCheckpoint, wanted: str | None) -> Mapping[TopicPartition, Offset]:
    """Return the next offset of each partition of one Kafka source.

    Parameters
    ----------
    checkpoint : SparkCheckpoint
        The checkpoint.
    wanted : str or None
        The name of the source; None if there is only one.

    Raises
    ------
    ConfigurationError
        If the query has no such source, or several and none is named, or the source has no partitions.
    """
    sources = checkpoint.kafka_sources
    known = ", ".join(f"{name} ({_topics(offsets)})" for name, offsets in sources.items())
    if not sources:
        raise ConfigurationError(
            "The checkpoint has no offsets of Spark's own Kafka source, format('kafka'). Name the checkpoint of a "
            "query that reads with it."
        )
    if wanted is None and len(sources) > 1:
        raise ConfigurationError(f"The query has several Kafka sources: {known}. Choose one with --source.")
    name = next(iter(sources)) if wanted is None else wanted
    if name not in sources:
        raise ConfigurationError(f"The query has no Kafka source {name!r}. It has {known}. Correct --source.")
    if not sources[name]:
        raise ConfigurationError(
            f"The Kafka source {name} has not found any partition yet. There is nothing to import."
        )
    return sources[name]


def _topics(offsets: Mapping[TopicPartition, Offset]) -> str:
    return ", ".join(sorted({tp.topic for tp in offsets})) or "no topic"


BEGINNING = -2
"""The beginning of the log in Spark's ``startingOffsets``."""


def starting_offsets(inspection: Cluster, group_id: str, wanted: PartitionChoice) -> dict[TopicPartition, int]:
    """Return where Spark's own Kafka source continues after a group: the value of its option ``startingOffsets``.

    Parameters
    ----------
    inspection : Cluster
        Asks the cluster.
    group_id : str
        The group.
    wanted : PartitionChoice
        The partitions; by default all of the topics that the group has committed.

    Returns
    -------
    dict of TopicPartition to int
        The committed offset of each partition; ``BEGINNING`` without one.

    Raises
    ------
    UnknownGroupError, GroupInUseError
        If the group does not exist, or has members.
    ConfigurationError
        If a topic does not exist, was created again since the commit, or has no offset in this group, or an offset is
        after the end of the log.
    GroupError
        If an open transaction commits offsets of these partitions.
    """
    known = {tp.topic for tp in offsets_at_rest(inspection, group_id)}
    wanted = wanted or dict.fromkeys(known)
    topics = check_exist(inspection, wanted)
    if not known or wanted.keys() - known:
        of = f" of {named(sorted(wanted.keys() - known))}" if known else ""
        raise ConfigurationError(f"The group {group_id!r} has never committed offsets{of}. Check the names.")
    partitions = sorted(
        TopicPartition(name, number)
        for name, numbers in wanted.items()
        for number in (topics[name].leader_epochs if numbers is None else numbers)
    )
    committed = stable_offsets(inspection, group_id, partitions)
    for tp in partitions:
        topic = topics[tp.topic]
        note = read(committed[tp].metadata, tp, topic.cluster_id) if tp in committed else None
        if isinstance(note, CommitNote | BookmarkNote) and differ(note.topic_id, topic.topic_id):
            raise ConfigurationError(
                f"The topic {tp.topic!r} was created again since the group committed {tp}. Leave it out with --topics, "
                f"or set its offsets with 'kafka-group reset'."
            )
    ends = inspection.log_ends(partitions, read_committed=False).found
    beyond = [tp for tp, end in ends.items() if tp in committed and committed[tp].offset > end]
    if beyond:
        raise ConfigurationError(
            f"{listed(beyond)}: the committed offset is after the end of the log. The topic was created again or "
            f"truncated. Find out which, and set the offset with 'kafka-group reset', or leave these out with --topics."
        )
    return {tp: committed[tp].offset if tp in committed else BEGINNING for tp in partitions}
