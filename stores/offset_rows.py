"""The rows of the offset table: how they are made, locked, raised, read and deleted.  The SQL, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.types import Offset, TopicPartition

if TYPE_CHECKING:
    import sqlalchemy as sa


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRows:
    """The rows of one consumer.

    Attributes
    ----------
    consumer : str
        Whose offsets these are.
    table : str
        The table's name.
    schema : str or None
        Its schema; None for the database's default.
    """

    consumer: str
    table: str
    schema: str | None = None

    def create(self, connection: sa.Connection) -> None:
        """Create the table unless it is there."""
        import sqlalchemy as sa

        if sa.inspect(connection).has_table(self.table, schema=self.schema):
            return  # whoever may not create tables may still use one
        connection.execute(sa.schema.CreateTable(self._sql(), if_not_exists=True))

    def lock(self, connection: sa.Connection, tp: TopicPartition) -> Offset:
        """Wait for other writers of a partition, keep them out until the transaction ends, and return its offset.

        Returns
        -------
        Offset
            The next one to write: every record below it was written.  0 where nothing was.
        """
        locked = self._select(tp).with_for_update()  # SQLite has none, and has locked everything
        found = connection.execute(locked).scalar()
        if found is None:
            # Another writer may do the same at this moment: only one row stays, and the second waits for the first.
            connection.execute(self._insert_unless_there(connection, tp))
            found = connection.execute(locked).scalar_one()
        return Offset(found)

    def store(self, connection: sa.Connection, tp: TopicPartition, next_offset: Offset) -> None:
        """Set the offset of a partition that this transaction has locked."""
        import sqlalchemy as sa

        table = self._sql()
        stored = connection.execute(
            table.update().where(*self._of(table, tp)).values(next_offset=next_offset, updated_at=sa.func.now())
        )
        if stored.rowcount != 1:
            raise RuntimeError(f"{self.table}: the row of {self.consumer!r}, {tp} was deleted while it was locked")

    def read(self, connection: sa.Connection) -> Mapping[TopicPartition, Offset]:
        """Return all offsets of the consumer."""
        table = self._sql()
        query = table.select().where(table.c.consumer == self.consumer).order_by(table.c.topic, table.c.partition)
        return {TopicPartition(r.topic, r.partition): Offset(r.next_offset) for r in connection.execute(query)}

    def forget(self, connection: sa.Connection, topic: str) -> int:
        """Delete the offsets of a topic; return of how many partitions there were any."""
        table = self._sql()
        condition = (table.c.consumer == self.consumer, table.c.topic == topic)
        return connection.execute(table.delete().where(*condition)).rowcount

    def _sql(self) -> sa.Table:
        import sqlalchemy as sa

        return sa.Table(
            self.table,
            sa.MetaData(),
            sa.Column("consumer", sa.Text, primary_key=True),
            sa.Column("topic", sa.Text, primary_key=True),
            sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("next_offset", sa.BigInteger, nullable=False),
            sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
            schema=self.schema,
        )

    def _of(self, table: sa.Table, tp: TopicPartition) -> tuple[sa.ColumnElement[bool], ...]:
        c = table.c
        return (c.consumer == self.consumer, c.topic == tp.topic, c.partition == tp.partition)

    def _select(self, tp: TopicPartition) -> sa.Select[Any]:
        import sqlalchemy as sa

        table = self._sql()
        return sa.select(table.c.next_offset).where(*self._of(table, tp))

    def _insert_unless_there(self, connection: sa.Connection, tp: TopicPartition) -> sa.Insert:
        if connection.dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
        from sqlalchemy import func

        row = {"consumer": self.consumer, "topic": tp.topic, "partition": tp.partition, "next_offset": 0}
        return insert(self._sql()).values(**row, updated_at=func.now()).on_conflict_do_nothing()
