"""Every error this project raises on purpose.

::

    KafkaGroupError
    ├── ConfigurationError          what the user asked for cannot be done
    │   ├── OptionError             one option: what is wrong with it, what to write instead
    │   ├── ColumnError             one column of a write: it is missing, or has another type
    │   ├── UnknownTopicError       a subscribed topic does not exist
    │   └── MissingDependencyError  the Python that Spark uses lacks a package
    ├── DataError                   the data is not what the offsets promise
    │   ├── DataLossError           records were deleted before they were read
    │   ├── OffsetRewindError       the group's committed offset went backwards
    │   ├── BookmarkMovedError      somebody else has committed what a bookmark was to commit
    │   ├── NoOffsetAtTimeError     no record is as late as the time to start at
    │   ├── OutdatedCheckpointError the checkpoint is older than what the query has committed
    │   ├── OffsetFormatError       an offset of the checkpoint cannot be understood
    │   ├── ReadTimeoutError        an executor waited too long for records
    │   ├── MalformedRecordError    a key or a value is not what its format says
    │   ├── RecordBatchTooLargeError  a record batch that an executor has no room for
    │   └── UnexpectedRecordError   a record that was not asked for: a bug
    └── GroupError                  the cluster or the group refuses
        ├── BrokerError             unreachable, or answers with an error nobody expects
        ├── AuthenticationError     wrong credentials, or not allowed
        ├── ActiveGroupError        the group has members, and nobody else may commit
        ├── NotUpgradedError        a classic group lets no member of the new protocol in
        ├── SchemaRegistryError     the schema registry does not answer, fails, or refuses
        ├── AssignmentTimeoutError  the group did not decide in time who gets what
        ├── DeliveryError           Kafka did not take a record that was to be written
        ├── SinkTransactionError    a batch that is written exactly once cannot be committed
        ├── NoPartitionsError       the group has more members than partitions
        └── MemberFencedError       another process took this member's place

Only the text survives the way from Spark's source process to the user's program, so the text carries
everything: what was found, which option or object decided, and what to do now.  The same facts are
attributes, for callers in the same process.  All of them can be pickled.

One file, although a long one: the classes share a tree, a way to be pickled and a tone, and whoever adds an error or
mends a text has to see its neighbours.
"""

from __future__ import annotations

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
        """Return an error with a text of its own."""
        return _rebuild(cls, {"message": message, **attributes})


_Error = TypeVar("_Error", bound=KafkaGroupError)


def _rebuild(cls: type[_Error], attributes: dict[str, Any]) -> _Error:
    error = cls.__new__(cls, attributes["message"])
    error.__dict__.update(attributes)
    return error


# ---------------------------------------------------------------------------------- configuration


class ConfigurationError(KafkaGroupError):
    """What the user asked for cannot be done as it stands."""


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
    """A column of a write is missing, has another type, or a row has a value that no record can have.

    Attributes
    ----------
    column : str
        The name of the column.
    """

    column: str

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"Column {column!r}: {problem}", column=column)


class UnknownTopicError(ConfigurationError):
    """A topic of ``subscribe`` or ``assign`` does not exist or may not be described, or none matches a pattern.

    Attributes
    ----------
    topics : list of str
        The topics that were not found.
    """

    topics: list[str]

    def __init__(self, topics: list[str], *, pattern: str | None = None, option: str = "subscribe") -> None:
        if pattern is None:
            problem = f"Option {option!r}: topic not found: {', '.join(sorted(topics))}. Create it, correct the name"
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
    """The records in Kafka are not what the offsets promise."""


class DataLossError(DataError):
    """Records were deleted before this query read them: by retention, by a truncation, or with their topic.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition; -1 where a whole topic is gone.
    lost_from, lost_until : int
        The lost records, the half-open range ``[lost_from, lost_until)``; -1 where a bound is not known.
    log_start, log_end : int
        What the broker holds now, ``[log_start, log_end)``; -1 where it is not known.
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
        held = f"[{log_start}, {log_end})" if log_end >= 0 else "no such partition any more"
        if lost_from >= log_end >= 0:
            what = (
                f"offsets [{lost_from}, {lost_until}) are behind the end of the log, {log_end}. It was truncated, "
                f"most often by an unclean leader election, or the topic was deleted and created again"
            )
        elif log_start <= lost_from < log_end:
            what = (
                f"offsets [{lost_from}, {lost_until}) were truncated, most often by an unclean leader election; what "
                f"stands there now are other records"
            )
        else:
            what = (
                f"offsets [{lost_from}, {lost_until}) are gone before they were read; the broker holds "
                f"{held}. They were deleted, most often by retention"
            )
        super().__init__(
            f"{topic}-{partition}: {what}. Set failOnDataLoss=false to go on at the nearest offset that exists.",
            topic=topic,
            partition=partition,
            lost_from=lost_from,
            lost_until=lost_until,
            log_start=log_start,
            log_end=log_end,
        )

    @classmethod
    def of_recreated(cls, *, topic: str, partition: int, finished: int | None, log_end: int) -> DataLossError:
        """Return the error for a topic that was deleted and created again."""
        since = "What this query" if finished is None else f"From offset {finished} on, what this query"
        return cls.with_message(
            f"{topic}-{partition}: the topic was deleted and created again. {since} had not read of the old topic is "
            f"gone, and the offsets of the group and of the checkpoint mean nothing in the new one. Set "
            f"failOnDataLoss=false to read the new topic from its beginning.",
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
        read = "" if finished is None else f", which it had read up to {finished},"
        return cls.with_message(
            f"{topic}-{partition}: the leader epochs of this log have gone back, so the cluster was restored from an "
            f"older copy. The log{read} ends at {log_end} now, and other records may stand in place of those that "
            f"were read. Set failOnDataLoss=false to go on at the end of the log if it is shorter now, and else to "
            f"read it from its beginning.",
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
            f"Topic {topic!r} was deleted and created again after this bookmark was made. Its offsets mean nothing in "
            f"the new topic, so nothing was committed to the group {group_id!r}. What this run has read may be records "
            f"of both topics. Make a new bookmark: it reads the new topic from its beginning.",
            topic=topic,
            partition=-1,
            lost_from=-1,
            lost_until=-1,
            log_start=-1,
            log_end=-1,
        )

    @classmethod
    def of_deleted(cls, topics: list[str]) -> DataLossError:
        """Return the error for topics that were deleted while a query reads them."""
        names = ", ".join(sorted(topics))
        return cls.with_message(
            f"Topic deleted: {names}. This query was reading it, and what it had not read is gone. Create it again or "
            f"take it out of the subscription (options 'subscribe', 'subscribePattern'), or set failOnDataLoss=false "
            f"to go on with the other topics.",
            topic=names,
            partition=-1,
            lost_from=-1,
            lost_until=-1,
            log_start=-1,
            log_end=-1,
        )


class OutdatedCheckpointError(DataError):
    """The group has batches of this query that its checkpoint does not know: the checkpoint is an old copy.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    committed : int
        The group's committed offset, which this query has committed.
    finished : int or None
        Up to where the checkpoint knows the partition.
    """

    topic: str
    partition: int
    committed: int
    finished: int | None

    def __init__(self, *, topic: str, partition: int, group_id: str, committed: int, finished: int | None) -> None:
        known = "does not know the partition" if finished is None else f"ends at {finished}"
        super().__init__(
            f"{topic}-{partition}: this query has committed {committed} to the group {group_id!r}, but its checkpoint "
            f"{known}. There are three possible causes. The checkpoint was restored from an older copy. Another run of "
            f"this query uses a copy of the checkpoint, and has committed meanwhile. Or the option "
            f"asyncProgressTrackingEnabled has left out batches. The next batches would have the numbers of batches "
            f"that ran before, and a sink that goes by these numbers would skip or replace records. Stop the other "
            f"run, if there is one. Then use the newest checkpoint, or a new one: it begins at the group's "
            f"committed offsets and numbers its batches from 0.",
            topic=topic,
            partition=partition,
            committed=committed,
            finished=finished,
        )


class OffsetRewindError(DataError):
    """The group's committed offset is lower than what this query has finished, or is gone.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    committed : int or None
        The group's committed offset now; None when the group has none any more.
    finished : int or None
        What this query has finished; None where it has read other partitions of the topic only.
    reset : str or None
        Who has set it, when and from where, if that was ``kafka-group reset``.
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
        reason = "Somebody reset or deleted the group's offsets"
        if committed is None:
            reason += ", or they have expired"
        if reset is not None:
            reason = f"It was reset: {reset}"
        text = (
            f"{topic}-{partition}: the committed offset of group {group_id!r} is {now}, but {history}. "
            f"Going on at the committed offset would process [{committed or 0}, {upto}) again. {reason}. Set "
            f"onOffsetRewind=checkpoint to go on at {upto} and put the group's offset back there, or "
            f"onOffsetRewind=group to follow the group and process the range again."
        )
        if upto is None:
            text = (
                f"{topic}-{partition}: the group {group_id!r} has lost its offsets of this topic, of which this query "
                f"has read other partitions; how much of this one the group has processed is not known. {reason}. Set "
                f"onOffsetRewind=checkpoint to read it from its beginning, or onOffsetRewind=group to begin at "
                f"startingOffsets, as a new group does."
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
    """Somebody else has moved the group's offsets between a bookmark's read and its commit.

    Attributes
    ----------
    topic, partition : str, int
        The first topic-partition that was moved.
    before, committed : int or None
        The group's committed offset when the bookmark was made, and now; None where there was none.
    """

    topic: str
    partition: int
    before: int | None
    committed: int | None

    def __init__(self, *, topic: str, partition: int, group_id: str, before: int | None, committed: int | None) -> None:
        was = "nothing" if before is None else before
        now = "gone" if committed is None else committed
        super().__init__(
            f"{topic}-{partition}: the group {group_id!r} had committed {was} when this bookmark was made, and now it "
            f"is {now}: another run, or somebody with a tool, has committed meanwhile. Nothing was committed. What "
            f"this run has processed the other may have processed, too; let no two runs of a job overlap, and make a "
            f"new bookmark to go on.",
            topic=topic,
            partition=partition,
            before=before,
            committed=committed,
        )


class NoOffsetAtTimeError(DataError):
    """The log has no record of the time at which the query is to start, or later.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    time_ms : int
        The time, in milliseconds since 1970.
    option : str
        The option that says so.
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
    """An offset of the checkpoint cannot be read: another version wrote it, or it is damaged."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The offset in the checkpoint cannot be read: {problem} Use the version of "
            f"pyspark-kafka-group that wrote it (or a newer one), or a new checkpoint."
        )


class ReadTimeoutError(DataError):
    """No record and no end of partition arrived for the whole poll timeout.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    position, until : int
        Next offset to read, and the end of the range (exclusive).
    last_error : str
        The last error that the Kafka client reported while waiting; empty if there was none.
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
            f"{topic}-{partition}: no records for {timeout_s:g} s at offset {position}, with the range to be "
            f"read until {until}. The broker that leads the partition is slow or cannot be reached from "
            f"this executor. Check the network from the executors, or raise kafkaConsumer.pollTimeoutMs."
            + (f" The client's last error: {last_error}." if last_error else ""),
            topic=topic,
            partition=partition,
            position=position,
            until=until,
            last_error=last_error,
        )


class MalformedRecordError(DataError):
    """A key or a value is not what its format says, and ``malformedRecords=fail``.

    Attributes
    ----------
    topic, partition, offset : str, int, int
        The record.
    column : str
        ``key`` or ``value``.
    reason : str
        What is wrong with it.  Never what is in it.
    """

    topic: str
    partition: int
    offset: int
    column: str
    reason: str

    def __init__(self, *, topic: str, partition: int, offset: int, column: str, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the {column} of the record at offset {offset} is malformed: {reason}. Correct "
            f"{column}Format or its schema, or choose what becomes of such records with malformedRecords=null or "
            f"deadLetter.",
            topic=topic,
            partition=partition,
            offset=offset,
            column=column,
            reason=reason,
        )


class RecordBatchTooLargeError(DataError):
    """A record batch is larger than a reader may hold, as it is sent or once it is decompressed.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition.
    offset : int
        Where the batch begins, or how far its partition was read.
    limit_bytes : int
        What a reader may hold of one batch.
    """

    topic: str
    partition: int
    offset: int
    limit_bytes: int

    def __init__(self, *, topic: str, partition: int, offset: int, limit_bytes: int, found: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the record batch at offset {offset} is too large for a reader: {found}, and "
            f"kafka.receive.message.max.bytes allows {limit_bytes}. If a producer means to send batches of this size, "
            f"raise kafka.receive.message.max.bytes, and give the Python workers of the executors twice as much "
            f"memory. If not, find its producer; kafka-delete-records.sh deletes the log up to and with the batch, and "
            f"failOnDataLoss=false passes over what was deleted.",
            topic=topic,
            partition=partition,
            offset=offset,
            limit_bytes=limit_bytes,
        )


class UnexpectedRecordError(DataError):
    """The client delivered a record outside the range that was asked for, or out of order: a bug.

    Attributes
    ----------
    topic, partition : str, int
        The topic-partition that is read.
    position : int
        The offset at or after which a record was due.
    """

    topic: str
    partition: int
    position: int

    def __init__(self, *, topic: str, partition: int, position: int, found: str) -> None:
        super().__init__(
            f"{topic}-{partition}: a record at offset {position} or later was due, but the Kafka client "
            f"delivered {found}. This is a bug in pyspark-kafka-group or in librdkafka: please report it with "
            f"the versions of both. Nothing was passed on; the query can be restarted.",
            topic=topic,
            partition=partition,
            position=position,
        )


# ------------------------------------------------------------------------------------------ group


class GroupError(KafkaGroupError):
    """The cluster or the group refuses."""


class BrokerError(GroupError):
    """The cluster cannot be reached, or answers with an error that no retry cures.  The text has the remedy."""


class NotUpgradedError(GroupError):
    """The group has members of the classic protocol, and its coordinator lets no member of the new one in.

    It cannot keep the data that librdkafka's cooperative-sticky puts into assignments (KAFKA-18134).
    """

    def __init__(self, group_id: str, text: str) -> None:
        super().__init__(
            f"The group {group_id!r} has members of the classic protocol, and its coordinator lets no member of the "
            f"new one in ({text}). It upgrades a group with members only as long as their assignments carry no data of "
            f"their own, and those of librdkafka's cooperative-sticky do once partitions have moved. Stop all members, "
            f"then start them with kafka.group.protocol=consumer: their offsets and checkpoints stay as they are."
        )


class AuthenticationError(GroupError):
    """The cluster refuses the credentials, or the user lacks a right.  The text names the right, or what to check."""


class SchemaRegistryError(GroupError):
    """The schema registry does not answer, fails, or refuses.  The text has its answer, and what to do."""


class ActiveGroupError(GroupError):
    """The group has members, and takes offsets from nobody else: a query with ``assign`` and a bookmark are none."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"Option 'assign': the group {group_id!r} has members, and takes offsets from nobody else. Use subscribe "
            f"to share its partitions, give this query a group of its own, or remove kafka.group.id to keep the "
            f"offsets in the checkpoint alone. If the members have just ended, wait until the group has noticed that "
            f"(kafka-consumer-groups --describe --members shows them)."
        )

    @classmethod
    def of_bookmark(cls, group_id: str, members: list[str]) -> ActiveGroupError:
        """Return the error for a bookmark; ``members`` are the client ids of the members."""
        names = ", ".join(sorted({*members})[:5]) or "a rebalance goes on"
        return cls.with_message(
            f"The group {group_id!r} has members ({names}), and takes offsets from nobody else: a bookmark cannot "
            f"commit. Stop them, or give the bookmark a group of its own (option 'kafka.group.id'). If they have just "
            f"ended, wait until the group has noticed that."
        )


class AssignmentTimeoutError(GroupError):
    """The group did not decide in time which partitions this query gets.

    Either a run with ``availableNow`` begins, or a batch that runs again after a restart.  Most often some member does
    not give its partitions back; ``kafka-consumer-groups --describe --members`` shows which.
    """


class DeliveryError(GroupError):
    """Kafka did not take a record that was to be written.

    Attributes
    ----------
    topic : str
        Where it was to go; empty if that is not known.
    partition : int
        The partition; -1 if it was not chosen yet.
    code : str
        The name of the error, as librdkafka writes it.
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
    """A batch that is written with ``delivery=exactly-once`` cannot be committed.  The text says what is in Kafka."""


class NoPartitionsError(GroupError):
    """The group has given all partitions to other members, and a run with ``availableNow`` has none to read."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"The group {group_id!r} has given this run with availableNow no partition: other members have all of "
            f"them, because the group has at least as many members as partitions. They read what is there. Start fewer "
            f"members, or add partitions; look at them with kafka-consumer-groups --describe --members."
        )


class MemberFencedError(GroupError):
    """Another process took this member's place: it has the same ``kafka.group.instance.id``, or the same checkpoint.

    Stop one of the two; each query has both for itself.
    """
