"""The SQL of the offset table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.stores.errors import OtherGroupError, OtherTopicError, TableBehindError

if TYPE_CHECKING:
    import sqlalchemy as sa

_KEY = ("consumer", "topic", "partition")

_MOST_ROWS = 1000  # of one statement: databases limit the number of parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRows:
    """The rows of one consumer.

    Attributes
    ----------
    consumer : str
        The name of the consumer.
    table : str
        The name of the table.
    schema : str or None
        The schema of the table; None for the database's default.
    """

    consumer: str
    table: str
    schema: str | None = None

    def create(self, connection: sa.Connection) -> None:
        """Create the table if it does not exist.

        Raises
        ------
        ConfigurationError
            If a table with this name exists, but is not an offset table.
        """
        import sqlalchemy as sa

        if sa.inspect(connection).has_table(self.table, schema=self.schema):
            self._check(connection)  # a user without the right to create tables may use an existing one
        else:
            connection.execute(sa.schema.CreateTable(self._sql(), if_not_exists=True))

    def found_in(self, connection: sa.Connection) -> str | None:
        """Return the schema in which the server finds the table; None if the database has no schemas."""
        import sqlalchemy as sa

        if self.schema is not None or connection.dialect.name != "postgresql":
            return self.schema
        query = sa.text(
            "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE relname = :table AND pg_table_is_visible(pg_class.oid)"
        )
        return str(connection.execute(query, {"table": self.table}).scalar_one())

    def lock(self, connection: sa.Connection, tp: TopicPartition, planned: ReadRange | None = None) -> Offset:
        """Lock one partition: see `lock_all`."""
        return self.lock_all(connection, {tp: planned})[tp]

    def lock_all(
        self, connection: sa.Connection, planned: Mapping[TopicPartition, ReadRange | None]
    ) -> dict[TopicPartition, Offset]:
        """Wait for other writers of partitions, lock them until the transaction ends, and return their offsets.

        Parameters
        ----------
        connection : sqlalchemy.Connection
            A connection in a transaction.
        planned : mapping of TopicPartition to ReadRange or None
            The partitions, and the batch's ranges of them, to compare the rows with.

        Returns
        -------
        dict of TopicPartition to Offset
            The next offset to write of each: every record below it was written.  0 if none was.

        Raises
        ------
        TableBehindError
            If the group has finished more than the offset in a row.
        OtherTopicError
            If a row belongs to another topic with this name.
        OtherGroupError
            If a row belongs to another group.
        """
        found = self._locked(connection, planned)
        for tp, row in found.items():
            self._compare(tp, row, planned[tp])
        missing = sorted(planned.keys() - found.keys())
        behind = {tp: (None, one.finished) for tp in missing if (one := planned[tp]) is not None and one.begun}
        if behind:
            raise TableBehindError.of(self.table, behind)
        if missing:
            # Another writer may do the same at this moment: only one row remains, and the second waits for the first.
            made = self._insert_unless_there(connection)
            connection.execute(made, [{"of_topic": tp.topic, "of_partition": tp.partition} for tp in missing])
            added = self._locked(connection, missing)
            for tp, row in added.items():
                if row.next_offset:  # the other writer's row
                    self._compare(tp, row, planned[tp])
            found |= added
        return {tp: Offset(row.next_offset) for tp, row in found.items()}

    def store(
        self, connection: sa.Connection, tp: TopicPartition, next_offset: Offset, planned: ReadRange | None = None
    ) -> None:
        """Store the offset of one partition: see `store_all`."""
        self.store_all(connection, {tp: (next_offset, planned)})

    def store_all(
        self, connection: sa.Connection, offsets: Mapping[TopicPartition, tuple[Offset, ReadRange | None]]
    ) -> None:
        """Set the offsets of partitions that this transaction has locked, and the owners that their ranges name."""
        import sqlalchemy as sa

        if not offsets:
            return
        c = self._sql().c
        statement = (
            self._sql()
            .update()
            .where(
                c.consumer == self.consumer,
                c.topic == sa.bindparam("of_topic"),
                c.partition == sa.bindparam("of_partition"),
            )
            .values(
                next_offset=sa.bindparam("until"),
                topic_id=sa.func.coalesce(sa.bindparam("id", type_=sa.Text), c.topic_id),
                group_id=sa.func.coalesce(sa.bindparam("of_group", type_=sa.Text), c.group_id),
                updated_at=sa.func.now(),
            )
        )
        rows = [
            {
                "of_topic": tp.topic,
                "of_partition": tp.partition,
                "until": until,
                "id": None if planned is None else planned.topic_id,
                "of_group": None if planned is None else planned.group_id,
            }
            for tp, (until, planned) in sorted(offsets.items())
        ]
        stored = connection.execute(statement, rows)
        if stored.rowcount != len(rows):
            raise RuntimeError(f"{self.table}: rows of {self.consumer!r} were deleted while they were locked")

    def read(self, connection: sa.Connection) -> Mapping[TopicPartition, Offset]:
        """Return all offsets of the consumer."""
        table = self._sql()
        query = table.select().where(table.c.consumer == self.consumer).order_by(table.c.topic, table.c.partition)
        return {TopicPartition(r.topic, r.partition): Offset(r.next_offset) for r in connection.execute(query)}

    def forget(self, connection: sa.Connection, topic: str) -> int:
        """Delete the offsets of a topic, and return their number."""
        table = self._sql()
        condition = (table.c.consumer == self.consumer, table.c.topic == topic)
        return connection.execute(table.delete().where(*condition)).rowcount

    def give(self, connection: sa.Connection, topic: str, group: str) -> int:
        """Give the offsets of a topic to another group, and return their number."""
        table = self._sql()
        condition = (table.c.consumer == self.consumer, table.c.topic == topic)
        return connection.execute(table.update().where(*condition).values(group_id=group)).rowcount

    def _check(self, connection: sa.Connection) -> None:
        """Refuse a table without a unique key, which separates writers, or with a missing column."""
        import sqlalchemy as sa

        inspector = sa.inspect(connection)
        there = {column["name"] for column in inspector.get_columns(self.table, schema=self.schema)}
        missing = [column.name for column in self._sql().columns if column.name not in there]
        if missing:
            raise ConfigurationError(
                f"OffsetTable: the table {self.table!r} is not an offset table of this version: it lacks the column "
                f"{', '.join(missing)}. Add {'it' if len(missing) == 1 else 'them'} (topic_id and group_id "
                f"are texts that may be null), or name another table."
            )
        keys = [inspector.get_pk_constraint(self.table, schema=self.schema)["constrained_columns"]]
        keys += [key["column_names"] for key in inspector.get_unique_constraints(self.table, schema=self.schema)]
        for index in inspector.get_indexes(self.table, schema=self.schema):
            partial = any(name.endswith("_where") for name in index.get("dialect_options", ()))
            columns = [name for name in index["column_names"] if name is not None]  # None is an expression
            if index["unique"] and not partial and len(columns) == len(index["column_names"]):
                keys.append(columns)
        if not any(sorted(key) == sorted(_KEY) for key in keys):
            raise ConfigurationError(
                f"OffsetTable: the table {self.table!r} lacks its key, so two writers would each have their own row. "
                f"Of duplicate rows, delete the ones with the lower offset, and add PRIMARY KEY ({', '.join(_KEY)})."
            )

    def _compare(self, tp: TopicPartition, found: Any, planned: ReadRange | None) -> None:
        if planned is None:
            return
        if None not in (found.topic_id, planned.topic_id) and found.topic_id != planned.topic_id:
            raise OtherTopicError.of(self.table, tp, found.topic_id, str(planned.topic_id))
        if None not in (found.group_id, planned.group_id) and found.group_id != planned.group_id:
            raise OtherGroupError.of(self.table, self.consumer, tp, found.group_id, str(planned.group_id))
        if found.next_offset < planned.finished:
            raise TableBehindError.of(self.table, {tp: (Offset(found.next_offset), planned.finished)})

    def _sql(self) -> sa.Table:
        return _table(self.table, self.schema)

    def _locked(self, connection: sa.Connection, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Any]:
        """Lock the rows of partitions that exist, and return them.

        Deliberate: in the order of the bytes of the names, as tasks lock partitions.  Two writers that lock in two
        orders may wait for each other.
        """
        import sqlalchemy as sa

        c = self._sql().c
        in_order = sa.collate(c.topic, "C") if connection.dialect.name == "postgresql" else c.topic
        found: dict[TopicPartition, Any] = {}
        ordered = sorted(partitions)
        for wanted in (ordered[at : at + _MOST_ROWS] for at in range(0, len(ordered), _MOST_ROWS)):
            query = (
                sa.select(c.topic, c.partition, c.next_offset, c.topic_id, c.group_id)
                .where(c.consumer == self.consumer, sa.tuple_(c.topic, c.partition).in_([*map(tuple, wanted)]))
                .order_by(in_order, c.partition)
                .with_for_update()  # SQLite has no row locks, and has locked everything
            )
            found |= {TopicPartition(row.topic, row.partition): row for row in connection.execute(query)}
        return found

    def _insert_unless_there(self, connection: sa.Connection) -> sa.Insert:
        import sqlalchemy as sa

        if connection.dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
        row = {"topic": sa.bindparam("of_topic"), "partition": sa.bindparam("of_partition"), "next_offset": 0}
        # Deliberate: with the key.  The server refuses a table whose key was dropped
        # (`test_a_table_that_has_lost_its_key_is_refused`).
        return (
            insert(self._sql())
            .values(consumer=self.consumer, **row, updated_at=sa.func.now())
            .on_conflict_do_nothing(index_elements=list(_KEY))
        )


@cache
def _table(name: str, schema: str | None) -> sa.Table:
    """Return the table.  Deliberate: one object for all statements, which SQLAlchemy then compiles once."""
    import sqlalchemy as sa

    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("consumer", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("topic_id", sa.Text),
        sa.Column("group_id", sa.Text),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        schema=schema,
    )
