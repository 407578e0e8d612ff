"""The data source, as Spark finds it.

Spark creates instances in processes of its own, only to ask for the schema or to pickle them, so nothing here
touches Kafka.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_kafka_group.columns.schema import spark_schema
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.stream_reader import KafkaGroupStreamReader


class KafkaGroupDataSource(DataSource):
    """``format("kafka-group")``: a stream whose query is a member of a Kafka consumer group.

    Parameters
    ----------
    options : dict
        The options of ``readStream``; see ``docs/options.md``.

    Raises
    ------
    OptionError
        At ``load()``, if an option is missing, unknown, malformed, or in conflict with another one.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._settings = parse(options)

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
