"""Errors of landing, with the object that failed and the remedy.  Other errors are those of :mod:`.stores.errors`."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark_kafka_group.offsets.errors import ConfigurationError, KafkaGroupError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores.errors import LakeConflictError, OtherTopicError, RefusedRecordError, TableBehindError
from pyspark_kafka_group.stores.lake_history import Lost, Spans

_PASSWORD = re.compile(r"(?<=://)[^\s@]*:[^\s]*@")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class LandingError(KafkaGroupError):
    """Files of a batch cannot be written, or the table cannot be reached.  No record is lost: the batch runs again."""


class RemovedFilesError(LandingError):
    """Files of a batch were removed before they were committed."""


class TableChangedError(KafkaGroupError):
    """The table was created again, or has other columns or partitions, since the query started."""


class UnsupportedTableError(ConfigurationError):
    """The table has a feature, a property or a column that landing would write wrongly."""


def without_password(text: str) -> str:
    """Return a text without the user and the password of URLs."""
    return _PASSWORD.sub("***@", text)


def write_error(problem: OSError) -> LandingError:
    """Return the error of a task that cannot write its file."""
    remedy = "Check that the folder exists, and that the executors may write there."
    if problem.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(problem):
        remedy = "Free space there."
    return LandingError(
        f"Landing: a task cannot write a file of the table, so nothing of this batch was committed: {problem}. "
        f"{remedy} Then start the query again: it repeats the batch."
    )


def unreachable(table: str, problem: BaseException, attempts: int) -> LandingError:
    """Return the error for a table that fails in each attempt of a batch."""
    # deltalake marks the causes of an error by red arrows, as for a terminal.
    what = " ".join(_COLOURS.sub("", str(problem)).replace(" ↳", ":").split()) or type(problem).__name__
    what = without_password(what)
    times = f"{attempts} attempts" if attempts > 1 else "1 attempt"
    return LandingError(
        f"{table} could not be read or committed in {times}: {type(problem).__name__}: {what}. Check its address, the "
        f"credentials and the network. Then start the query again: the batch runs again, and lands once."
    )


@contextmanager
def reaching(table: str, conflicts: Callable[[Exception], bool] | None = None) -> Iterator[None]:
    """Turn any other error of a table than ours into `LandingError`.

    ``conflicts`` tells whether an error means that another program has committed, in a call that must be alone.
    """
    try:
        yield
    except KafkaGroupError:
        raise
    except Exception as e:  # Deliberate: of Rust, of HTTP, of a database, of a file system
        if conflicts is not None and conflicts(e):
            raise LandingError(
                f"{table} got another commit meanwhile, so nothing was changed. Stop all writers, and call this again."
            ) from e
        raise unreachable(table, e, 1) from e


def created_again(table: str, known: str, found: str) -> TableChangedError:
    """Return the error for a table with another id than at the start."""
    return TableChangedError(
        f"{table} was created again since the query started: its id was {known}, and is {found}. Nothing of this batch "
        f"was committed. To fill the new table, start the query with a new group and a new checkpoint."
    )


def changed(table: str, what: str) -> TableChangedError:
    """Return the error for a table whose columns or partitions are not those of the start."""
    return TableChangedError(
        f"The {what} of {table} were changed since the query started, so its files do not fit. Nothing of this batch "
        f"was committed. Start the query again: it lands the batch by the new {what}."
    )


def replaced(table: str, tps: Iterable[TopicPartition]) -> TableChangedError:
    """Return the error for a table that still has the offsets of the one that it has replaced."""
    named = sorted(tps)
    calls = " and ".join(f"forget({topic!r})" for topic in dict.fromkeys(tp.topic for tp in named))
    return TableChangedError(
        f"{table} was replaced or overwritten, and still has the offsets of its former content "
        f"({', '.join(map(str, named))}). Nothing of this batch was committed. To fill it anew: stop all writers, call "
        f"{calls} once, and start the query with a new group and a new checkpoint."
    )


def other_types(table: str, columns: Iterable[str]) -> ConfigurationError:
    """Return the error for columns of types that no table has."""
    return ConfigurationError(
        f"{table}: a table cannot have columns of these types: {', '.join(columns)}. Leave them out of valueSchema, or "
        f"use LakeTable, and convert them in Spark."
    )


def unsupported(table: str, features: Iterable[str]) -> UnsupportedTableError:
    """Return the error for features that landing does not write."""
    return UnsupportedTableError(
        f"{table} uses what landing would write wrongly: {', '.join(sorted(features))}. Use a table without it, or "
        f"write this table with LakeTable."
    )


def property_needed(uri: str, features: Iterable[str], properties: Mapping[str, str]) -> UnsupportedTableError:
    """Return the error for a Delta table to which deltalake would add a feature with a property."""
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in sorted(properties.items()))
    return UnsupportedTableError(
        f"DeltaLanding: {uri} has the features {', '.join(features)}. The package deltalake cannot set a property of "
        f"such a table without adding the feature variantType, so nothing was committed. Run this once in Spark, and "
        f"start the query again: ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ({pairs})"
    )


def other_columns(table: str, problems: Iterable[str]) -> UnsupportedTableError:
    """Return the error for columns of the source that the table does not have like this."""
    return UnsupportedTableError(
        f"{table} does not have the columns of the source: {'; '.join(problems)}. Add or change columns of the table, "
        f"or select others with the option 'columns'. Then start the query again."
    )


def refused_nulls(table: str, columns: Iterable[str]) -> RefusedRecordError:
    """Return the error for nulls in columns that do not take them."""
    named = ", ".join(sorted(columns))
    return RefusedRecordError.with_message(
        f"{table} does not take null in: {named}. A record of this batch has none there, so nothing was committed. "
        f"Let the columns of the table be null, or leave out such records with the option 'where'."
    )


def refused_time(topic: str, partition: int, offset: int) -> RefusedRecordError:
    """Return the error for a timestamp that has no partition."""
    return RefusedRecordError.with_message(
        f"Landing: the timestamp of the record of {topic}-{partition} at offset {offset} is not of the years 1 to "
        f"9999, so it has no day, by which the table is partitioned. Nothing of this batch was committed. Leave out "
        f"such records with the option 'where', or use a table that is not partitioned by day."
    )


def conflict(table: str, patience_s: float, attempts: int) -> LakeConflictError:
    """Return the error for a batch that has lost against other commits."""
    return LakeConflictError(
        f"{table}: other commits have won {attempts} times in {patience_s:g} s, so nothing of this batch was "
        f"committed. The batch runs again when the query starts again. Use longer triggers or fewer applications. Or "
        f"set patience_s higher."
    )


def table_behind(table: str, found: Mapping[TopicPartition, tuple[int | None, int]]) -> TableBehindError:
    """Return the error for partitions whose stored offset is below what the group has finished."""
    named = sorted(found.items())
    texts = "; ".join(
        f"{tp} is finished up to {finished}, but the table has {'no offset' if stored is None else stored}"
        for tp, (stored, finished) in named
    )
    by_topic: dict[str, dict[int, int]] = {}
    for tp, (_, finished) in named:
        by_topic.setdefault(tp.topic, {})[tp.partition] = finished
    calls = ", ".join(f"set_offsets({topic!r}, {offsets})" for topic, offsets in by_topic.items())
    return TableBehindError(
        f"{table} is behind its group: {texts}. Nothing of this batch was committed. The table is new or was created "
        f"again, a backup of it was restored, or the group's offsets were set forward. To land the missing records: "
        f"stop all queries of the group, set the group's offsets to the table's, or to the beginning, and start with "
        f"onOffsetRewind=group. To continue without them, stop all queries, and call {calls} once."
    )


def gaps(table: str, found: Spans) -> str:
    """Return the warning for batches that begin behind the offsets of their table."""
    named = "; ".join(f"{tp} {span.start} to {span.until - 1}" for tp, span in sorted(found.items()))
    return (
        f"{table}: these offsets were left out, and count as landed from now on: {named}. The group is another one, "
        "was set forward, or has lost them. A new group begins where the table ends if you set its offsets before its "
        "first start (kafka-group reset)."
    )


def rolled_back(table: str, gone: Lost) -> TableBehindError:
    """Return the error for a table that a rollback has set back."""
    named = sorted(gone.items())
    found = "; ".join(f"{tp} {', '.join(f'{s.start} to {s.until - 1}' for s in spans)}" for tp, spans in named)
    first = ", ".join(f"{tp} {spans[0].start}" for tp, spans in named)
    return TableBehindError(
        f"{table} was rolled back, and has lost records that the group has finished: {found}. Nothing of this batch "
        f"was committed. To land them again: stop all queries of the group, set the group's offsets to the first lost "
        f"ones ({first}) or lower, and start with onOffsetRewind=group. Records that the table still has are left out. "
        f"To continue without them: stop all queries, and call accept_rollback() once."
    )


def rolled_back_long_ago(table: str) -> TableBehindError:
    """Return the error for a rollback of which no snapshot says what is lost."""
    return TableBehindError(
        f"{table} was rolled back, and the snapshots that would show what it has lost have expired. Nothing of this "
        f"batch was committed. Fill another table, with a new group and a new checkpoint."
    )


def other_topic(table: str, topic: str, stored: str, found: str) -> OtherTopicError:
    """Return the error for a topic with two topic ids."""
    return OtherTopicError(
        f"{table} has records of another topic {topic!r} (topic id {stored}) than the one that the query reads (topic "
        f"id {found}). Nothing of this batch was committed. Use another table for this topic. Or, if the topic was "
        f"created again: stop all writers, give the old rows another name (UPDATE ... SET topic = '{topic}-old' WHERE "
        f"topic = '{topic}'), call forget({topic!r}) once, and start them again."
    )


def foreign_rows(table: str, tps: Iterable[TopicPartition]) -> ConfigurationError:
    """Return the error for records that another writer has written."""
    named = ", ".join(map(str, sorted(tps)))
    return ConfigurationError(
        f"{table} has rows of this batch's records ({named}) that landing has not written: LakeTable or another "
        f"program has. So it is unknown which records are in the table, and nothing was committed. Fill a topic of a "
        f"table either by LakeTable or by landing. To change, use another table, or start a new group where the "
        f"table's rows end: LakeTable.starting_offsets()."
    )


def removed_files(table: str, paths: Iterable[str]) -> RemovedFilesError:
    """Return the error for files that were removed before their commit."""
    return RemovedFilesError(
        f"{table}: files of this batch were removed before they were committed: {', '.join(sorted(paths))}. Another "
        f"group lands the same records, or a clean-up removes new files. Nothing was committed. Start the query again."
    )
