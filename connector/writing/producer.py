"""The interface of producers, and the implementation that works everywhere, with Python objects for each row.

`direct_producer` is faster.  A producer belongs to one thread at a time.
"""

from __future__ import annotations

import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark_kafka_group.cluster.properties.clients import ClientLog, create_client
from pyspark_kafka_group.writing.delivery_errors import delivery_error
from pyspark_kafka_group.writing.record_rows import Rows, each

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

    from pyspark_kafka_group.writing.producer_requests import ProducerId

log = logging.getLogger("pyspark_kafka_group.writing")

_FULL_WAIT_S = 0.005  # the pause if the producer is full, which writes some megabytes in this time
_FLUSH_S = 1.0
_INIT_S = 60.0
_FOLLOWS = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT", "_STATE", "_FATAL"})  # consequences of a transaction's error


class SinkProducer(ABC):
    """Writes rows."""

    @abstractmethod
    def begin_transaction(self) -> ProducerId | None:
        """Take over the transactional id and begin a transaction.  Abort an open one of the former owner.

        Returns
        -------
        ProducerId or None
            The producer of the transaction; None if the library does not tell it.

        Raises
        ------
        KafkaGroupError
            If the cluster refuses, or does not answer.
        """

    @abstractmethod
    def send(self, rows: Rows) -> None:
        """Hand over rows for writing.  Wait while the producer is full.

        Raises
        ------
        KafkaGroupError
            If a record could not be written.  It may be an earlier one.
        """

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything is written.

        Raises
        ------
        KafkaGroupError
            If a record could not be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the producer in any state.  Drops unwritten records.  An open transaction stays open."""


class MessageProducer(SinkProducer):
    """Writes with confluent-kafka's producer, with a Python object for each value.

    Parameters
    ----------
    config : mapping of str to str
        The result of `producer_properties.producer_config`, and the transactional id if there is one.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._failed: tuple[KafkaError, str, int] | None = None  # the error, topic and partition
        self._last_error = ""  # reported by the client while it was retrying
        from confluent_kafka import Producer

        settings: dict[str, Any] = {
            **config,
            "delivery.report.only.error": True,  # the binding accepts only a boolean here
            "error_cb": self._note,
            "on_delivery": self._delivered,
            "logger": ClientLog(log, config),
        }
        self._producer: Producer = create_client(Producer, settings, config)

    def begin_transaction(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.init_transactions(_INIT_S)
            self._producer.begin_transaction()
        except KafkaException as problem:
            raise delivery_error(problem.args[0], "", -1, self._config, self._last_error) from None

    def send(self, rows: Rows) -> None:
        from confluent_kafka import KafkaException

        for topic, arguments in each(rows):
            partition = arguments.get("partition", -1)
            was_empty = False
            while True:
                try:
                    self._producer.produce(topic, **arguments)
                    break
                except BufferError:
                    if was_empty:
                        self._refuse_size(topic, partition)
                    self._serve(self._producer.poll)
                    self._raise_failure()
                    was_empty = len(self._producer) == 0
                    time.sleep(_FULL_WAIT_S)
                except KafkaException as problem:
                    self._serve(self._producer.poll)
                    self._refuse(problem.args[0], topic, partition)
        self._serve(self._producer.poll)
        self._raise_failure()

    def flush(self) -> None:
        while len(self._producer):
            self._serve(self._producer.flush, _FLUSH_S)
            self._raise_failure()
        self._serve(self._producer.poll)
        self._raise_failure()
        self._last_error = ""

    def close(self) -> None:
        self._producer.purge()
        self._serve(self._producer.poll)

    def _serve(self, call: Callable[[float], int], timeout_s: float = 0) -> None:
        """Run callbacks."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            call(timeout_s)
        except:  # noqa: E722
            # Deliberate: without a class.  Of fatal errors the binding raises the KafkaError itself, which is no
            # exception in Python's eyes, and breaks off callbacks with a SystemError (2.16.1).
            problem: Any = sys.exc_info()[1]
            found = problem.args[0] if isinstance(problem, KafkaException) else problem
            if isinstance(found, SystemError):
                found = KafkaError(KafkaError._FATAL)
            if not isinstance(found, KafkaError):
                raise
            self._fail(found, "", -1)

    def _raise_failure(self) -> None:
        if self._failed is not None:
            error, topic, partition = self._failed
            if error.name() in _FOLLOWS and "transactional.id" in self._config:
                error = self._transaction_error() or error
            raise delivery_error(error, topic, partition, self._config, self._last_error)

    def _fail(self, error: KafkaError, topic: str, partition: int) -> None:
        """Note the first failure: the others mostly follow from it."""
        if self._failed is None:
            self._failed = error, topic, partition

    def _refuse(self, error: KafkaError, topic: str, partition: int) -> NoReturn:
        """Raise the error for a record that was refused, or the first failure if there was one before."""
        self._fail(error, topic, partition)
        self._raise_failure()
        raise AssertionError("a failure was noted")

    def _refuse_size(self, topic: str, partition: int) -> NoReturn:
        """Raise the error for a record that is larger than the whole buffer, and would wait for ever."""
        from confluent_kafka import KafkaError

        self._refuse(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), topic, partition)

    def _note(self, error: KafkaError) -> None:
        """Note an error that the client reports."""
        self._last_error = f"{error.name()}: {error.str()}"
        if error.fatal():
            self._fail(error, "", -1)

    def _transaction_error(self) -> KafkaError | None:
        from confluent_kafka import KafkaException

        try:
            self._producer.begin_transaction()  # which it refuses, and says why
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            return error
        return None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            partition = message.partition()
            self._fail(error, message.topic() or "", -1 if partition is None else partition)
