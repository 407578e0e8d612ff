"""The schema that a user gives the source: a table in SQL needs one."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.errors import ConfigurationError
from pyspark_kafka_group.formats.ddl import struct_type
from pyspark_kafka_group.source import KafkaGroupDataSource

OPTIONS = {"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g"}
RECORDS = {**OPTIONS, "subscribe": "t", "columns": "key,value,offset"}


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (RECORDS, "key BINARY, value STRING, offset BIGINT"),
        (RECORDS, "key BINARY, value BINARY, offset INT"),
        ({**RECORDS, "valueFormat": "string"}, "key STRING, value STRING, offset BIGINT"),
        ({**RECORDS, "valueFormat": "string"}, "key BINARY, value BINARY, offset BIGINT"),
        ({**OPTIONS, "show": "members"}, "group STRING"),
    ],
)
def test_columns_of_other_types_are_refused_before_a_task_reads(options: dict[str, str], wrong: str) -> None:
    """Regression: tasks failed with an internal error of Spark, or the columns had values of another type."""
    source = KafkaGroupDataSource(options)
    source.reader(source.schema())
    with pytest.raises(ConfigurationError, match=r"Remove \.schema"):
        source.reader(struct_type(wrong))


def test_the_error_names_the_columns() -> None:
    with pytest.raises(ConfigurationError, match="these columns: key binary, value binary, offset bigint"):
        KafkaGroupDataSource(RECORDS).reader(struct_type("value STRING"))
