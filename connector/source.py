"""The data source and the sink, as Spark finds them.

Spark creates instances in processes of its own, only to ask for the schema or to pickle them, so nothing here
touches Kafka.
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

from pyspark_kafka_group.batch_reader import KafkaGroupBatchReader
from pyspark_kafka_group.columns.schema import spark_schema
from pyspark_kafka_group.offsets.errors import ConfigurationError, OptionError
from pyspark_kafka_group.options.batch_settings import BatchSettings, parse_batch, parse_either
from pyspark_kafka_group.options.settings import Settings, parse
from pyspark_kafka_group.stream_reader import KafkaGroupStreamReader
from pyspark_kafka_group.views.schemas import names, schema_of

if TYPE_CHECKING:
    from pyspark_kafka_group.formats.batches import TypedReading


class KafkaGroupDataSource(DataSource):
    """``format("kafka-group")``: a stream whose query is a member of a Kafka consumer group, a batch read, and a sink.

    Spark says which of these it is only when it asks for a reader or a writer.  It asks for the schema at ``load()``,
    and never for a write (4.3.0), so that is where options of a source are checked first.

    Parameters
    ----------
    options : dict
        The options of ``readStream`` or ``read``, see ``docs/options.md``; or of ``write`` and ``writeStream``, see
        ``docs/sink-options.md``.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark makes one instance for each load() and pickles it, so all sources of this load() have the same name.
        self._load = uuid.uuid4().hex

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group"

    def schema(self) -> StructType:
        """Return the columns: those of Spark's own Kafka source, keys and values as their formats say.

        Raises
        ------
        OptionError
            At ``load()``, if an option is missing, unknown, malformed, or in conflict with another one.
        KafkaGroupError
            If a registry does not have or show the schema of a column.
        """
        if self._relayed() is not None:
            from pyspark_kafka_group.control.relay_reader import SCHEMA

            return SCHEMA
        view = self._view()
        if view is not None:
            return schema_of(view)
        settings = parse_either(self.options)
        if settings.formats is None:
            return spark_schema(settings.columns)
        # Deliberate: not at the top.  Who reads bytes has no use for it.
        from pyspark_kafka_group.formats.planning import typed_schema

        return typed_schema(settings.columns, settings.formats)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader, which joins nothing yet.  Spark calls this in two processes for each query.

        Raises
        ------
        OptionError
            If the options are not those of a stream.
        ConfigurationError
            If the user gave the stream a schema that is not the source's own.
        """
        settings = parse(self.options)
        return KafkaGroupStreamReader(settings, _typed(settings, schema), load=self._load)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader, which has looked at nothing yet.

        Raises
        ------
        OptionError
            If the options are not those of a batch read.
        ConfigurationError
            If the user gave a schema that is not the source's own.
        """
        request = self._relayed()
        if request is not None:
            from pyspark_kafka_group.control.relay_reader import RelayReader

            try:
                return RelayReader(request)
            except ValueError as problem:
                remedy = (
                    "The option is internal: pyspark_kafka_group.stop and .register use it with Spark Connect. Remove "
                    "it, or install the same version of pyspark-kafka-group on both sides."
                )
                raise OptionError("controlRequest", str(problem), remedy) from None
        view = self._view()
        if view is not None:
            # Deliberate: not at the top.  It brings what asks the cluster, and most queries have no use for it.
            from pyspark_kafka_group.views.reader import KafkaGroupViewReader

            _check_schema(schema, tuple(names(view)))
            return KafkaGroupViewReader(self.options)
        settings = parse_batch(self.options)
        return KafkaGroupBatchReader(settings, _typed(settings, schema), load=self._load)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes the rows of a batch job.  Raises :class:`ConfigurationError` for what does not work."""
        from pyspark_kafka_group.writers import KafkaGroupWriter

        return KafkaGroupWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what writes the rows of a stream; with output mode complete, each batch is appended.

        Spark calls this twice for each batch: for the tasks, and to commit.  Raises :class:`ConfigurationError` for
        what does not work.
        """
        from pyspark_kafka_group.writers import KafkaGroupStreamWriter

        del overwrite
        return KafkaGroupStreamWriter(self.options, schema)

    def _relayed(self) -> str | None:
        """Return what a client of Spark Connect says to a source process, if this read is nothing but the way there."""
        return next((value for key, value in self.options.items() if key.lower() == "controlrequest"), None)

    def _view(self) -> str | None:
        """Return what to show of the group, if that is what is asked for."""
        shown = next((value for key, value in self.options.items() if key.lower() == "show"), None)
        return None if shown is None else shown.strip().lower()


def _typed(settings: Settings | BatchSettings, schema: StructType) -> TypedReading | None:
    """Return how keys and values are decoded, to give a schema; None if they stay bytes."""
    if settings.formats is None:
        _check_schema(schema, settings.columns)
        return None
    from pyspark_kafka_group.formats.batches import typed_reading

    return typed_reading(settings.formats, settings.columns, schema)


def _check_schema(schema: StructType, columns: tuple[str, ...]) -> None:
    if [field.name for field in schema] != list(columns):
        raise ConfigurationError(
            "The kafka-group source has a fixed schema. Remove .schema(...) and parse the column value instead, "
            "or say with valueFormat what it is."
        )
