"""Writes malformed records unchanged to another topic.  Added headers contain their origin and the error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark_kafka_group.cluster.properties.client_config import value_of
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind, row_of
from pyspark_kafka_group.offsets.errors import DeliveryError
from pyspark_kafka_group.writing.producer import log
from pyspark_kafka_group.writing.producer_cache import lease
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa

_ORIGIN = ("topic", "partition", "offset")

PREFIX = "kafka-group."
"""The prefix of the added headers: topic, partition, offset, error."""

_ACKNOWLEDGEMENTS = frozenset({"acks", "request.required.acks", "enable.idempotence"})

_HEADERS_BYTES = 64 * 1024
"""More than the size of the added headers."""

_MOST_BYTES = 1_000_000_000
"""The largest ``message.max.bytes`` of librdkafka."""

_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})


class DeadLetters:
    """Writes the dead letters of one task.

    Parameters
    ----------
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.  The letters go to the same cluster.
    topic : str
        The topic for dead letters.
    client_id : str
        The client id of the producer.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, client_id: str) -> None:
        own = {key: value for key, value in properties.items() if ClientKind.PRODUCER in row_of(key).applies_to}
        # Deliberate: ignore the user's acknowledgement settings.  A lost letter is a lost record.
        for key in _ACKNOWLEDGEMENTS & own.keys():
            del own[key]
        largest = int(value_of("receive.message.max.bytes", properties)) + _HEADERS_BYTES
        self._properties = {
            "client.id": client_id,
            # The producer must be able to write every record that could be read.  Brokers limit the compressed size of
            # batches.  So a large record that only fits compressed must be compressed here also.
            "max.request.size": str(min(largest, _MOST_BYTES)),
            "buffer.memory": str(2 * largest),
            "compression.type": "zstd",
            **own,
        }
        self._topic = topic

    def send(self, batch: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        """Write the records of some rows, and wait until Kafka has all of them.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            The batch that was read, with the columns of ``formats.batches.columns_to_read``.
        reasons : mapping of int to str
            The rows to write and their errors.

        Raises
        ------
        KafkaGroupError
            If Kafka does not accept a record.
        """
        import pyarrow as pa

        numbers = sorted(reasons)
        taken = batch.take(pa.array(numbers, pa.int64()))
        errors = [reasons[row] for row in numbers]
        try:
            self._write(taken, errors)
        except DeliveryError as problem:
            if problem.code not in _TOO_LARGE:
                raise
            # The topic's limit is for batches.  Each letter alone may fit, but this is much slower.
            for row, error in enumerate(errors):
                self._write_alone(taken.slice(row, 1), error)

    def _write_alone(self, row: pa.RecordBatch, error: str) -> None:
        """Write a letter in a batch of its own; if it is larger than its topic allows, without the added headers.

        Deliberate: a record of the largest size that its topic allows must not end the query, and any producer can
        write one (`test_a_record_of_the_largest_size_becomes_a_dead_letter_without_the_added_headers`).
        """
        try:
            try:
                self._write(row, [error], alone=True)
            except DeliveryError as problem:
                if problem.code not in _TOO_LARGE:
                    raise
                self._write(row, None, alone=True)
                topic, partition, offset = (row.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
                log.warning(
                    "The dead letter of %s-%s, offset %s is too large for its headers in %s, and has none. Set "
                    "max.message.bytes of that topic 65536 higher than those of the topics that the query reads. %s",
                    topic,
                    partition,
                    offset,
                    self._topic,
                    error,
                )
        except DeliveryError as problem:
            if problem.code not in _TOO_LARGE:
                raise
            raise DeliveryError(
                topic=self._topic,
                partition=problem.partition,
                code=problem.code,
                text="a dead letter",
                remedy="Set max.message.bytes of this topic 65536 higher than those of the topics that the query "
                "reads: letters have more headers.",
            ) from None

    def _write(self, taken: pa.RecordBatch, errors: Sequence[str] | None, *, alone: bool = False) -> None:
        """Write records, each with a header for its error and its origin, unless ``errors`` is None."""
        rows = Rows(
            count=taken.num_rows,
            topics=(self._topic,),
            topic=None,
            partition=None,
            key=taken.column("key"),
            value=taken.column("value"),
            headers=_headers(taken, errors),
        )
        size = {"batch.size": "1"} if alone else {}
        with lease(producer_config({**self._properties, **size})) as producer:
            producer.send(rows)
            producer.flush()


def _headers(taken: pa.RecordBatch, errors: Sequence[str] | None) -> pa.ListArray:
    """Return the headers of the letters, as producers take them.

    Deliberate: without a Python object for each old header.  A record of 3 kB may have millions of them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    old = taken.column("headers")
    names = [] if errors is None else [(PREFIX + name).encode() for name in (*_ORIGIN, "error")]
    added = [
        text.encode()
        for *origin, error in zip(*(taken.column(name).to_pylist() for name in _ORIGIN), errors or (), strict=False)
        for text in (*map(str, origin), error)
    ]
    lengths = pc.fill_null(pc.list_value_length(old), 0).to_pylist()
    starts = [0, *accumulate(lengths)]

    def column(of_old: pa.Array, of_added: pa.Array) -> pa.Array:
        parts = [of_old.slice(0, 0)]
        for row, length in enumerate(lengths):
            parts.append(of_old.slice(starts[row], length))
            parts.append(of_added.slice(row * len(names), len(names)))
        return pa.concat_arrays(parts)

    keys, values = old.flatten().flatten()
    fields = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
    columns = [
        column(keys.cast(pa.binary()), pa.array(names * taken.num_rows, pa.binary())),
        column(values, pa.array(added, pa.binary())),
    ]
    ends = [start + row * len(names) for row, start in enumerate(starts)]
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.StructArray.from_arrays(columns, fields=fields))
