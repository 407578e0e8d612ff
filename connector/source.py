"""The data source and the sink: the class that Spark finds.

Spark creates instances in its own processes, only to ask for the schema or to pickle them.  So nothing here connects to
Kafka.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_kafka_group.columns.schema import own_schema, spark_schema, to_arrow
from pyspark_kafka_group.offsets.errors import ConfigurationError, KafkaGroupError
from pyspark_kafka_group.options.settings import Settings, parse
from pyspark_kafka_group.stream_reader import RefusedStreamReader, StreamReader

if TYPE_CHECKING:
    from pyspark_kafka_group.formats.batches import TypedReading
    from pyspark_kafka_group.options.batch_settings import BatchSettings
    from pyspark_kafka_group.where.filtering import RowFilter

# Deliberate: most modules are imported where they are needed.  Spark imports this one in each of its processes for a
# query, also in the executors' workers.


class KafkaGroupDataSource(DataSource):
    """``format("kafka-group")``: a stream whose query is a member of a Kafka consumer group, a batch read, and a sink.

    Spark decides between these only when it asks for a reader or a writer.  It asks for the schema at ``load()``, and
    never for a write (4.3.0).  So :meth:`schema` is the first to check the options of a source.

    Parameters
    ----------
    options : dict
        The options of ``readStream`` or ``read``: see ``docs/options.md``.  Or those of ``write`` and ``writeStream``:
        see ``docs/sink-options.md``.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # For batch reads.  Spark makes one instance for each load() and pickles it, so all planning processes of this
        # load() have the same id.  Spark Connect may make one for each action.
        self._load = uuid.uuid4().hex
        # For the same reason, load() parses the option where for all of them.  That takes 0.4 s in a new process.
        self._where: RowFilter | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group"

    def schema(self) -> StructType:
        """Return the columns of Spark's own Kafka source, with keys and values in their formats.

        Raises
        ------
        OptionError
            At ``load()``, if an option is missing, unknown, malformed, or in conflict with another one.
        KafkaGroupError
            If a schema registry does not return the schema of a column.
        """
        view = self._view()
        if view is not None:
            from pyspark_kafka_group.views.schemas import schema_of

            return schema_of(view)
        from pyspark_kafka_group.options.batch_settings import parse_either

        settings = parse_either(self.options)
        if settings.formats is None:
            schema = spark_schema(settings.columns)
        else:
            from pyspark_kafka_group.formats.planning import typed_schema

            schema = typed_schema(settings.columns, settings.formats)
        self._row_filter(settings, schema)
        return schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that has not joined the group yet.  Spark calls this in two processes for each query.

        If the options are not those of a stream, or the user gave it a schema that is not the source's own, the first
        call of the reader raises the error.
        """
        schema = own_schema(schema)
        try:
            settings = parse(self.options)
            typed = _typed(settings, schema)
            row_filter = self._row_filter(settings, schema)
        except KafkaGroupError as problem:
            return RefusedStreamReader(problem)
        return self._reader_class()(settings, typed, row_filter)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader that has not connected to the cluster yet.

        Raises
        ------
        OptionError
            If the options are not those of a batch read.
        ConfigurationError
            If the user gave a schema that is not the source's own.
        """
        schema = own_schema(schema)
        view = self._view()
        if view is not None:
            from pyspark_kafka_group.views.reader import KafkaGroupViewReader
            from pyspark_kafka_group.views.schemas import schema_of

            _check_schema(schema, schema_of(view))
            return KafkaGroupViewReader(self.options)
        from pyspark_kafka_group.batch_reader import KafkaGroupBatchReader
        from pyspark_kafka_group.options.batch_settings import parse_batch

        settings = parse_batch(self.options)
        typed = _typed(settings, schema)
        return KafkaGroupBatchReader(settings, typed, self._row_filter(settings, schema), load=self._load)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch job.

        Raises
        ------
        ConfigurationError
            If the options, the columns or the save mode are not supported.
        """
        from pyspark_kafka_group.writers import KafkaGroupWriter

        return KafkaGroupWriter(self.options, own_schema(schema), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream.  In output mode complete, it appends each batch.

        Spark calls this twice for each batch: for the tasks, and to commit.

        Raises
        ------
        ConfigurationError
            If the options or the columns are not supported.
        """
        from pyspark_kafka_group.writers import KafkaGroupStreamWriter

        del overwrite
        return KafkaGroupStreamWriter(self.options, own_schema(schema))

    def _reader_class(self) -> type[StreamReader]:
        """Return the reader of streams."""
        return stream_reader_class()

    def _row_filter(self, settings: Settings | BatchSettings, schema: StructType) -> RowFilter | None:
        """Return the parsed option ``where``."""
        if settings.where is not None and self._where is None:
            from pyspark_kafka_group.where.filtering import row_filter

            self._where = row_filter(settings.where, to_arrow(schema))
        return self._where

    def _view(self) -> str | None:
        """Return the option ``show``, the view of a group to read, if it is set."""
        shown = next((value for key, value in self.options.items() if key.lower() == "show"), None)
        return None if shown is None else shown.strip().lower()


def stream_reader_class() -> type[StreamReader]:
    """Return the reader of this Spark.  Deliberate: not by version, because vendors backport features."""
    try:
        from pyspark_kafka_group.stream_reader_42 import KafkaGroupStreamReader
    except ModuleNotFoundError as missing:
        if missing.name != "pyspark.sql.streaming.datasource":
            raise
        from pyspark_kafka_group.stream_reader_40 import OlderStreamReader

        return OlderStreamReader
    return KafkaGroupStreamReader


def _typed(settings: Settings | BatchSettings, schema: StructType) -> TypedReading | None:
    """Return how keys and values are decoded; None if they stay bytes.  Check the schema of the user."""
    if settings.formats is None:
        _check_schema(schema, spark_schema(settings.columns))
        return None
    from pyspark_kafka_group.formats.batches import typed_reading

    return typed_reading(settings.formats, settings.columns, schema)


def _check_schema(schema: StructType, own: StructType) -> None:
    if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in own]:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in own)
        raise ConfigurationError(
            f"The kafka-group source has a fixed schema. Remove .schema(...) and parse the column value instead, "
            f"or set the option valueFormat. A table must have these columns: {columns}."
        )
