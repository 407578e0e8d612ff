"""Reads records in the user's process, without Spark: the tasks of a batch read, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from pyspark_kafka_group.batch.bookmark import Bookmark
from pyspark_kafka_group.batch.planning import open_lookup, plan
from pyspark_kafka_group.columns.schema import arrow_schema, to_arrow
from pyspark_kafka_group.offsets.errors import MissingDependencyError, OptionError
from pyspark_kafka_group.offsets.task_ranges import TaskSizes
from pyspark_kafka_group.options.batch_settings import BatchSettings, parse_batch
from pyspark_kafka_group.query.process import require_confluent_kafka
from pyspark_kafka_group.read_task import read_task
from pyspark_kafka_group.reading.range_reader import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.formats.batches import TypedReading

_ONE_TASK = TaskSizes(min_records=1 << 62)


def read_arrow(source: Mapping[str, str] | Bookmark) -> pa.RecordBatchReader:
    """See :func:`pyspark_kafka_group.read_arrow`."""
    import pyarrow as pa

    require_confluent_kafka()
    if isinstance(source, Bookmark):
        settings, ranges = source.plan
    else:
        if "show" in {key.lower() for key in source}:
            raise OptionError("show", "read_arrow reads records.", "Remove it, or use spark.read.")
        settings = replace(parse_batch({key: str(value) for key, value in source.items()}), sizes=_ONE_TASK)
        settings.warn_of_ignored_options()
        with closing(open_lookup(settings)) as lookup:
            (ranges,) = plan(settings, lookup)
    typed, schema = _typed(settings)
    where = None
    if settings.where is not None:
        from pyspark_kafka_group.where.filtering import row_filter

        where = row_filter(settings.where, schema)
    options = ReadOptions(
        columns=settings.columns, fail_on_data_loss=settings.fail_on_data_loss, timeout_s=settings.poll_timeout_s
    )
    batches = (
        read_task(ranges, options, typed, where, properties=settings.properties, reader_name=settings.reader_name)
        if ranges
        else iter(())
    )
    if ranges and isinstance(source, Bookmark):
        batches = source.noting(batches)
    return pa.RecordBatchReader.from_batches(schema, _Batches(batches))


class _Batches:
    """An iterator that raises its error again.  A generator would look as if it had been read to its end."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._error: BaseException | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._error is not None:
            raise self._error
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._error = error
            raise


def _typed(settings: BatchSettings) -> tuple[TypedReading | None, pa.Schema]:
    if settings.formats is None:
        return None, arrow_schema(settings.columns)
    if find_spec("pyspark") is None:
        raise MissingDependencyError("pyspark", sys.executable, extra="spark")
    from pyspark_kafka_group.formats.batches import typed_reading
    from pyspark_kafka_group.formats.planning import typed_schema

    schema = typed_schema(settings.columns, settings.formats)
    return typed_reading(settings.formats, settings.columns, schema), to_arrow(schema)
