"""Every error this project raises on purpose.

::

    KafkaGroupError
    ├── ConfigurationError          the query cannot run as it is configured
    │   ├── OptionError             an option is wrong; the text says what to write instead
    │   ├── ColumnError             a column of a write is missing, or has another type
    │   ├── TriggerError            the trigger is once
    │   ├── UnknownTopicError       a subscribed topic does not exist
    │   └── MissingDependencyError  the Python that Spark uses lacks a package
    ├── DataError                   the records in Kafka do not match the offsets
    │   ├── DataLossError           records were deleted before the query read them
    │   ├── OffsetRewindError       the group's committed offset has gone back
    │   ├── BookmarkMovedError      another program has moved the offsets of a bookmark
    │   ├── NoOffsetAtTimeError     the log has no record of the start time or later
    │   ├── OutdatedCheckpointError the checkpoint is older than the query's commits
    │   ├── OffsetFormatError       an offset, or the note beside one, cannot be read
    │   ├── ReadTimeoutError        an executor waited too long for records
    │   ├── MalformedRecordError    a key or a value does not match its format
    │   ├── ConditionError          the condition of the option where fails for a record
    │   ├── RecordBatchTooLargeError  a record batch is too large for an executor
    │   ├── UnreadableBatchError      a record batch is corrupt, or cannot be decompressed
    │   └── UnexpectedRecordError   the client delivered a wrong record: a bug
    └── GroupError                  the cluster or the group refuses a request
        ├── BrokerError             the cluster is unreachable, or no retry cures its error
        ├── AuthenticationError     the credentials are wrong, or a right is missing
        ├── ActiveGroupError        the group has members, so only they may commit
        ├── NotUpgradedError        a classic group refuses members of the new protocol
        ├── SchemaRegistryError     the schema registry does not answer, fails, or refuses
        ├── AssignmentTimeoutError  the group did not assign partitions in time
        ├── DeliveryError           Kafka did not store a record of a write
        ├── SinkTransactionError    a batch that is written exactly once cannot be committed
        ├── NoPartitionsError       the group has more members than partitions
        └── MemberFencedError       another process has taken this member's place

Only the text of an error reaches the user's program from Spark's source process.  So the text contains every fact, the
option or object that decided, and the remedy.  The same facts are attributes, for callers in the same process.  All
errors can be pickled.

This file is long on purpose.  The classes share a tree, pickling and a tone, and the texts should be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar


class KafkaGroupError(Exception):
    """Base of all errors of this project.  Keyword arguments become attributes."""

    def __init__(self, message: str, **attributes: Any) -> None:
        super().__init__(message)
        self.message = message
        self.__dict__.update(attributes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__.copy())

    @classmethod
    def with_message(cls, message: str, **attributes: Any) -> Self:
        """Return an error with the given text."""
        return _rebuild(cls, {"message": message, **attributes})


_Error = TypeVar("_Error", bound=KafkaGroupError)


def _rebuild(cls: type[_Error], attributes: dict[str, Any]) -> _Error:
    error = cls.__new__(cls, attributes["message"])
    error.__dict__.update(attributes)
    return error


# ---------------------------------------------------------------------------------- configuration


class ConfigurationError(KafkaGroupError):
    """The query cannot run as it is configured."""


class OptionError(ConfigurationError):
    """One option is missing, malformed, unknown, or in conflict with another.

    Attributes
    ----------
    option : str
        Name of the option, as a user writes it.
    """

    option: str

    def __init__(self, option: str, problem: str, remedy: str) -> None:
        super().__init__(f"Option {option!r}: {problem} {remedy}", option=option)


class ColumnError(ConfigurationError):
    """A column of a write is missing or has another type, or a row has a value that no record can have.

    Attributes
    ----------
    column : str
        The name of the column.
    """

    column: str

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"Column {column!r}: {problem}", column=column)


class TriggerError(ConfigurationError):
    """The trigger is ``once``.

    Spark does not report the end of its batch, so the source could commit this batch only in the next run.  The trigger
    ``availableNow`` reads the same records, and commits all its batches.
    """

    def __init__(self) -> None:
        super().__init__(
            "Spark runs this query with the trigger once: you have set it, or you have set availableNow and another "
            "source of the query does not support that. Use trigger(availableNow=True), and for such another source "
            "also set spark.sql.streaming.triggerAvailableNowWrapper.enabled to true."
        )


class UnknownTopicError(ConfigurationError):
    """A topic of ``subscribe`` or ``assign`` does not exist or may not be described, or no topic matches a pattern.

    Attributes
    ----------
    topics : list of str
        The topics that were not found.
    """

    topics: list[str]

    def __init__(
        self, topics: list[str], *, pattern: str | None = None, option: str = "subscribe", near: Sequence[str] = ()
    ) -> None:
        if pattern is None:
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            missing = ", ".join(sorted(topics))
            problem = f"Option {option!r}: topic not found: {missing}.{hint} Create it, correct the name"
        else:
            problem = f"Option 'subscribePattern': no topic matches {pattern!r}. Create one, correct the pattern"
        super().__init__(f"{problem}, or give the user of this query the right READ on it.", topics=sorted(topics))


class MissingDependencyError(ConfigurationError):
    """The Python that Spark starts for the source lacks a package."""

    def __init__(self, package: str, executable: str, *, extra: str = "") -> None:
        install = f"Run `pip install 'pyspark-kafka-group[{extra}]'`" if extra else "Install pyspark-kafka-group"
        super().__init__(
            f"The package {package!r} is missing from the Python that Spark uses for data sources "
            f"({executable}). {install} there, or point PYSPARK_PYTHON (or "
            f"spark.pyspark.python) at the environment that has it, on the driver and on all executors.",
            package=package,
            executable=executable,
        )


# ------------------------------------------------------------------------------------------- data


class DataError(KafkaGroupError):
    """The records in Kafka do not match the offsets."""


class DataLossError(DataError):
    """Records were deleted before this query read them: by retention, by a truncation, or with their topic.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.  The partition is -1 for a whole topic.
    lost_from, lost_until : int
        The lost records, ``[lost_from, lost_until)``. -1 is an unknown bound.
    log_start, log_end : int
        The range that the broker has now, ``[log_start, log_end)``. -1 is an unknown bound.
    """

    topic: str
    partition: int
    lost_from: int
    lost_until: int
    log_start: int
    log_end: int

    def __init__(
        self, *, topic: str, partition: int, lost_from: int, lost_until: int, log_start: int, log_end: int
    ) -> None:
        held = f"[{log_start}, {log_end})" if log_end >= 0 else "no such partition"
        if lost_from >= log_end >= 0:
            what = (
                f"offsets [{lost_from}, {lost_until}) are beyond the end of the log, {log_end}. The log was truncated, "
                f"usually by an unclean leader election, or the topic was deleted and created again"
            )
        elif log_start <= lost_from < log_end:
            what = (
                f"offsets [{lost_from}, {lost_until}) were truncated, usually by an unclean leader election. Other "
                f"records have these offsets now"
            )
        else:
            what = (
                f"offsets [{lost_from}, {lost_until}) were deleted before they were read, usually by retention; the "
                f"broker holds {held}"
            )
        super().__init__(
            f"{topic}-{partition}: {what}. Set failOnDataLoss=false to resume at the nearest offset that exists.",
            topic=topic,
            partition=partition,
            lost_from=lost_from,
            lost_until=lost_until,
            log_start=log_start,
            log_end=log_end,
        )

    @classmethod
    def of_start(cls, *, topic: str, partition: int, offset: int, log_start: int, log_end: int) -> DataLossError:
        """Return the error for an offset of ``startingOffsets`` that the log does not have."""
        below = offset < log_start
        return cls.with_message(
            f"{topic}-{partition}: the option 'startingOffsets' names the offset {offset}, but the log has "
            f"[{log_start}, {log_end}). Correct the offset, or set failOnDataLoss=false to start at the nearest one "
            f"that exists.",
            topic=topic,
            partition=partition,
            lost_from=offset if below else log_end,
            lost_until=log_start if below else offset,
            log_start=log_start,
            log_end=log_end,
        )

    @classmethod
    def of_recreated(
        cls, *, topic: str, partition: int, finished: int | None, log_end: int, by_checkpoint: bool = False
    ) -> DataLossError:
        """Return the error for a topic that was deleted and created again.

        ``by_checkpoint`` says that only the checkpoint shows this.  Then it may be the checkpoint of another cluster.
        """
        unread = "that this query had not read" if finished is None else f"from offset {finished} on"
        elsewhere = (
            " If the query has used this checkpoint with another cluster, give it a new one: it begins at the group's "
            "committed offsets."
        )
        return cls.with_message(
            f"{topic}-{partition}: the topic was deleted and created again. The records of the old topic {unread} are "
            f"lost. The offsets of the group and of the checkpoint do not belong to the new topic. Set "
            f"failOnDataLoss=false to read the new topic from its beginning.{elsewhere if by_checkpoint else ''}",
            topic=topic,
            partition=partition,
            lost_from=-1 if finished is None else finished,
            lost_until=-1,
            log_start=0,
            log_end=log_end,
        )

    @classmethod
    def of_restored(cls, *, topic: str, partition: int, finished: int | None, log_end: int) -> DataLossError:
        """Return the error for a log whose leader epochs have gone back."""
        read = "" if finished is None else f"The query has read it up to {finished}. "
        return cls.with_message(
            f"{topic}-{partition}: the leader epochs of this log have gone back, so the cluster was restored from an "
            f"older copy. {read}The log ends at {log_end} now, and other records may have the offsets that the query "
            f"has read. Set failOnDataLoss=false to read it from its beginning.",
            topic=topic,
            partition=partition,
            lost_from=-1,
            lost_until=-1,
            log_start=-1,
            log_end=log_end,
        )

    @classmethod
    def of_recreated_bookmark(cls, topic: str, group_id: str) -> DataLossError:
        """Return the error for a topic that was deleted and created again before a bookmark could commit."""
        return cls.with_message(
            f"Topic {topic!r} was deleted and created again after this bookmark was made. Its offsets do not belong to "
            f"the new topic, so nothing was committed to the group {group_id!r}. This run may have read records of "
            f"both topics. Make a new bookmark: it reads the new topic from its beginning, unless "
            f"startingOffsetsIfNotCommitted is latest.",
            topic=topic,
            partition=-1,
            lost_from=-1,
            lost_until=-1,
            log_start=-1,
            log_end=-1,
        )

    @classmethod
    def of_deleted(cls, topics: list[str]) -> DataLossError:
        """Return the error for topics that were deleted while a query was reading them."""
        names = ", ".join(sorted(topics))
        return cls.with_message(
            f"Topic deleted: {names}. The records that this query had not read are lost. Create the topic again, "
            f"remove it from the subscription (options 'subscribe', 'subscribePattern'), or set failOnDataLoss=false "
            f"to continue with the other topics.",
            topic=names,
            partition=-1,
            lost_from=-1,
            lost_until=-1,
            log_start=-1,
            log_end=-1,
        )


class OutdatedCheckpointError(DataError):
    """The query has committed batches that its checkpoint does not contain, because the checkpoint is an old copy.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    committed : int
        The group's committed offset, which this query has committed.
    finished : int or None
        The end of the partition in the checkpoint; None if it does not contain the partition.
    """

    topic: str
    partition: int
    committed: int
    finished: int | None

    def __init__(self, *, topic: str, partition: int, group_id: str, committed: int, finished: int | None) -> None:
        known = "does not contain the partition" if finished is None else f"ends at {finished}"
        super().__init__(
            f"{topic}-{partition}: this query has committed {committed} to the group {group_id!r}, but its checkpoint "
            f"{known}. There are three possible causes. The checkpoint was restored from an older copy. Another run of "
            f"this query uses a copy of the checkpoint, and has committed meanwhile. Or the option "
            f"asyncProgressTrackingEnabled has left out batches. The next batches would have the numbers of batches "
            f"that ran before, and a sink that relies on these numbers would skip or replace records. Stop the other "
            f"run, if there is one. Then use the newest checkpoint, or a new one: it begins at the group's "
            f"committed offsets and numbers its batches from 0.",
            topic=topic,
            partition=partition,
            committed=committed,
            finished=finished,
        )


class OffsetRewindError(DataError):
    """The group's committed offset is lower than what this query has finished, or was deleted.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    committed : int or None
        The group's committed offset now; None if it was deleted.
    finished : int or None
        The end of what this query has finished.  None if it has read only other partitions of the topic.
    reset : str or None
        The author, time and former offset of a reset with ``kafka-group reset``.  None otherwise.
    """

    topic: str
    partition: int
    committed: int | None
    finished: int | None
    reset: str | None

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        group_id: str,
        committed: int | None,
        finished: int | None,
        reset: str | None = None,
        previous: int | None = None,
    ) -> None:
        now = "gone" if committed is None else f"back at {committed}"
        upto, history = finished, f"this query has finished up to {finished}"
        if previous is not None and (upto is None or previous > upto):
            upto, history = previous, f"the group had committed {previous} before"
        if reset is None:
            expired = "they have expired, " if committed is None else ""
            reason = (
                f"Another program has reset or deleted the group's offsets, {expired}or this query had another group, "
                f"or none, before"
            )
            once = " Do this once if you have changed the group."
        else:
            reason, once = f"It was reset: {reset}", ""
        follow = "begin at startingOffsets, as a new group does"
        text = (
            f"{topic}-{partition}: the committed offset of group {group_id!r} is {now}, but {history}. {reason}. Set "
            f"onOffsetRewind=checkpoint to resume at {upto} and commit it to the group.{once} Or set "
            f"onOffsetRewind=group to "
            + (f"{follow}, but not after {upto}." if committed is None else f"process [{committed}, {upto}) again.")
        )
        if upto is None:
            text = (
                f"{topic}-{partition}: the group {group_id!r} has no offsets of this topic. {reason}. This query "
                f"has read other partitions of the topic, and cannot find out how far the group has processed this "
                f"one. Set onOffsetRewind=checkpoint to read it from its beginning, or onOffsetRewind=group to "
                f"{follow}."
            )
        super().__init__(
            text,
            topic=topic,
            partition=partition,
            group_id=group_id,
            committed=committed,
            finished=finished,
            reset=reset,
        )


class BookmarkMovedError(DataError):
    """Another program has moved the group's offsets between a bookmark's read and its commit.

    Attributes
    ----------
    topic, partition : str, int
        The first topic-partition that was moved.
    before, committed : int or None
        The group's committed offset when the bookmark was made, and now.  None without an offset.
    """

    topic: str
    partition: int
    before: int | None
    committed: int | None

    def __init__(self, *, topic: str, partition: int, group_id: str, before: int | None, committed: int | None) -> None:
        was = "no committed offset" if before is None else f"the committed offset {before}"
        now = "none" if committed is None else committed
        super().__init__(
            f"{topic}-{partition}: the group {group_id!r} had {was} when this bookmark was made, and has {now} now. "
            f"Another run, or a tool, has changed it meanwhile. So this bookmark has committed nothing, and both runs "
            f"may have processed the same records. Make sure that two runs of a job never overlap, and make a new "
            f"bookmark.",
            topic=topic,
            partition=partition,
            before=before,
            committed=committed,
        )


class NoOffsetAtTimeError(DataError):
    """The log has no record of the start time or later.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    time_ms : int
        The time, in milliseconds since 1970.
    option : str
        The option that sets the time.
    """

    topic: str
    partition: int
    time_ms: int
    option: str

    def __init__(self, *, topic: str, partition: int, time_ms: int, option: str) -> None:
        super().__init__(
            f"{topic}-{partition} has no record of the time {time_ms} ({option}, in milliseconds since 1970) or later. "
            f"Set startingOffsetsByTimestampStrategy=latest to start such partitions at their end, or an earlier time.",
            topic=topic,
            partition=partition,
            time_ms=time_ms,
            option=option,
        )


class OffsetFormatError(DataError):
    """An offset of the checkpoint, or a note beside a committed one, is damaged or of another version."""

    def __init__(
        self,
        problem: str,
        remedy: str = "Use the version of pyspark-kafka-group that wrote it (or a newer one), or a new checkpoint.",
        *,
        what: str = "The offset in the checkpoint",
    ) -> None:
        super().__init__(f"{what} cannot be read: {problem} {remedy}")


class ReadTimeoutError(DataError):
    """The task received no record and no end of partition for the whole poll timeout.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    position, until : int
        The next offset to read, and the end of the range (exclusive).
    last_error : str
        The last error of the Kafka client during the wait; empty if there was none.
    """

    topic: str
    partition: int
    position: int
    until: int
    last_error: str

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        position: int,
        until: int,
        timeout_s: float,
        last_error: str = "",
    ) -> None:
        super().__init__(
            f"{topic}-{partition}: no records arrived for {timeout_s:g} s at offset {position}, and the range ends at "
            f"{until}. The broker that leads the partition is slow, or this executor cannot reach it. "
            f"Check the network from the executors, or raise kafkaConsumer.pollTimeoutMs."
            + (f" The client's last error: {last_error}." if last_error else ""),
            topic=topic,
            partition=partition,
            position=position,
            until=until,
            last_error=last_error,
        )


class MalformedRecordError(DataError):
    """A key or a value does not match its format, and ``malformedRecords=fail``.

    Attributes
    ----------
    topic, partition, offset : str, int, int
        The record.
    column : str
        The column: ``key`` or ``value``.
    reason : str
        The reason.  Never contains the key or the value.
    """

    topic: str
    partition: int
    offset: int
    column: str
    reason: str

    def __init__(self, *, topic: str, partition: int, offset: int, column: str, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the {column} of the record at offset {offset} is malformed: {reason}. Correct "
            f"{column}Format or its schema, or set malformedRecords=null or malformedRecords=deadLetter for such "
            f"records.",
            topic=topic,
            partition=partition,
            offset=offset,
            column=column,
            reason=reason,
        )


class ConditionError(DataError):
    """The condition of the option ``where`` fails for a record: a cast, an overflow, or a division by zero.

    Attributes
    ----------
    topic, partition, offset : str, int, int
        The record.
    condition : str
        The option.
    """

    topic: str
    partition: int
    offset: int
    condition: str

    def __init__(self, *, topic: str, partition: int, offset: int, condition: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the option 'where' fails for the record at offset {offset}: a cast, an overflow or "
            f"a division by zero in {condition!r}. Use TRY_CAST, or exclude such records before that part with AND.",
            topic=topic,
            partition=partition,
            offset=offset,
            condition=condition,
        )


class RecordBatchTooLargeError(DataError):
    """A record batch is larger than a reader may hold, either as it is sent or after decompression.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    offset : int
        The beginning of the batch, or the next offset to read of its partition.
    limit_bytes : int
        The most bytes that a reader may hold of one batch.
    """

    topic: str
    partition: int
    offset: int
    limit_bytes: int

    def __init__(
        self, *, topic: str, partition: int, offset: int, limit_bytes: int, found: str, until: int | None = None
    ) -> None:
        remedy = (
            "delete the log up to the end of this batch with kafka-delete-records.sh, and set failOnDataLoss=false to "
            "skip the deleted records"
            if until is None
            else f"set failOnDataLoss=false to continue without the offsets [{offset}, {until})"
        )
        super().__init__(
            f"{topic}-{partition}: the record batch at offset {offset} is too large for a reader: {found}, and "
            f"kafka.receive.message.max.bytes allows {limit_bytes}. If producers may send batches of this size, raise "
            f"kafka.receive.message.max.bytes, and give the Python workers of the executors twice as much memory. "
            f"Otherwise correct the producer. Then {remedy}.",
            topic=topic,
            partition=partition,
            offset=offset,
            limit_bytes=limit_bytes,
        )


class UnreadableBatchError(DataError):
    """A record batch cannot be read: it is corrupt, cannot be decompressed, or has a malformed record.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    offset : int
        The first offset that cannot be read.
    """

    topic: str
    partition: int
    offset: int

    def __init__(self, *, topic: str, partition: int, offset: int, until: int | None, reason: str) -> None:
        what = f"offsets [{offset}, {until})" if until is not None else f"the record batch at offset {offset}"
        remedy = (
            "set failOnDataLoss=false to continue without these records"
            if until is not None
            else "move the group past this batch with `kafka-group reset`"
        )
        super().__init__(
            f"{topic}-{partition}: {what} cannot be read: {reason}. Correct the producer or the broker's disk, and "
            f"{remedy}.",
            topic=topic,
            partition=partition,
            offset=offset,
        )


class UnexpectedRecordError(DataError):
    """The client delivered a record outside the range of the task, or out of order.  This is a bug.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition of the task.
    position : int
        The lowest offset that the next record may have.
    """

    topic: str
    partition: int
    position: int

    def __init__(self, *, topic: str, partition: int, position: int, found: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the next record should have offset {position} or a later one, but the Kafka client "
            f"delivered {found}. This is a bug in pyspark-kafka-group or in librdkafka: please report it with "
            f"the versions of both. Spark did not get this record. You can start the query again.",
            topic=topic,
            partition=partition,
            position=position,
        )


# ------------------------------------------------------------------------------------------ group


class GroupError(KafkaGroupError):
    """The cluster or the group refuses a request."""


class BrokerError(GroupError):
    """The cluster cannot be reached, or answers with an error that no retry cures.  The text contains the remedy."""


class NotUpgradedError(GroupError):
    """The group has members of the classic protocol, and its coordinator refuses members of the new one.

    The coordinator cannot keep the data that librdkafka's cooperative-sticky puts into assignments (KAFKA-18134).
    """

    def __init__(self, group_id: str, text: str) -> None:
        super().__init__(
            f"The group {group_id!r} has members of the classic protocol, and its coordinator refuses members of the "
            f"new one ({text}). It can upgrade a group with members only while their assignments carry no user data. "
            f"Those of librdkafka's cooperative-sticky carry some once partitions have moved. Stop all members, "
            f"then start them with kafka.group.protocol=consumer: their offsets and checkpoints stay as they are."
        )


class AuthenticationError(GroupError):
    """The cluster refuses the credentials, or the user lacks a right.  The text names the right, or what to check."""


class SchemaRegistryError(GroupError):
    """The schema registry does not answer, fails, or refuses.  The text contains its answer and the remedy."""


class ActiveGroupError(GroupError):
    """The group has members, and accepts offsets only from them: not from a query with ``assign`` or a bookmark."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"Option 'assign': the group {group_id!r} has members, and accepts offsets only from them. Use subscribe "
            f"to share its partitions, give this query its own group, or remove kafka.group.id to keep the offsets "
            f"only in the checkpoint. If the members have just stopped, wait until the group has removed them "
            f"(kafka-consumer-groups --describe --members shows them)."
        )

    @classmethod
    def of_bookmark(cls, group_id: str, members: list[str]) -> ActiveGroupError:
        """Return the error for a bookmark; ``members`` are the client ids of the members."""
        names = ", ".join(sorted({*members})[:5]) or "it is rebalancing"
        return cls.with_message(
            f"The group {group_id!r} has members ({names}), and accepts offsets only from them, so a bookmark cannot "
            f"commit. Stop them, or give the bookmark its own group (option 'kafka.group.id'). If they have just "
            f"stopped, wait until the group has removed them."
        )


class AssignmentTimeoutError(GroupError):
    """The group did not decide in time which partitions this query gets.

    This happens when a run with ``availableNow`` begins, or when a batch runs again after a restart.
    Usually another member does not give its partitions back; ``kafka-consumer-groups --describe --members`` shows
    which.
    """


class DeliveryError(GroupError):
    """Kafka did not store a record of a write.

    Attributes
    ----------
    topic : str
        The topic; empty if unknown.
    partition : int
        The partition; -1 if it was not chosen yet.
    code : str
        librdkafka's name of the error.
    """

    topic: str
    partition: int
    code: str

    def __init__(self, *, topic: str, partition: int, code: str, text: str, remedy: str) -> None:
        where = f"{topic}-{partition}" if partition >= 0 else topic or "the cluster"
        super().__init__(
            f"{where}: a record could not be written: {code} ({text}). {remedy}",
            topic=topic,
            partition=partition,
            code=code,
        )


class SinkTransactionError(GroupError):
    """A batch with ``delivery=exactly-once`` cannot be committed.  The text says what is in Kafka."""


class NoPartitionsError(GroupError):
    """The group has assigned all partitions to other members, so a run with ``availableNow`` has none."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"The group {group_id!r} has assigned no partition to this run with availableNow. Other members "
            f"have all partitions, and read them, because the group has at least as many members as partitions. Start "
            f"fewer members, or add partitions. kafka-consumer-groups --describe --members shows the members."
        )


class MemberFencedError(GroupError):
    """Another process with the same ``kafka.group.instance.id`` or checkpoint has taken this member's place.

    Stop one of the two.  Give each query its own instance id and its own checkpoint.
    """
