"""The faster producer: C code passes rows from Arrow buffers to librdkafka, without a Python object for each row.

It uses the public C interface of the library that confluent-kafka has loaded.  librdkafka reports errors and failed
records by callbacks in :meth:`_poll`, on the task's thread.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.cluster.properties.client_config import client_error
from pyspark_kafka_group.columns.librdkafka_library import (
    FATAL,
    PRODUCER,
    TEXT_BYTES,
    LibrdkafkaHandle,
    OnError,
    RefusedError,
    address,
    kafka_error,
    text_of,
)
from pyspark_kafka_group.columns.native_library import POINTER, TEXT, Signatures
from pyspark_kafka_group.offsets.client_log import ClientLog
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.writing.delivery_errors import delivery_error
from pyspark_kafka_group.writing.native_rows import (
    PRODUCE,
    PRODUCER_FUNCTIONS,
    ProducerColumn,
    ProducerFunctions,
    ProducerRows,
    binary_column,
    buffer_address,
    numbers_column,
)
from pyspark_kafka_group.writing.producer import FULL_WAIT_S, SinkProducer, log
from pyspark_kafka_group.writing.record_rows import Rows
from pyspark_kafka_group.writing.send_window import SendWindow

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_PURGE = 3  # RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT
_QUEUE_FULL = -184
_NO_MEMORY = -1
_INIT_MS = 60_000
_CONNECT_S = 1.0  # how long to wait for a broker before asking for a producer id anyway
_POLL_MS = 1  # while records leave
_NO_LIMIT = 2**31 - 1
_INT, _INT32, _SIZE = ctypes.c_int, ctypes.c_int32, ctypes.c_size_t


class _Message(ctypes.Structure):
    """The beginning of rd_kafka_message_t, whose layout is part of librdkafka's stable interface."""

    _fields_ = (("err", _INT), ("topic", POINTER), ("partition", _INT32))


class _Metadata(ctypes.Structure):
    """rd_kafka_metadata_t."""

    _fields_ = (
        ("broker_count", _INT),
        ("brokers", POINTER),
        ("topic_count", _INT),
        ("topics", POINTER),
        ("answered_by", _INT32),
        ("name", POINTER),
    )


_OnDelivery = ctypes.CFUNCTYPE(None, POINTER, ctypes.POINTER(_Message), POINTER)

SIGNATURES: Signatures = {
    "rd_kafka_conf_set_dr_msg_cb": (None, (POINTER, _OnDelivery)),
    "rd_kafka_topic_new": (POINTER, (POINTER, TEXT, POINTER)),
    "rd_kafka_topic_name": (TEXT, (POINTER,)),
    "rd_kafka_topic_destroy": (None, (POINTER,)),
    "rd_kafka_poll": (_INT, (POINTER, _INT)),
    "rd_kafka_flush": (_INT, (POINTER, _INT)),
    "rd_kafka_purge": (_INT, (POINTER, _INT)),
    "rd_kafka_outq_len": (_INT, (POINTER,)),
    "rd_kafka_metadata": (_INT, (POINTER, _INT, POINTER, ctypes.POINTER(ctypes.POINTER(_Metadata)), _INT)),
    "rd_kafka_metadata_destroy": (None, (ctypes.POINTER(_Metadata),)),
    "rd_kafka_init_transactions": (POINTER, (POINTER, _INT)),
    "rd_kafka_begin_transaction": (POINTER, (POINTER,)),
    "rd_kafka_last_error": (_INT, ()),
    "rd_kafka_fatal_error": (_INT, (POINTER, TEXT, _SIZE)),
    # Only the C code calls these.
    **{name: (None, ()) for name in PRODUCER_FUNCTIONS.values() if name != "rd_kafka_last_error"},
}
"""The functions of librdkafka that this producer calls in addition to those of every client."""


class NativeProducer(SinkProducer):
    """Writes with its own librdkafka producer."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        library = PRODUCE.library
        assert library is not None
        self._produce = library.kg_produce
        callbacks = {
            "rd_kafka_conf_set_dr_msg_cb": _OnDelivery(self._delivered),
            "rd_kafka_conf_set_error_cb": OnError(self._reported),
        }
        try:
            self._client = LibrdkafkaHandle(PRODUCER, config, SIGNATURES, callbacks, ClientLog(log, config))
        except RefusedError as refused:
            raise client_error(ValueError(str(refused)), config) from None
        self._kafka, self._handle = self._client.kafka, self._client.handle
        self._functions = ProducerFunctions(*(address(self._kafka, name) for name in PRODUCER_FUNCTIONS.values()))
        self._topics: dict[str, int] = {}
        self._window = SendWindow(int(config["queue.buffering.max.messages"]) or _NO_LIMIT)

    def begin_transaction(self) -> None:
        self._connect()
        self._check(self._kafka.rd_kafka_init_transactions(self._handle, _INIT_MS))
        self._check(self._kafka.rd_kafka_begin_transaction(self._handle))

    def _connect(self) -> None:
        """Wait for the answer of a broker whose id librdkafka knows.

        If it asks for the coordinator before that, the request fails and is retried after 0.5 s (librdkafka 2.16.1).
        """
        deadline = Deadline.after(_CONNECT_S)
        while not deadline.passed:
            found = ctypes.POINTER(_Metadata)()
            if self._kafka.rd_kafka_metadata(self._handle, 0, None, ctypes.byref(found), int(_CONNECT_S * 1000)) == 0:
                answered_by = found.contents.answered_by
                self._kafka.rd_kafka_metadata_destroy(found)
                if answered_by >= 0:
                    return

    def send(self, rows: Rows) -> None:
        wanted, alive = self._layout(rows)
        error, at, empty_at = _INT32(), 0, -1
        functions, handle, layout = ctypes.byref(self._functions), self._handle, ctypes.byref(wanted)
        while at < rows.count:
            until = min(rows.count, at + self._window.step)
            self._make_room(until - at)
            at = self._produce(functions, handle, layout, at, until, ctypes.byref(error))
            if error.value == _QUEUE_FULL:
                if empty_at == at:
                    self._refuse_size(*_place(rows, at))
                self._poll(int(FULL_WAIT_S * 1000))
                empty_at = at if self._kafka.rd_kafka_outq_len(handle) == 0 else -1
            elif error.value == _NO_MEMORY:
                raise MemoryError("no memory for the headers of a record")
            else:
                self._poll(0)
                if error.value:
                    self._refuse(self._error(error.value), *_place(rows, at))
            self._raise_failure()
        del alive

    def _make_room(self, rows: int) -> None:
        """Wait until the window has room for ``rows`` rows, at most its step."""
        was_full = False
        while (waiting := self._kafka.rd_kafka_outq_len(self._handle)) + rows > self._window.size:
            was_full = True
            self._poll(_POLL_MS)
            self._raise_failure()
        self._window.add(rows, waiting=waiting, was_full=was_full, now=time.monotonic())

    def flush(self) -> None:
        super().flush()
        self._window.begin_task()

    def _flush(self, timeout_s: float) -> bool:
        self._kafka.rd_kafka_flush(self._handle, int(timeout_s * 1000))
        return bool(self._kafka.rd_kafka_outq_len(self._handle) > 0)

    def close(self) -> None:
        self._kafka.rd_kafka_purge(self._handle, _PURGE)
        self._poll(0)
        for topic in self._topics.values():
            self._kafka.rd_kafka_topic_destroy(topic)
        self._topics.clear()
        self._client.destroy()

    def _layout(self, rows: Rows) -> tuple[ProducerRows, list[Any]]:
        """Return the addresses of the columns, and the objects to keep alive while C code uses them."""
        handles = (POINTER * len(rows.topics))(*(self._topic(name) for name in rows.topics))
        alive: list[Any] = [handles, rows]
        layout = ProducerRows(
            topics=ctypes.addressof(handles),
            topic=numbers_column(rows.topic),
            partition=numbers_column(rows.partition),
            keys=binary_column(rows.key),
            values=binary_column(rows.value),
        )
        if rows.headers is not None:
            entries = rows.headers.values
            keys, values = entries.field(0), entries.field(1)
            alive += [entries, keys, values]
            valid, offsets = rows.headers.buffers()[:2]
            layout.headers = ProducerColumn(buffer_address(offsets), None, buffer_address(valid), rows.headers.offset)
            layout.header_keys, layout.header_values = binary_column(keys), binary_column(values)
        return layout, alive

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            handle = self._kafka.rd_kafka_topic_new(self._handle, name.encode(), None)
            if not handle:
                error = self._error(self._kafka.rd_kafka_last_error())
                raise delivery_error(error, name, -1, self._config)
            self._topics[name] = handle
        return self._topics[name]

    def _poll(self, timeout_ms: int) -> None:
        self._kafka.rd_kafka_poll(self._handle, timeout_ms)
        self._client.serve()

    def _check(self, problem: int | None) -> None:
        """Raise the ``rd_kafka_error_t`` that a call has returned, if there is one."""
        error = self._client.taken(problem)
        if error is not None:
            raise delivery_error(error, "", -1, self._config, self.last_error)

    def _error(self, code: int) -> KafkaError:
        return kafka_error(code, self._kafka.rd_kafka_err2str(code))

    def _transaction_error(self) -> KafkaError | None:
        # librdkafka refuses this, and returns the transaction's error.
        return self._client.taken(self._kafka.rd_kafka_begin_transaction(self._handle))

    def _delivered(self, _handle: int, message: Any, _opaque: int) -> None:
        try:
            found = message.contents
            if found.err:
                topic = text_of(self._kafka.rd_kafka_topic_name(found.topic)) if found.topic else ""
                self._fail(self._error(found.err), topic, found.partition)
        except BaseException as problem:  # ctypes would print it and continue, and the record would be lost
            self._broken_off = problem

    def _reported(self, _handle: int, code: int, reason: bytes, _opaque: int) -> None:
        if code != FATAL:
            self._note(kafka_error(code, reason))
            return
        text = ctypes.create_string_buffer(TEXT_BYTES)
        cause = self._kafka.rd_kafka_fatal_error(self._handle, text, TEXT_BYTES)
        self._note(kafka_error(cause, text.value, fatal=True))


def _place(rows: Rows, at: int) -> tuple[str, int]:
    """Return the topic and the partition of a row; -1 if it has no partition."""
    topic = rows.topics[0 if rows.topic is None else rows.topic[at].as_py()]
    return topic, -1 if rows.partition is None else rows.partition[at].as_py()
