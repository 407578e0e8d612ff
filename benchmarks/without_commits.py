"""``format("kafka-group-without-commits")``: our source, but its commits succeed at once and are never sent.

This is no option, because only a benchmark needs it.  The source process replaces the two methods of its committer that
send requests to Kafka.  Planning, state machine, offsets and reading are the same code, and the group thread handles
each commit as successful.  So the difference to ``kafka-group`` is the whole cost of a transaction per batch.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pyspark_kafka_group.cluster.committer import TransactionalCommitter
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.source import KafkaGroupDataSource
from pyspark_kafka_group.stream_reader_42 import KafkaGroupStreamReader


class WithoutCommitsDataSource(KafkaGroupDataSource):
    """Takes the options of ``kafka-group``, with ``commitMode=transaction``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group-without-commits"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that switches commits off in its source process."""
        return _Reader(parse(self.options))


class _Reader(KafkaGroupStreamReader):
    def prepareForTriggerAvailableNow(self) -> None:
        switch_off_commits()
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        switch_off_commits()
        return super().latestOffset(start, limit)


def switch_off_commits() -> None:
    """Let all transactional committers of this process succeed without a request to Kafka."""

    def no_commit(_self: TransactionalCommitter, _offsets: object, _group_metadata: bytes) -> None:
        pass

    def no_preparation(_self: TransactionalCommitter) -> None:
        pass

    # setattr, because a type checker refuses an assignment to a method, and is right elsewhere.
    for name, replacement in {"commit": no_commit, "prepare": no_preparation}.items():
        setattr(TransactionalCommitter, name, replacement)
