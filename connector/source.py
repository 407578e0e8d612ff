"""The data source and the sink, as Spark finds them.

Spark creates instances in processes of its own, only to ask for the schema or to pickle them, so nothing here
touches Kafka.
"""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from pyspark_kafka_group.columns.schema import spark_schema
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.options.settings import Settings, parse
from pyspark_kafka_group.stream_reader import KafkaGroupStreamReader


class KafkaGroupDataSource(DataSource):
    """``format("kafka-group")``: a stream whose query is a member of a Kafka consumer group; and a sink.

    Parameters
    ----------
    options : dict
        The options of ``readStream``, see ``docs/options.md``; or of ``write`` and ``writeStream``, see
        ``docs/sink-options.md``.

    Notes
    -----
    Which of the two they are is only known when Spark asks for a reader or a writer.  It asks for the schema at
    ``load()``, and never for a write (4.3.0), so that is where options of a source are checked first.
    """

    @cached_property
    def _settings(self) -> Settings:
        """The options of a source.

        Raises
        ------
        OptionError
            At ``load()``, if an option is missing, unknown, malformed, or in conflict with another one.
        """
        return parse(self.options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group"

    def schema(self) -> StructType:
        """Return the columns: those of Spark's own Kafka source."""
        return spark_schema(self._settings.columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader, which joins nothing yet.  Spark calls this in two processes for each query.

        Raises
        ------
        ConfigurationError
            If the user gave the stream a schema that is not the source's own.
        """
        if [f.name for f in schema] != [f.name for f in self.schema()]:
            raise ConfigurationError(
                "The kafka-group source has a fixed schema. Remove .schema(...) and parse the column value instead."
            )
        return KafkaGroupStreamReader(self._settings)

    def reader(self, schema: StructType) -> NoReturn:
        """Refuse ``spark.read``: a group hands out partitions to members that stay."""
        raise ConfigurationError(
            "The kafka-group source has no spark.read. Use spark.readStream with .trigger(availableNow=True) to read "
            "what is there and stop."
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes the rows of a batch job.  Raises :class:`ConfigurationError` for what does not work."""
        from pyspark_kafka_group.writing.writers import KafkaGroupWriter

        return KafkaGroupWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what writes the rows of a stream; with output mode complete, each batch is appended.

        Spark calls this twice for each batch: for the tasks, and to commit.  Raises :class:`ConfigurationError` for
        what does not work.
        """
        from pyspark_kafka_group.writing.writers import KafkaGroupStreamWriter

        del overwrite
        return KafkaGroupStreamWriter(self.options, schema)
