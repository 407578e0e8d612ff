"""Errors of writes to tables, and the errors of a database that concern single rows.

Only the text of an error reaches your program from an executor.  The details of PostgreSQL's errors show data ("Failing
row contains ..."), but other people may read the logs.  So an error contains only the names of the condition, the
table, the column and the constraint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.stores.lake_history import Lost

# Data exceptions, constraints, the condition of a view, errors of triggers, and exceeded limits: a row too big for its
# table, a key too long for its index, or a document nested too deeply.
_OF_ROWS = re.compile(r"2[23]...|44000|P0001|5400[01]")

# PostgreSQL names the column of a COPY only in its context, before the value.
_COPY_COLUMN = re.compile(r"^COPY [^\n]*?, line \d+, column ([^\n:]+)", re.MULTILINE)

# sqlite3's names of primary result codes: CONSTRAINT, MISMATCH, TOOBIG.
_SQLITE_OF_ROWS = {19, 20, 18}


class PartitionsLockedError(KafkaGroupError):
    """Another writer has locked the rows of the offset table for longer than ``lock_timeout_s``.

    Mostly that writer is suspended, or its machine is unreachable, in the middle of its transaction.  Nothing was
    written.
    """


class DatabaseError(KafkaGroupError):
    """The database cannot be reached, or refuses or ends the connection.  Nothing was written."""


class TaskEndedError(KafkaGroupError):
    """Spark has killed the task, perhaps before its last row.  Nothing was written."""


class TransactionEndedError(KafkaGroupError):
    """The user's function has ended the transaction of the write."""


class TableBehindError(KafkaGroupError):
    """The table lacks rows that the group has finished.  Mostly the database was restored, or the table rolled back."""

    @classmethod
    def of(cls, table: str, behind: Mapping[TopicPartition, tuple[Offset | None, Offset]]) -> TableBehindError:
        """Return the error for partitions, with the stored offset (None without a row) and the finished one."""
        named = sorted(behind.items())
        found = "; ".join(
            f"{tp} is finished up to {finished}, but the table has {'no row' if stored is None else stored}"
            for tp, (stored, finished) in named
        )
        by_topic: dict[str, dict[int, int]] = {}
        for tp, (_, finished) in named:
            by_topic.setdefault(tp.topic, {})[tp.partition] = finished
        calls = ", ".join(f"set_offsets({topic!r}, {offsets})" for topic, offsets in by_topic.items())
        return cls(
            f"OffsetTable: {table} is behind its group: {found}. Nothing of these partitions was written. There are "
            f"three possible causes. The database was restored, or a standby that was behind has taken over, and rows "
            f"are missing in it. Or a batch was finished without write(), which must be called for each batch, even "
            f"an empty one. Or the table is new, but the group has run before. To read the missing records again: stop "
            f"all queries of the group, set the group's offsets to those of offsets(), or to the beginning for "
            f"partitions without a row, and start with onOffsetRewind=group. To continue without them: {calls}."
        )

    @classmethod
    def of_lake(cls, table: str, gone: Lost) -> TableBehindError:
        """Return the error for a lake table, with the lost offsets of each partition."""
        named = sorted(gone.items())
        found = "; ".join(f"{tp} {', '.join(f'{s.start} to {s.until - 1}' for s in spans)}" for tp, spans in named)
        first = ", ".join(f"{tp} {spans[0].start}" for tp, spans in named)
        return cls(
            f"LakeTable: {table} was rolled back, and has lost the rows of records that the group has finished. It had "
            f"rows of these offsets: {found}. Nothing of this batch was written. To write them again: stop all queries "
            f"of the group, set the group's offsets to the first lost ones ({first}) or lower, and start with "
            f"onOffsetRewind=group. Rows that the table still has are skipped. To continue without them: stop all "
            f"queries of the group, and call LakeTable({table!r}).accept_rollback(spark) once."
        )


class OtherTopicError(KafkaGroupError):
    """The table has the offsets of another topic of the same name."""

    @classmethod
    def of(cls, table: str, tp: TopicPartition, stored: str, found: str) -> OtherTopicError:
        """Return the error for a partition with two topic ids."""
        return cls(
            f"OffsetTable: {table} has offsets of another topic {tp.topic!r} (topic id {stored}) than the one that the "
            f"query reads (topic id {found}), so it is unknown which of its records are written. Nothing of {tp} was "
            f"written. If the topic was deleted and created again, stop all writers, call forget({tp.topic!r}), set "
            f"the group's offsets of the topic to its beginning (kafka-group reset --to start), and start them again "
            f"with a new checkpoint. If it is in another cluster, give it an OffsetTable with another consumer name."
        )

    @classmethod
    def of_lake(cls, table: str, topic: str, stored: str, found: str, name: str) -> OtherTopicError:
        """Return the error for a topic with two topic ids, with the name of the table's property for its id."""
        return cls(
            f"LakeTable: {table} has rows of another topic {topic!r} (topic id {stored}) than the one that the query "
            f"reads (topic id {found}), so it is unknown which of its records are written. Nothing of this batch was "
            f"written. Use another table for this topic. Or, if the topic was created again, stop all writers, give "
            f"the old rows another name with UPDATE {table} SET topic = '{topic}-old' WHERE topic = '{topic}', run "
            f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{name}'), set the group's offsets of the topic to its "
            f"beginning (kafka-group reset --to start), and start the writers again with a new checkpoint."
        )


class OtherGroupError(KafkaGroupError):
    """The table has the offsets of another consumer group under the same consumer name."""

    @classmethod
    def of(cls, table: str, consumer: str, tp: TopicPartition, stored: str, found: str) -> OtherGroupError:
        """Return the error for a partition that two groups write."""
        return cls(
            f"OffsetTable: in {table}, the offset of {tp} under the name {consumer!r} belongs to the group {stored!r}, "
            f"and this query reads for the group {found!r}. Two groups under one name would each skip the records that "
            f"the other has written. Nothing of {tp} was written. If this query does other work, give its OffsetTable "
            f"another consumer name. If it replaces the queries of {stored!r}, stop all, set the offsets of the group "
            f"{found!r} to those of offsets(), and call take_over({tp.topic!r}, {found!r}) once. Else the records "
            f"between the two are never written."
        )


class LateRowsError(KafkaGroupError):
    """A row comes from a record outside of the batch: nothing shows whether it was written."""

    @classmethod
    def of(cls, tp: TopicPartition, offset: int, planned: ReadRange | None) -> LateRowsError:
        """Return the error for a row, with the batch's range of its partition."""
        reads = f"offsets {planned.start} to {planned.until - 1} of it" if planned is not None else "nothing of it"
        return cls(
            f"OffsetTable: a row of {tp}, offset {offset} is not of a record of this batch, which reads {reads}. A "
            f"stateful operator, such as a stream-stream join or transformWithState, has kept the row from an earlier "
            f"batch. It is unknown whether such rows are written. Nothing of {tp} was written. Write the rows before "
            f"such an operator, or write its result with a sink that uses the batch id."
        )


class LakeConflictError(KafkaGroupError):
    """Other commits to a lake table have won against a batch for longer than ``patience_s``.  Nothing was written."""

    @classmethod
    def of(cls, table: str, patience_s: float, attempts: int) -> LakeConflictError:
        """Return the error for a batch that was tried several times."""
        return cls(
            f"LakeTable: other commits to {table} have won {attempts} times in {patience_s:g} s, so nothing of this "
            f"batch was written. The batch runs again when the query starts again. Use longer triggers or fewer "
            f"applications. If maintenance changes the table all the time, run it less often. Or set patience_s of "
            f"LakeTable higher."
        )


class RefusedRecordError(KafkaGroupError):
    """The target refuses the rows of a record."""

    @classmethod
    def of(cls, tp: TopicPartition, offset: int, problem: str) -> RefusedRecordError:
        """Return the error for a record."""
        return cls(
            f"OffsetTable: the target refuses the rows of {tp}, offset {offset}: {problem}. Nothing of {tp} was "
            f"written in this batch. Correct the query or the target. Or pass refused=... to write(), a function that "
            f"sets such rows aside, for example into('refused', columns=['topic', 'partition', 'offset', 'error'])."
        )

    @classmethod
    def of_lake(cls, table: str, problem: str) -> RefusedRecordError:
        """Return the error for a lake table, whose format does not say which record it was."""
        return cls(
            f"LakeTable: {table} does not take a row of this batch: {problem}. Nothing of this batch was written. "
            f"Correct the query or the table. Or write such rows to a second LakeTable without the constraint: select "
            f"them with where() before write(), and the other rows with coalesce(not (...), true): a condition may be "
            f"null."
        )


class CopyError(KafkaGroupError):
    """PostgreSQL refuses a COPY.  The text omits its details, which show the data.

    Attributes
    ----------
    sqlstate : str
        PostgreSQL's code for the error.
    """

    sqlstate: str


class RefusedValueError(KafkaGroupError):
    """The target would store another value."""


def refusal(error: Exception) -> str | None:
    """Return why the target refuses some rows; None if the error does not concern rows."""
    if isinstance(error, RefusedValueError):
        return error.message.rstrip(".")
    if isinstance(error, CopyError):
        return error.message.rstrip(".") if _OF_ROWS.fullmatch(error.sqlstate) else None
    driver = getattr(error, "orig", None) or error  # SQLAlchemy's errors wrap those of the driver
    state, code = getattr(driver, "sqlstate", None), getattr(driver, "sqlite_errorcode", None)
    if state is not None and _OF_ROWS.fullmatch(state):
        return named(driver)
    if code is not None and code & 0xFF in _SQLITE_OF_ROWS:
        return str(driver)  # SQLite's texts contain tables and columns, but no values
    # psycopg itself refuses a zero byte in a text, before the server gets it.
    kind = type(driver)
    return named(driver) if (kind.__module__, kind.__name__) == ("psycopg", "DataError") else None


def named(error: BaseException, columns: Sequence[str] = ()) -> str:
    """Return the names in an error of psycopg, without data.

    Parameters
    ----------
    error : BaseException
        The error.
    columns : sequence of str
        The copied columns.  The error's context may name one of them, besides data.
    """
    diag = getattr(error, "diag", None)
    found = [f"{type(error).__name__} ({getattr(error, 'sqlstate', None) or 'no SQLSTATE'})"]
    for what in ("table", "column", "constraint"):
        name = getattr(diag, f"{what}_name", None)
        if name:
            found.append(f"{what} {name}")
    if getattr(diag, "column_name", None) is None:
        copied = _COPY_COLUMN.findall(getattr(diag, "context", None) or "")
        found += [f"column {name}" for name in copied[:1] if name in columns]
    return ", ".join(found)
