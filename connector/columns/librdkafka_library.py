"""Creates consumers of librdkafka through its public C interface, in the library that confluent-kafka has loaded.

Nothing here depends on the layout of confluent-kafka's Python objects.  All calls release the GIL.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.columns.native_library import POINTER, TEXT, Signatures, declare
from pyspark_kafka_group.offsets.client_login import token_feed, without_provider

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from pyspark_kafka_group.offsets.client_log import ClientLog

_CONSUMER = 1  # rd_kafka_type_t
FATAL = -150  # RD_KAFKA_RESP_ERR__FATAL
TEXT_BYTES = 512

_INT, _SIZE = ctypes.c_int, ctypes.c_size_t

OnError = ctypes.CFUNCTYPE(None, POINTER, _INT, TEXT, POINTER)

_SIGNATURES: Signatures = {
    "rd_kafka_conf_new": (POINTER, ()),
    "rd_kafka_conf_destroy": (None, (POINTER,)),
    "rd_kafka_conf_set": (_INT, (POINTER, TEXT, TEXT, TEXT, _SIZE)),
    "rd_kafka_conf_set_error_cb": (None, (POINTER, OnError)),
    "rd_kafka_new": (POINTER, (_INT, POINTER, TEXT, _SIZE)),
    "rd_kafka_name": (TEXT, (POINTER,)),
    "rd_kafka_queue_new": (POINTER, (POINTER,)),
    "rd_kafka_queue_poll": (POINTER, (POINTER, _INT)),
    "rd_kafka_queue_destroy": (None, (POINTER,)),
    "rd_kafka_set_log_queue": (_INT, (POINTER, POINTER)),
    "rd_kafka_event_log": (_INT, (POINTER, ctypes.POINTER(TEXT), ctypes.POINTER(TEXT), ctypes.POINTER(_INT))),
    "rd_kafka_event_destroy": (None, (POINTER,)),
    "rd_kafka_error_code": (_INT, (POINTER,)),
    "rd_kafka_error_string": (TEXT, (POINTER,)),
    "rd_kafka_error_destroy": (None, (POINTER,)),
    "rd_kafka_err2str": (TEXT, (_INT,)),
    "rd_kafka_destroy": (None, (POINTER,)),
    "rd_kafka_oauthbearer_set_token": (
        _INT,
        (POINTER, TEXT, ctypes.c_int64, TEXT, ctypes.POINTER(TEXT), _SIZE, TEXT, _SIZE),
    ),
    "rd_kafka_oauthbearer_set_token_failure": (_INT, (POINTER, TEXT)),
}

_LEVELS = {4: logging.WARNING, 5: logging.INFO, 6: logging.INFO, 7: logging.DEBUG}
"""Maps levels of syslog to Python's levels.  Missing levels are errors."""


def load(signatures: Signatures) -> ctypes.CDLL:
    """Return librdkafka with these functions declared, and those that every client needs.

    Raises
    ------
    AttributeError
        If this installation of confluent-kafka does not export one of the functions.
    """
    from confluent_kafka import cimpl

    # A search for a symbol in the extension module includes its linked libraries.  So this finds the librdkafka that
    # confluent-kafka uses, wherever a wheel or a distribution has installed it.
    return declare(ctypes.CDLL(cimpl.__file__), {**_SIGNATURES, **signatures})


def load_problem(signatures: Signatures) -> str:
    """Return why librdkafka cannot be called; empty if it can."""
    try:
        load(signatures)
    except (AttributeError, OSError) as error:
        return f"this confluent-kafka does not export librdkafka's functions ({error})"
    return ""


def address(library: ctypes.CDLL, name: str) -> int:
    """Return the address of a function, for C code that calls it."""
    return ctypes.cast(getattr(library, name), POINTER).value or 0


def text_of(text: bytes | None) -> str:
    """Return a text of librdkafka as str."""
    return (text or b"").decode(errors="replace")


def kafka_error(code: int, reason: bytes | None, *, fatal: bool = False) -> KafkaError:
    """Return confluent-kafka's object for an error."""
    from confluent_kafka import KafkaError

    return KafkaError(code, text_of(reason) or None, fatal=fatal)


class RefusedError(Exception):
    """librdkafka refuses a property, or cannot create a client.  The text is librdkafka's."""


class LibrdkafkaHandle:
    """A consumer of librdkafka.  One thread at a time uses it.

    Parameters
    ----------
    config : mapping of str to str
        The configuration of the client.
    signatures : Signatures
        Functions to declare in addition to those of every client.
    callbacks : mapping
        The callbacks, by the function that registers each.
    log : ClientLog
        Takes the log lines.

    Raises
    ------
    RefusedError
        If librdkafka refuses the configuration.
    """

    def __init__(
        self, config: Mapping[str, str], signatures: Signatures, callbacks: Mapping[str, Any], log: ClientLog
    ) -> None:
        kafka = self.kafka = load(signatures)
        self._callbacks = callbacks  # kept alive: librdkafka calls them
        self._log = log
        self._tokens = token_feed(config)
        problem = ctypes.create_string_buffer(TEXT_BYTES)
        settings = kafka.rd_kafka_conf_new()
        for name, value in {**without_provider(config), "log.queue": "true"}.items():
            if kafka.rd_kafka_conf_set(settings, name.encode(), value.encode(), problem, TEXT_BYTES) != 0:
                kafka.rd_kafka_conf_destroy(settings)
                raise RefusedError(text_of(problem.value))
        for register, callback in callbacks.items():
            getattr(kafka, register)(settings, callback)
        handle: int | None = kafka.rd_kafka_new(_CONSUMER, settings, problem, TEXT_BYTES)
        if not handle:
            kafka.rd_kafka_conf_destroy(settings)  # rd_kafka_new takes it over only if it succeeds
            raise RefusedError(text_of(problem.value))
        self.handle = handle
        self._name = text_of(kafka.rd_kafka_name(handle))
        # Deliberate: a separate queue.  In the main queue, log lines would wait behind records.  A callback on
        # librdkafka's own threads could come after Python has ended.
        self._log_queue = kafka.rd_kafka_queue_new(handle)
        kafka.rd_kafka_set_log_queue(handle, self._log_queue)
        self._renew_token()

    def serve(self) -> None:
        """Log the new lines of librdkafka, and renew its token in time."""
        self._renew_token()
        self._serve_log()

    def _renew_token(self) -> None:
        # Deliberate: not in a callback.  librdkafka's own threads may call it after Python has ended.
        token = None if self._tokens is None else self._tokens.due()
        if isinstance(token, str):
            self.kafka.rd_kafka_oauthbearer_set_token_failure(self.handle, token.encode())
        elif token is not None:
            problem = ctypes.create_string_buffer(TEXT_BYTES)
            texts = [text.encode() for pair in token.extensions for text in pair]
            if self.kafka.rd_kafka_oauthbearer_set_token(
                self.handle,
                token.text.encode(),
                int(token.expires_at * 1000),
                token.principal.encode(),
                (TEXT * len(texts))(*texts),
                len(texts),
                problem,
                TEXT_BYTES,
            ):
                self.kafka.rd_kafka_oauthbearer_set_token_failure(self.handle, problem.value)

    def _serve_log(self) -> None:
        while line := self.kafka.rd_kafka_queue_poll(self._log_queue, 0):
            facility, text, level = TEXT(), TEXT(), _INT()
            found = self.kafka.rd_kafka_event_log(line, ctypes.byref(facility), ctypes.byref(text), ctypes.byref(level))
            if found == 0:
                python_level = _LEVELS.get(level.value, logging.ERROR)
                self._log.log(python_level, "%s [%s] %s", text_of(facility.value), self._name, text_of(text.value))
            self.kafka.rd_kafka_event_destroy(line)

    def taken(self, problem: int | None) -> KafkaError | None:
        """Convert the ``rd_kafka_error_t`` that a call has returned, and destroy it; None without an error."""
        if not problem:
            return None
        code, reason = self.kafka.rd_kafka_error_code(problem), self.kafka.rd_kafka_error_string(problem)
        found = kafka_error(code, reason)
        self.kafka.rd_kafka_error_destroy(problem)
        return found

    def destroy(self) -> None:
        """Destroy the client.  All its other objects must already be destroyed."""
        self._serve_log()
        # librdkafka keeps a reference to the log queue.  So no late line, perhaps with secrets, goes to stderr.
        self.kafka.rd_kafka_queue_destroy(self._log_queue)
        self.kafka.rd_kafka_destroy(self.handle)
