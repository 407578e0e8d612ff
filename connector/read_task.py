"""Runs a task of a stream or a batch read in an executor: reads its ranges and decodes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.task_ranges import Task
from pyspark_kafka_group.query.process import require_confluent_kafka
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import get_ready, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.formats.batches import TypedReading
    from pyspark_kafka_group.where.filtering import RowFilter


def read_task(
    ranges: Task,
    options: ReadOptions,
    typed: TypedReading | None,
    where: RowFilter | None,
    *,
    properties: Mapping[str, str],
    reader_name: str,
) -> Iterator[pa.RecordBatch]:
    """Read the ranges of one task.  Without ranges, only prepare the worker.

    Parameters
    ----------
    ranges : Task
        The ranges to read.
    options : ReadOptions
        How to read them, and the columns of the rows.
    typed : TypedReading or None
        How keys and values are decoded; None if they stay bytes.
    where : RowFilter or None
        Which records become rows; None for all.
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.
    reader_name : str
        The beginning of the clients' names.
    """
    require_confluent_kafka()
    config = reader_config(properties, reader_name)
    if not ranges:
        get_ready(config)
        return iter(())
    columns = options.columns if typed is None else typed.columns
    if where is not None:
        columns = where.columns_to_read(columns)
    batches = read_ranges(config, ranges, replace(options, columns=columns))
    if typed is None:
        return batches if where is None else where.rows(batches, options.columns)
    # Deliberate: not at the top.  A query that reads bytes does not need it, and few queries write dead letters.
    from pyspark_kafka_group.formats.batches import decoded

    send = None
    if typed.formats.dead_letter_topic is not None:
        from pyspark_kafka_group.writing.dead_letters import DeadLetters

        send = DeadLetters(properties, typed.formats.dead_letter_topic, f"{reader_name}-dead-letters").send
    return decoded(batches, typed, send, where)
