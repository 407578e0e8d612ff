"""The SQL of the offset table."""

from __future__ import annotations

from collections.abc import Mapping
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
        """Wait for other writers of a partition, lock it until the transaction ends, and return its offset.

        Parameters
        ----------
        connection : sqlalchemy.Connection
            A connection in a transaction.
        tp : TopicPartition
            The partition.
        planned : ReadRange, optional
            The batch's range of the partition, to compare the row with.

        Returns
        -------
        Offset
            The next offset to write: every record below it was written.  0 if none was.

        Raises
        ------
        TableBehindError
            If the group has finished more than the offset in the row.
        OtherTopicError
            If the row belongs to another topic with this name.
        OtherGroupError
            If the row belongs to another group.
        """
        locked = self._select(tp).with_for_update()  # SQLite has no row locks, and has locked everything
        found = connection.execute(locked).one_or_none()
        if found is None:
            if planned is not None and planned.begun:
                raise TableBehindError.of(self.table, {tp: (None, planned.finished)})
            # Another writer may do the same at this moment: only one row remains, and the second waits for the first.
            made = connection.execute(self._insert_unless_there(connection, tp)).rowcount == 1
            found = connection.execute(locked).one()
            if made:
                return Offset(found.next_offset)
        if planned is not None:
            self._compare(tp, found, planned)
        return Offset(found.next_offset)

    def store(
        self, connection: sa.Connection, tp: TopicPartition, next_offset: Offset, planned: ReadRange | None = None
    ) -> None:
        """Set the offset of a partition that this transaction has locked, and the owner that ``planned`` names."""
        import sqlalchemy as sa

        table = self._sql()
        values = {"next_offset": next_offset, "updated_at": sa.func.now()}
        if planned is not None:
            owner = {"topic_id": planned.topic_id, "group_id": planned.group_id}
            values |= {name: value for name, value in owner.items() if value is not None}
        stored = connection.execute(table.update().where(*self._of(table, tp)).values(values))
        if stored.rowcount != 1:
            raise RuntimeError(f"{self.table}: the row of {self.consumer!r}, {tp} was deleted while it was locked")

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

    def _compare(self, tp: TopicPartition, found: Any, planned: ReadRange) -> None:
        if None not in (found.topic_id, planned.topic_id) and found.topic_id != planned.topic_id:
            raise OtherTopicError.of(self.table, tp, found.topic_id, str(planned.topic_id))
        if None not in (found.group_id, planned.group_id) and found.group_id != planned.group_id:
            raise OtherGroupError.of(self.table, self.consumer, tp, found.group_id, str(planned.group_id))
        if found.next_offset < planned.finished:
            raise TableBehindError.of(self.table, {tp: (Offset(found.next_offset), planned.finished)})

    def _sql(self) -> sa.Table:
        return _table(self.table, self.schema)

    def _of(self, table: sa.Table, tp: TopicPartition) -> tuple[sa.ColumnElement[bool], ...]:
        c = table.c
        return (c.consumer == self.consumer, c.topic == tp.topic, c.partition == tp.partition)

    def _select(self, tp: TopicPartition) -> sa.Select[Any]:
        import sqlalchemy as sa

        table = self._sql()
        return sa.select(table.c.next_offset, table.c.topic_id, table.c.group_id).where(*self._of(table, tp))

    def _insert_unless_there(self, connection: sa.Connection, tp: TopicPartition) -> sa.Insert:
        if connection.dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
        from sqlalchemy import func

        row = {"consumer": self.consumer, "topic": tp.topic, "partition": tp.partition, "next_offset": 0}
        # Deliberate: with the key.  The server refuses a table whose key was dropped
        # (`test_a_table_that_has_lost_its_key_is_refused`).
        return (
            insert(self._sql()).values(**row, updated_at=func.now()).on_conflict_do_nothing(index_elements=list(_KEY))
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
