"""Commits the files that the tasks of a batch have written: each record once, from any number of applications.

Runs in the driver.  The table stores the next offset of each topic-partition, in the commit that adds the files.  An
attempt looks at one state of the table, decides which records of the batch that state lacks, and commits on it.  The
commit fails if another one has raised one of these offsets since.  Any error of a commit means: unknown, look again.
"""

from __future__ import annotations

import json
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_group.landing import errors
from pyspark_kafka_group.landing.missing import behind, holds, missing, touches
from pyspark_kafka_group.landing.state import Files, TableState
from pyspark_kafka_group.offsets.errors import ConfigurationError, KafkaGroupError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.session.running_batch import running_batch
from pyspark_kafka_group.stores.lake_history import OffsetSpan, Spans, before

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from pyspark_kafka_group.landing.files import NewFile, Place

_log = logging.getLogger("pyspark_kafka_group")

NEEDED = ("topic", "partition", "offset")
"""The columns that each landed row has: they name its record, also for `LakeTable` and for a repair."""

# What happens with a column of the source that the table lacks.
_FAIL, _ADD = "fail", "add"

# How often to try to add columns: several applications may start at once.
_ADDS = 5

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0

# Attempts of a batch against a table that fails for another reason than a conflict, over some 10 s.
_ATTEMPTS = 8

# How often the tasks of a batch may run in one call, because their files were removed.
_RUNS = 3


class Landed(NamedTuple):
    """What a batch, or a run, has landed.

    Attributes
    ----------
    records : int
        The number of records that were committed.
    files, size : int
        The number of their files, and of the bytes of these.
    skipped : int
        The number of records in files that were not committed, because the table had them.
    conflicts : int
        The number of attempts to commit that failed.
    orphans : int
        The number of removed files that no commit has: of failed tasks, killed applications, or skipped records.
    seconds : float
        The time of the commit with its attempts, without the tasks.
    """

    records: int = 0
    files: int = 0
    size: int = 0
    skipped: int = 0
    conflicts: int = 0
    orphans: int = 0
    seconds: float = 0.0

    def plus(self, other: Landed) -> Landed:
        """Return the sum of both."""
        return Landed._make(a + b for a, b in zip(self, other, strict=True))


@dataclass
class _Batch:
    """A batch whose tasks have ended."""

    id: int
    ranges: Mapping[TopicPartition, ReadRange]
    files: Files
    conflicts: int = 0
    # The files of all attempts to commit.  The table may have them, also after an error.
    unknown: set[str] = field(default_factory=set)


class Landing(ABC):
    """The common part of the formats: see :class:`~pyspark_kafka_group.landing.DeltaLanding`."""

    def __init__(self, name: str, *, new_columns: str, patience_s: float, checkpoint: str | None) -> None:
        self._name = errors.without_password(f"{type(self).__name__}: {name}")
        if new_columns not in (_FAIL, _ADD):
            raise ConfigurationError(
                f"{self._name}: new_columns={new_columns!r} is not known. Use {_FAIL!r} or {_ADD!r}."
            )
        self._patience_s = float(patience_s)
        self._checkpoint = checkpoint
        self._columns: pa.Schema | None = None  # of the files; None if no stream was started
        self._partitioning: tuple[str, ...] = ()  # of the table at the start of the stream
        self._ids: Mapping[str, int] = {}  # of the table's columns then
        self._adds_columns = new_columns == _ADD
        self._swept: set[TopicPartition] = set()  # whose folders were searched for orphans
        self.total = Landed()

    # -- what a format provides

    @abstractmethod
    def _prepare(self, schema: StructType) -> None:
        """Create the table if it does not exist, and check that landing can write it."""

    @abstractmethod
    def _target(self) -> dict[str, Any]:
        """Return what tasks need to find the table, as JSON."""

    @abstractmethod
    def _look(self) -> TableState:
        """Return the newest state of the table."""

    @abstractmethod
    def _place(self) -> Place:
        """Return the folder of the table."""

    @abstractmethod
    def _conflicts(self, problem: Exception) -> bool:
        """Return whether an error of a commit means that another commit was faster."""

    @abstractmethod
    def _committed(self, look: TableState) -> None:
        """Make a commit durable, and do the maintenance that is due.  An error makes the batch look again."""

    # -- what users call

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataStreamWriter:
        """Return the writer of a stream that lands topics in the table.

        Set the trigger, the checkpoint and the name as for any stream, and start it.

        Parameters
        ----------
        spark : SparkSession
            The session that runs the stream.
        options : mapping of str to str
            Options of ``spark.readStream.format("kafka-group")``.  ``columns`` must contain ``topic``, ``partition``
            and ``offset``, as it does by default.

        Returns
        -------
        pyspark.sql.streaming.DataStreamWriter
            With ``foreachBatch`` set.

        Raises
        ------
        KafkaGroupError
            Of :mod:`pyspark_kafka_group.errors`: an option is wrong, or the table cannot be written so.
        """
        from pyspark_kafka_group import register
        from pyspark_kafka_group.landing.source import TARGET, LandingSource
        from pyspark_kafka_group.source import KafkaGroupDataSource

        register(spark)
        spark.dataSource.register(LandingSource)
        given = {key: str(value) for key, value in options.items()}
        rows = KafkaGroupDataSource(given).schema()
        absent = [name for name in NEEDED if name not in rows.names]
        if absent:
            raise ConfigurationError(
                f"{self._name}: the option 'columns' lacks {', '.join(absent)}. Add them: they show which record a row "
                f"is."
            )
        self._prepare(rows)
        target = json.dumps({**self._target(), "rows": rows.jsonValue()})
        loaded = spark.readStream.format(LandingSource.name()).options(**given, **{TARGET: target}).load()
        return loaded.writeStream.foreachBatch(self.commit)

    # Deliberate: Any, because type checkers accept only functions without a result for `foreachBatch`.
    def commit(self, batch: DataFrame, batch_id: int) -> Any:
        """Write the files of a batch, and commit them.  :meth:`stream` passes this to ``foreachBatch``.

        Returns
        -------
        Landed
            What this batch has landed.

        Raises
        ------
        LakeConflictError
            If other commits win for longer than ``patience_s``.
        LandingError
            If files cannot be written, or the table cannot be read or committed.
        OtherTopicError
            If the table has records of another topic with this name.
        RefusedRecordError
            If a record has null in a column that must not be null.
        TableBehindError
            If the table lacks records that the group has finished.
        TableChangedError, UnsupportedTableError, ConfigurationError
            If the table is not the one of the start, or landing cannot write it correctly.
        """
        from pyspark_kafka_group.landing.source import files_of

        running = running_batch(batch, batch_id, self._checkpoint)
        ranges = {} if running is None else {tp: r for tp, r in running.ranges.items() if r.start < r.until}
        this, begin = _Batch(batch_id, ranges, files_of(batch.collect(), ranges)), time.monotonic()
        if not ranges:
            return Landed()
        written = {file.path for file in _each(this.files)}

        def run_again() -> None:
            this.files = files_of(batch.collect(), ranges)
            written.update(file.path for file in _each(this.files))

        try:
            kept, orphans = self._land(this, run_again)
        except BaseException:
            try:
                self._remove(written - this.unknown)
            except Exception as e:  # Deliberate: the user must see the first error
                _log.warning("%s: files that no commit has were not removed: %s", self._name, e)
            raise
        records = sum(file.rows for file in kept)
        orphans += self._remove(written - this.unknown - {file.path for file in kept})
        result = Landed(
            records=records,
            files=len(kept),
            size=sum(file.size for file in kept),
            skipped=sum(file.rows for file in _each(this.files)) - records,
            conflicts=this.conflicts,
            orphans=orphans,
            seconds=time.monotonic() - begin,
        )
        self.total = self.total.plus(result)
        _log.info(
            "Batch %s: %s records in %s files (%.1f MB) landed in %s in %.2f s; %s conflicts, %s orphans removed.",
            *(batch_id, result.records, result.files, result.size / 1e6, self._name, result.seconds),
            *(result.conflicts, result.orphans),
        )
        if result.skipped:
            _log.warning(
                "Batch %s: %s of its records are below the offsets of %s, so these were left out.",
                *(batch_id, result.skipped, self._name),
            )
        return result

    def set_offsets(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Let the table's offsets jump forward, over records that it will never have.  Stop all writers first.

        Parameters
        ----------
        topic : str
            The topic.
        offsets : mapping of int to int
            The next offset to land, by partition.  Offsets below the stored ones change nothing.
        """
        wanted = {TopicPartition(topic, number): int(offset) for number, offset in offsets.items()}
        with errors.reaching(self._name, self._conflicts):
            look = self._look_that_lands([topic])
            raised = {tp: offset for tp, offset in wanted.items() if (look.next_offset(tp) or 0) < offset}
            look.commit({}, raised, {}, alone=True)

    def accept_rollback(self) -> None:
        """Continue without the records that a rollback of the table has removed.  Stop all writers first."""
        with errors.reaching(self._name, self._conflicts):
            while (look := self._look()).lost:  # a note has one span of each partition
                spans = {tp: found[0] for tp, found in look.lost.items()}
                offsets = {tp: look.next_offset(tp) or span.until for tp, span in spans.items()}
                look = self._look_that_lands({tp.topic for tp in spans})
                look.commit({}, offsets, spans, alone=True)

    def forget(self, topic: str) -> None:
        """Forget the offsets of a topic that was created again.  Stop all writers first.

        Give its old rows another topic name before, or the first batch ends with an error.

        Parameters
        ----------
        topic : str
            The topic.
        """
        with errors.reaching(self._name, self._conflicts):
            self._look().forget(topic)

    def _look_that_lands(self, topics: Iterable[str]) -> TableState:
        """Return a state of the table that notes that landing fills topics, or whose commit will."""
        look = self._look()
        if {*topics} - look.landed.keys():
            look.note_topics({}, {*topics} - look.landed.keys())
            look = self._look()
        if new := {*topics} - look.landed.keys():  # Delta notes it with a commit of its own, and Iceberg with the next
            look.note_topics({}, new)
        return look

    # -- the columns

    def _fit(self, look: TableState) -> None:
        """Add the columns that the table lacks, if the user wants it.  Raise if it does not fit then."""
        from pyspark_kafka_group.landing.fitting import misfits

        assert self._columns is not None
        for left in reversed(range(_ADDS if self._adds_columns else 0)):
            found = misfits(self._columns, look.schema())
            if found.others or not found.absent:
                break
            try:
                look.add_columns(self._columns)
                _log.info("%s has new columns of the source: %s.", self._name, ", ".join(found.absent))
            except Exception:  # Deliberate: mostly another application that adds the same at its start
                if not left:
                    raise
            look = self._look()
        self._partitioning, self._ids = look.partitioning, look.ids
        self._check_columns(look)

    def _check_columns(self, look: TableState) -> None:
        from pyspark_kafka_group.landing.fitting import misfits

        if self._columns is None:
            return
        if look.partitioning != self._partitioning:
            raise errors.changed(self._name, "partitions")
        found = misfits(self._columns, look.schema())
        if problems := [*(f"no column {name}" for name in found.absent), *found.others]:
            raise errors.other_columns(self._name, problems)
        ours = {path: number for path, number in self._ids.items() if path.partition(".")[0] in self._columns.names}
        if any(look.ids.get(path) != number for path, number in ours.items()):
            raise errors.changed(self._name, "columns")

    def _check_types(self) -> None:
        from pyspark_kafka_group.landing.fitting import of_no_table

        assert self._columns is not None
        if found := [*of_no_table(self._columns)]:
            raise errors.other_types(self._name, found)

    # -- a batch

    def _land(self, batch: _Batch, run_again: Callable[[], None]) -> tuple[list[NewFile], int]:
        """Land a batch.  Run its tasks again if a new owner of a partition has taken their files for orphans."""
        for _ in range(_RUNS - 1):
            try:
                return self._try(batch)
            except errors.RemovedFilesError:
                run_again()
        return self._try(batch)

    def _try(self, batch: _Batch) -> tuple[list[NewFile], int]:
        """Attempt to commit a batch until it is in the table.

        Returns
        -------
        list of NewFile, int
            The committed files, and the number of removed orphans.
        """
        begin, pause_s, failures = time.monotonic(), _FIRST_PAUSE_S, 0
        while True:
            try:
                return self._attempt(batch)
            except KafkaGroupError:
                raise
            except Exception as e:  # Deliberate: of Rust, of HTTP, of the file system; all mean "unknown"
                if self._conflicts(e):
                    batch.conflicts += 1
                    if time.monotonic() - begin > self._patience_s:
                        raise errors.conflict(self._name, self._patience_s, batch.conflicts) from e
                else:
                    failures += 1
                    if failures >= _ATTEMPTS:
                        raise errors.unreachable(self._name, e, failures) from e
                _log.info("Batch %s: %s did not take a commit. Looking again: %s", batch.id, self._name, e)
            # Deliberate: random, so that two writers do not meet again and again.
            time.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _attempt(self, batch: _Batch) -> tuple[list[NewFile], int]:
        """Look at the table, and commit what it lacks of a batch."""
        look = self._look()
        self._check_columns(look)
        if outdated := look.outdated(batch.ranges):
            raise errors.replaced(self._name, outdated)
        if self._note_topics(look, batch.ranges):
            look = self._look()
            self._note_topics(look, batch.ranges)  # another application may have noted others at the same time
        spans = {tp: OffsetSpan(r.start, r.until) for tp, r in batch.ranges.items()}
        stored = {tp: found for tp in spans if (found := look.next_offset(tp)) is not None}
        if too_low := behind(batch.ranges, stored):
            raise errors.table_behind(self._name, too_low)
        if gone := before(look.lost, spans):
            raise errors.rolled_back(self._name, gone)
        lacks = {tp: missing(span, stored.get(tp), look.lost.get(tp, ())) for tp, span in spans.items()}
        lacks = {tp: parts for tp, parts in lacks.items() if parts}
        if not lacks:
            # Either another application has landed these records, or an earlier attempt has whose answer was lost.
            self._committed(look)
            return [file for file in _each(batch.files) if file.path in batch.unknown and look.holds([file.path])], 0
        new = [tp for tp in lacks if tp not in stored]
        if foreign := [tp for tp in new if look.has_rows(tp, spans[tp])]:
            raise errors.foreign_rows(self._name, foreign)
        place = self._place()
        files = {tp: self._fitting(place, batch, tp, parts) for tp, parts in lacks.items()}
        every = _each(files)
        refused = {name for file in every for name, count in file.nulls.items() if count and not look.columns.get(name)}
        if refused:
            raise errors.refused_nulls(self._name, refused)
        if absent := place.absent([file.path for file in every]):
            raise errors.removed_files(self._name, absent)
        paths = {file.path for file in every}
        batch.unknown |= paths
        look.commit(
            files,
            {tp: max(spans[tp].until, stored.get(tp, 0)) for tp in lacks},
            {tp: OffsetSpan(parts[0].start, parts[-1].until) for tp, parts in lacks.items()},
            alone=bool(new),
        )
        self._committed(look)
        if gaps := {tp: OffsetSpan(at, spans[tp].start) for tp, at in stored.items() if at < spans[tp].start}:
            _log.warning(errors.gaps(self._name, gaps))
        return every, self._sweep(place, look, spans, stored, paths)

    def _note_topics(self, look: TableState, ranges: Mapping[TopicPartition, ReadRange]) -> bool:
        """Check the ids of topics; note those that the table does not know, and return True if there were any."""
        ids: dict[str, str] = {}
        for tp, r in ranges.items():
            if r.topic_id is None:
                continue
            known = look.topic_ids.get(tp.topic, r.topic_id)
            if known != r.topic_id:
                raise errors.other_topic(self._name, tp.topic, known, r.topic_id)
            if tp.topic not in look.topic_ids:
                ids[tp.topic] = r.topic_id
        landed = {tp.topic for tp in ranges} - look.landed.keys()
        if ids or landed:
            look.note_topics(ids, landed)
        return bool(ids or landed)

    def _fitting(self, place: Place, batch: _Batch, tp: TopicPartition, parts: Sequence[OffsetSpan]) -> list[NewFile]:
        """Return files of a topic-partition with only these offsets.  Some must be written again for it."""
        from pyspark_kafka_group.landing.files import trimmed

        found = []
        for file in batch.files.get(tp, ()):
            if holds(parts, file.first, file.last):
                found.append(file)
            elif touches(parts, file.first, file.last):
                try:
                    new = trimmed(place, file, parts)
                except FileNotFoundError as e:
                    raise errors.removed_files(self._name, [file.path]) from e
                if new is not None:
                    found.append(self._described(new))
        return found

    def _described(self, file: NewFile) -> NewFile:
        """Return a new file with what the format needs of it."""
        return file

    def _sweep(
        self,
        place: Place,
        look: TableState,
        spans: Spans,
        stored: Mapping[TopicPartition, int],
        committed: set[str],
    ) -> int:
        """Remove the files of killed attempts, once for each topic-partition in this run; return their number.

        Deliberate: not after a rollback or `forget`, which lower offsets.  Then files of earlier commits look the same.
        """
        from pyspark_kafka_group.landing.files import folder_of, orphans

        found: list[str] = []
        for tp in spans.keys() - self._swept:
            self._swept.add(tp)
            landed = OffsetSpan(stored.get(tp, 0), spans[tp].until)
            if not look.lost.get(tp) and look.landed.get(tp.topic) == 1:
                try:
                    found += orphans(place.names(folder_of(tp, look.id)), landed, committed)
                except OSError as e:
                    _log.warning("%s: orphans of %s were not searched: %s", self._name, tp, e)
        return self._remove(found)

    def _remove(self, paths: Iterable[str]) -> int:
        place = self._place() if (paths := list(paths)) else None
        return 0 if place is None else sum(place.remove(path) for path in paths)


def _each(files: Files) -> list[NewFile]:
    return [file for parts in files.values() for file in parts]
