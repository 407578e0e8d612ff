"""Queries of one group that write through the offset table, in every order that the source's guarantees allow.

The table code and the database are real; brokers and Spark are a model.  All attempts of tasks run in one thread, but
each has its own connection and transaction.  The model runs one step of one attempt at a time, so any two attempts can
overlap.  An attempt that would wait for a lock fails at once, and the task is retried later.

The model relies on these guarantees of the source:

- An owner starts at the group's committed offset, or at its own finished offset if that is higher.
- An owner continues only after a batch that it has finished.
- A query commits only finished batches.

The model may restore the database to an earlier state.  A writer must then notice this before the end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch
from pyspark_kafka_group.stores.bulk_load import into
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.errors import PartitionsLockedError, TaskEndedError
from pyspark_kafka_group.stores.offset_rows import OffsetRows
from pyspark_kafka_group.stores.task_writes import PartitionWrite, TaskWrites, Work, raise_rest, to_the_end

ROWS = "written_rows"
CREATE_ROWS = f'CREATE TABLE {ROWS} (topic TEXT, "partition" INTEGER, "offset" BIGINT, n INTEGER)'

_PARTITIONS = 3
_LOG_END = 40
_STEPS = 200
_CHUNK = 3  # rows of a partition that one step writes

Record = tuple[str, int, int, int]


@dataclass(frozen=True)
class Faulty:
    """The faults that the test has planted.

    Attributes
    ----------
    no_lock : bool
        Whether to read the offset at the plan of a batch, not under the lock.
    apart : bool
        Whether to raise offsets in a separate transaction, after the rows.
    spread : bool
        Whether to send the rows of a partition to two tasks.
    commits_early : bool
        Whether the source commits unfinished batches.
    believes_the_end : bool
        Whether a task takes the end of its connection for the end of its rows.
    """

    no_lock: bool = False
    apart: bool = False
    spread: bool = False
    commits_early: bool = False
    believes_the_end: bool = False


@dataclass(frozen=True, slots=True)
class _SnapshotRows(OffsetRows):
    snapshot: Mapping[TopicPartition, Offset] = field(default_factory=dict)

    def lock(self, connection: Any, tp: TopicPartition, planned: ReadRange | None = None) -> Offset:
        OffsetRows.lock(self, connection, tp, planned)
        return self.snapshot.get(tp, Offset(0))


@dataclass(eq=False)
class Task:
    rows: list[Record]
    done: bool = False


@dataclass(eq=False)
class Batch:
    ranges: dict[TopicPartition, OffsetRange]
    tasks: list[Task]
    work: Work
    rest_is_done: bool = False


@dataclass(eq=False)
class Jvm:
    """Sends the rows of a task, until it closes the connection."""

    batches: Iterator[pa.RecordBatch]
    is_gone: bool = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while not self.is_gone and (rows := next(self.batches, None)) is not None:
            yield rows


@dataclass(eq=False)
class Attempt:
    """An attempt of a task, with its open transaction.  A task may have several attempts at once."""

    task: Task
    open: ExitStack
    writes: TaskWrites
    left: Iterator[pa.RecordBatch]
    jvm: Jvm


@dataclass(eq=False)
class Member:
    """A query: its checkpoint, and the partitions that it believes it owns."""

    finished: dict[TopicPartition, Offset] = field(default_factory=dict)
    position: dict[TopicPartition, Offset] = field(default_factory=dict)
    batch: Batch | None = None
    last: Batch | None = None


class World:
    """One schedule, with the faults of ``faulty``.  With ``restores``, an older copy replaces the SQLite file once."""

    def __init__(self, seed: int, database: Database, faulty: Faulty, *, restores: bool = False) -> None:
        self.random = random.Random(seed)
        self.database = database
        self.faulty = faulty
        self.offset_rows = OffsetRows(consumer=f"c{seed}", table="kafka_offsets")
        topic = f"t{seed}"
        self.partitions = [TopicPartition(topic, n) for n in range(_PARTITIONS)]
        # Leave gaps, as control records, compaction and a late log start do.
        self.log = {
            tp: [o for o in range(self.random.choice((0, 5)), _LOG_END) if self.random.random() < 0.8]
            for tp in self.partitions
        }
        self.committed = {tp: Offset(0) for tp in self.partitions}
        self.owner: dict[TopicPartition, Member] = {}
        self.members = [Member() for _ in range(3)]
        self.attempts: list[Attempt] = []
        self.happened: Counter[str] = Counter()
        self.topic = topic
        self.restores = restores
        self.saved: bytes | None = None

    def run(self) -> None:
        """Take random steps, then let one owner read the rest."""
        try:
            self._run()
        finally:
            for attempt in self.attempts:
                _roll_back(attempt, _KilledError())

    def _run(self) -> None:
        steps = [self.assign, self.plan, self.plan, self.begin, self.begin, self.finish, self.finish, self.kill]
        steps += [self.move_on] * 12 + [self.replay_last, self.rewind]
        steps += [self.save_or_restore] * self.restores
        for _ in range(_STEPS):
            self.random.choice(steps)()
        while self.attempts:
            self.move_on()
        self.members = [Member()]
        self.owner.clear()
        for tp in self.partitions:
            self._give(tp, self.members[0])
        for _ in range(2000):
            self.random.choice([self.plan, self.begin, self.move_on, self.finish])()
            if self.members[0].batch is None and all(o >= _LOG_END for o in self.members[0].position.values()):
                # Each partition has one more record, which the query filters out.
                more = OffsetRange(Offset(_LOG_END), Offset(_LOG_END + 1))
                while self.attempts:
                    self.move_on()
                batch = self._batch(dict.fromkeys(self.partitions, more))
                while not self._raise_rest(batch):
                    pass
                return
        raise AssertionError("the last owner does not come to the end")

    def judge(self, written: list[Record]) -> tuple[list[Record], list[Record]]:
        """Return the missing rows, and the rows that exist more than once."""
        expected = {row for tp in self.partitions for row in self._rows(tp, OffsetRange(Offset(0), Offset(_LOG_END)))}
        counted = Counter(written)
        assert counted.keys() <= expected
        return sorted(expected - counted.keys()), sorted(row for row, count in counted.items() if count > 1)

    # -- steps of the group

    def assign(self) -> None:
        """Move a partition, even while a batch reads it.  Its old owner may not notice, and then continues."""
        tp, member = self.random.choice(self.partitions), self.random.choice(self.members)
        former = self.owner.get(tp)
        if former is not None and former is not member and self.random.random() < 0.6:
            former.position.pop(tp, None)
        self._give(tp, member)

    def kill(self) -> None:
        """Kill a driver and start it again.  Its executors continue their work."""
        if self.random.random() < 0.7:
            return
        member = self.random.choice(self.members)
        member.position.clear()
        for tp in [tp for tp, owner in self.owner.items() if owner is member]:
            del self.owner[tp]
        batch, member.batch = member.batch, None
        if batch is not None:
            self._replay(member, batch)

    def replay_last(self) -> None:
        """Restart a query without the newest entry of Spark's commit log."""
        member = self.random.choice(self.members)
        if member.batch is None and member.last is not None and self.random.random() < 0.7:
            self._replay(member, member.last)

    def rewind(self) -> None:
        """Lower the group's offset, as an operator does.  The queries follow it: ``onOffsetRewind=group``."""
        tp = self.random.choice(self.partitions)
        if self.random.random() < 0.3 and self.committed[tp]:
            self.happened["rewound"] += 1
            self.committed[tp] = Offset(self.random.randrange(self.committed[tp]))
            for member in self.members:
                member.finished.pop(tp, None)
                if tp in member.position and (member.batch is None or tp not in member.batch.ranges):
                    member.position[tp] = self.committed[tp]

    def save_or_restore(self) -> None:
        """Copy the database, as an operator does; later, replace the database with the copy."""
        file = Path(self.database.url.removeprefix("sqlite:///"))
        if self.attempts or self.random.random() < 0.5:
            return
        if self.saved is None:
            self.saved = file.read_bytes()
        elif not self.happened["restored"]:
            self.happened["restored"] += 1
            file.write_bytes(self.saved)

    def _give(self, tp: TopicPartition, member: Member) -> None:
        self.owner[tp] = member
        if tp not in member.position:
            member.position[tp] = Offset(max(self.committed[tp], member.finished.get(tp, 0)))

    def _replay(self, member: Member, batch: Batch) -> None:
        """Run the logged ranges again, except those of partitions that another query owns."""
        self.happened["replay"] += 1
        ranges = {}
        for tp, logged in batch.ranges.items():
            if self.owner.get(tp, member) is member:
                self.owner[tp] = member
                member.position[tp] = max(member.position.get(tp, Offset(0)), logged.until, self.committed[tp])
                ranges[tp] = logged
        if ranges:
            member.batch = self._batch(ranges)

    # -- steps of a query

    def plan(self) -> None:
        member = self.random.choice(self.members)
        if member.batch is not None:
            return
        ranges = {}
        for tp, position in member.position.items():
            until = Offset(min(_LOG_END, position + self.random.choice((0, 4, 9))))
            if until > position:
                ranges[tp] = OffsetRange(position, until)
                member.position[tp] = until
        if ranges:
            member.batch = self._batch(ranges)

    def finish(self) -> None:
        """Finish a batch, and commit the partitions that the query still owns, unless it dies earlier."""
        member = self.random.choice(self.members)
        batch = member.batch
        if batch is None or not (self.faulty.commits_early or all(task.done for task in batch.tasks)):
            return
        if not batch.rest_is_done and (not self._raise_rest(batch) or self.random.random() < 0.1):
            return
        member.batch, member.last = None, batch
        self.happened["finished"] += 1
        commits = self.random.random() < 0.9
        for tp, done in batch.ranges.items():
            member.finished[tp] = max(member.finished.get(tp, Offset(0)), done.until)
            if commits and self.owner.get(tp) is member:
                self.committed[tp] = max(self.committed[tp], done.until)

    def _raise_rest(self, batch: Batch) -> bool:
        """Let the driver raise the offsets of partitions without rows, and return False if another writer blocks it."""
        written = [
            PartitionWrite(*tp, 0, 0, 0, 0, 0) for tp in {TopicPartition(*r[:2]) for t in batch.tasks for r in t.rows}
        ]
        try:
            raise_rest(self.database, batch.work, written)
        except (sa.exc.OperationalError, PartitionsLockedError):
            self.happened["waited"] += 1
        else:
            batch.rest_is_done = True
        return batch.rest_is_done

    def _batch(self, ranges: dict[TopicPartition, OffsetRange]) -> Batch:
        tasks = [Task([]), Task([])]
        for tp, planned in ranges.items():
            for n, row in enumerate(self._rows(tp, planned)):
                tasks[(n if self.faulty.spread else tp.partition) % 2].rows.append(row)
        for task in tasks:
            task.rows.sort()
            task.done = not task.rows
        rows = self.offset_rows
        if self.faulty.no_lock:
            with sa.create_engine(self.database.url, poolclass=sa.NullPool).connect() as connection:
                snapshot = rows.read(connection)
            rows = _SnapshotRows(consumer=rows.consumer, table=rows.table, snapshot=snapshot)
        read = {
            tp: ReadRange(r.start, Offset(r.until), finished=r.start, begun=r.start > 0) for tp, r in ranges.items()
        }
        load = into(ROWS, columns=["topic", "partition", "offset", "n"])
        return Batch(ranges, tasks, Work(offset_rows=rows, write_rows=load, batch=RunningBatch(read)))

    def _rows(self, tp: TopicPartition, among: OffsetRange) -> list[Record]:
        """Return the rows of the records: none, one or two rows per record."""
        found = [o for o in self.log[tp] if among.start <= o < among.until]
        return [(*tp, o, n) for o in found for n in range((o + tp.partition) % 3)]

    # -- steps of the executors

    def begin(self) -> None:
        """Begin an attempt of a task: the first one, a retry after a failure, or a speculative one."""
        batches = [m.batch for m in self.members if m.batch is not None]
        tasks = [(b, t) for b in batches for t in b.tasks if not t.done]
        if not tasks or len(self.attempts) > 4:
            return
        batch, task = self.random.choice(tasks)
        stack = ExitStack()
        try:
            connection = stack.enter_context(self.database.transaction())
        except PartitionsLockedError:
            self.happened["waited"] += 1
            return
        writes = TaskWrites(connection, batch.work)
        chunks = [task.rows[n : n + _CHUNK] for n in range(0, len(task.rows), _CHUNK)]
        jvm = Jvm(iter([_record_batch(rows) for rows in chunks]))
        left = iter(jvm) if self.faulty.believes_the_end else to_the_end(jvm, lambda: jvm.is_gone)
        self.attempts.append(Attempt(task, stack, writes, left, jvm))

    def move_on(self) -> None:
        """Run the next step of an attempt, or let it die.  The news of its end may get lost."""
        if not self.attempts:
            return
        attempt = self.random.choice(self.attempts)
        attempt.jvm.is_gone |= self.random.random() < 0.05
        try:
            self._live_or_die(0.05)
            rows = next(attempt.left, None)
            if rows is not None:
                attempt.writes.add(rows)
                return
            report = self._commit(attempt)
        except (sa.exc.OperationalError, PartitionsLockedError, TaskEndedError, _KilledError) as e:
            self.happened["failed"] += 1
            self.attempts.remove(attempt)
            _roll_back(attempt, e)
            return
        self.attempts.remove(attempt)
        self.happened["filtered"] += sum(write.filtered for write in report)
        if self.random.random() < 0.95 and not attempt.jvm.is_gone:
            attempt.task.done = True

    def _commit(self, attempt: Attempt) -> list[Any]:
        if not self.faulty.apart:
            report = attempt.writes.finish()
            attempt.open.close()
            return report
        partitions = dict(attempt.writes._partitions)
        attempt.writes._partitions.clear()
        attempt.open.close()
        self._live_or_die(0.1)
        with self.database.transaction() as connection:
            later = replace(attempt.writes, connection=connection)
            for tp in partitions:
                later.work.offset_rows.lock(connection, tp)
            later._partitions.update(partitions)
            return later.finish()

    def _live_or_die(self, probability: float) -> None:
        if self.random.random() < probability:
            raise _KilledError


class _KilledError(Exception):
    pass


def _roll_back(attempt: Attempt, error: Exception) -> None:
    """End the transaction with ``error``.  Raise any error except a kill, an early end or a wait for a lock."""
    with suppress(_KilledError, PartitionsLockedError, TaskEndedError):
        attempt.open.__exit__(type(error), error, error.__traceback__)


def _record_batch(rows: list[Record]) -> pa.RecordBatch:
    topics, partitions, offsets, numbers = zip(*rows, strict=True)
    columns = [pa.array(topics), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64()), pa.array(numbers)]
    return pa.RecordBatch.from_arrays(columns, ["topic", "partition", "offset", "n"])
