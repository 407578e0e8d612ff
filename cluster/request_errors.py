"""The meaning of errors that come over connections of our own.

If a retry can cure the error, this is a :class:`~pyspark_kafka_group.cluster.error_remedies.TryAgainError`.
Otherwise it is the explained error, from the same table as for librdkafka's errors.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from pyspark_kafka_group.cluster.error_remedies import TryAgainError, refusal
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError
from pyspark_kafka_group.wire.types import (
    ProtocolError,
    RefusedCredentialsError,
    StoppedLoginError,
    UnsupportedVersionError,
)


class CommitUnclearError(TryAgainError):
    """The broker may have committed some of the offsets.  Read the committed offsets to find out."""


class RequestErrors:
    """Raises the errors that requests mean.

    Parameters
    ----------
    properties : mapping
        The user's properties, to keep secrets out of texts.
    """

    def __init__(self, properties: Properties) -> None:
        self._properties = properties

    def refuse(self, name: str, what: str, *, group_id: str = "") -> NoReturn:
        """Raise the meaning of Kafka's error ``name``.

        Parameters
        ----------
        name : str
            Kafka's name of the error.
        what : str
            The subject of the question.
        group_id : str
            The group, if there is one.
        """
        self.raise_if_final(name, what, group_id=group_id)
        raise TryAgainError(redact(f"{what}: {name}", self._properties))

    def raise_if_final(self, name: str, what: str, *, group_id: str = "") -> None:
        """Raise the explained error if no retry cures ``name``."""
        final = refusal(name, f"{what}: {name}", group_id=group_id, properties=self._properties)
        if final is not None:
            raise final

    @contextmanager
    def translated(self, what: str) -> Iterator[None]:
        """Raise the meaning of connection errors in the block."""
        refused = None
        try:
            yield
        except StoppedLoginError as problem:
            raise AuthenticationError(str(problem)) from None
        except RefusedCredentialsError as problem:
            refused = str(problem)
        except UnsupportedVersionError as problem:
            raise BrokerError(
                f"Option 'kafka.bootstrap.servers': {problem}. Use a cluster of that version or a newer one."
            ) from None
        except (OSError, ProtocolError) as problem:
            raise TryAgainError(self.text(what, problem)) from None
        if refused is not None:  # outside of the handler, because the inner trace says nothing more
            self.refuse("SASL_AUTHENTICATION_FAILED", refused)

    def text(self, what: str, problem: Exception) -> str:
        """Return a text about a problem, without secrets."""
        said = _said(problem)
        return redact(f"{what}: {said}" if what else said, self._properties)


def _said(problem: Exception) -> str:
    """Return the text of a problem without the numbers and names of the library that reports it."""
    if isinstance(problem, ssl.SSLError) and problem.reason in ("UNEXPECTED_EOF_WHILE_READING", "WRONG_VERSION_NUMBER"):
        return "it does not speak TLS at this port"
    said = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return said or type(problem).__name__


def is_unknown_name(problem: TryAgainError) -> bool:
    """Tell whether no name server knows any of the hosts.  A name server that does not answer is another problem."""
    cause = problem.__context__
    return isinstance(cause, socket.gaierror) and cause.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
