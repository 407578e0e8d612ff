"""The schema that a user gives the source (a table in SQL needs one), and which sources read the same."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from typing import Any

import pytest

from pyspark_kafka_group.errors import ConfigurationError
from pyspark_kafka_group.formats.ddl import struct_type
from pyspark_kafka_group.source import KafkaGroupDataSource
from pyspark_kafka_group.stream_reader import StreamReader

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


def stream(**options: str) -> StreamReader:
    """Return the stream reader of a new instance, as Spark Connect makes it for each use of one ``load()``."""
    source = KafkaGroupDataSource({**RECORDS, **options})
    found = source.streamReader(source.schema())
    assert isinstance(found, StreamReader)
    return found


@pytest.mark.parametrize(
    ("options", "schema", "problem"),
    [
        ({"kafka.bootstrap.servers": "x:1", "subscribe": "t"}, None, r"Option 'kafka\.group\.id': it is missing"),
        (RECORDS, "value STRING", r"Remove \.schema"),
    ],
)
def test_wrong_options_of_a_stream_are_the_only_error(
    options: dict[str, str], schema: str | None, problem: str
) -> None:
    """Regression: Spark raised an UnboundLocalError below the error, because `streamReader` itself had failed."""
    source = KafkaGroupDataSource(options)
    given = source.schema() if schema is None else struct_type(schema)
    reader: Any = pickle.loads(pickle.dumps(source.streamReader(given)))
    for call in (
        reader.initialOffset,
        reader.latestOffset,
        partial(reader.latestOffset, {}, None),
        reader.getDefaultReadLimit,
        partial(reader.partitions, {}, {}),
        partial(reader.read, None),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            call()
    reader.stop()


def test_each_batch_load_has_a_plan_of_its_own() -> None:
    """A second `load()` reads the newest records."""
    one, two = (KafkaGroupDataSource(RECORDS) for _ in range(2))
    assert one._load != two._load


def test_the_condition_is_parsed_once_for_all_processes_of_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each process that Spark starts for a query parsed it again, which took 0.4 s each time."""
    source = KafkaGroupDataSource({**RECORDS, "where": "key = 'eu'"})
    schema = source.schema()
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    for _ in range(2):
        in_another = pickle.loads(pickle.dumps(source))
        assert in_another.reader(schema)._where == in_another.streamReader(schema)._where == source._where is not None
