"""Logins with SASL's mechanism GSSAPI (RFC 4752): client and broker authenticate each other with Kerberos.

The package `gssapi` and the system's Kerberos library do the work.  They read ``krb5.conf`` and ask the KDC.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.security import Conversation
from pyspark_kafka_group.wire.threads import start_daemon
from pyspark_kafka_group.wire.types import PropertyError, ProtocolError, RefusedCredentialsError

T = TypeVar("T")

PROPERTIES = frozenset(
    {
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
    }
)
"""The properties of this login."""

_TIMEOUT_S = 10.0
"""How long the KDC may take, unless connecting as a whole has less time."""

_NO_LAYER = b"\1\0\0\0"
"""The client's choice: no security layer, and so no maximum size of protected data (RFC 4752, section 3.1)."""

# Error codes of MIT Kerberos (krb5.h), in the form of the package gssapi.
_NO_KDC = frozenset(code % 2**32 for code in (-1765328228, -1765328230))  # KDC_UNREACH, REALM_CANT_RESOLVE


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """The principals of a login.

    Attributes
    ----------
    service : str
        The first part of the brokers' principals.  The second part is the name of the host.
    principal : str or None
        The client's principal; None for that of the ticket cache.
    keytab : str or None
        The file with the principal's key; None to use tickets of the default cache.
    """

    service: str
    principal: str | None
    keytab: str | None

    def talk(self, host: str, deadline: Deadline) -> Conversation:
        """Log in to the broker on ``host``.

        Raises
        ------
        OSError
            If no KDC answers in time.
        RefusedCredentialsError
            If there is no ticket, the KDC refuses one, or the broker does not prove its identity.
        ProtocolError
            If the broker violates the protocol, or demands a security layer.
        """
        context, message = _within(deadline, partial(self._begin, host))
        while not context.complete:
            message = _checked(context.step, (yield message)) or b""
        offer = _checked(context.unwrap, (yield message)).message
        if len(offer) != 4 or not offer[0] & _NO_LAYER[0]:
            raise ProtocolError("GSSAPI: the broker demands a security layer, but Kafka does not have one")
        yield _checked(context.wrap, _NO_LAYER, False).message

    def _begin(self, host: str) -> tuple[Any, bytes]:
        """Ask the KDC; return a security context and its first token."""
        import gssapi

        flags = gssapi.RequirementFlag
        context = _checked(
            gssapi.SecurityContext,
            usage="initiate",
            name=gssapi.Name(f"{self.service}@{host}", gssapi.NameType.hostbased_service),
            creds=_checked(self._credentials),
            flags=flags.mutual_authentication | flags.out_of_sequence_detection | flags.integrity,
        )
        return context, _checked(context.step) or b""

    def _credentials(self) -> Any:
        import gssapi

        name = None if self.principal is None else gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        if self.keytab is None:
            return gssapi.Credentials(name=name, usage="initiate")
        # The library keeps the tickets in this process's memory, and renews them after half of their lifetime.
        cache = hashlib.sha256(f"{self.principal}\0{self.keytab}".encode()).hexdigest()[:16]
        store = {"client_keytab": self.keytab, "ccache": f"MEMORY:kafka-group-{cache}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


def kerberos_login(config: Mapping[str, str]) -> KerberosLogin:
    """Return how to log in.

    Raises
    ------
    PropertyError
        If the package `gssapi` is missing, or the keytab cannot be read.
    """
    try:
        import gssapi  # noqa: F401
    except ImportError:
        raise PropertyError(
            "sasl.mechanism",
            "it is GSSAPI, which is also the default, and the source needs the package gssapi for Kerberos.",
            "Install pyspark-kafka-group[kerberos] on the driver and the executors, or use another mechanism.",
        ) from None
    service = config.get("sasl.kerberos.service.name", "kafka")
    # As in librdkafka, 0 means that tickets already exist.
    renews = config.get("sasl.kerberos.min.time.before.relogin", "").strip() != "0"
    keytab = config.get("sasl.kerberos.keytab") if renews else None
    if not keytab:
        return KerberosLogin(service, config.get("sasl.kerberos.principal"), None)
    keytab = keytab.removeprefix("FILE:")
    try:
        with open(keytab, "rb"):
            pass
    except OSError as problem:
        raise PropertyError(
            "sasl.kerberos.keytab",
            f"it cannot be read here: {problem.strerror}.",
            "The file must be on the driver and on each executor.",
        ) from None
    return KerberosLogin(service, config.get("sasl.kerberos.principal", "kafkaclient"), keytab)


def _checked(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call the Kerberos library, and convert its errors to ours."""
    from gssapi.exceptions import GSSError

    try:
        return call(*arguments, **named)
    except GSSError as problem:
        reasons = problem.get_all_statuses(problem.min_code, False) or [problem.gen_message()]
        text = f"Kerberos: {'; '.join(reasons)}"
        if problem.min_code in _NO_KDC:
            raise ConnectionError(text) from None
        raise RefusedCredentialsError(text) from None


def _within(deadline: Deadline, work: Callable[[], T]) -> T:
    """Run work that asks the KDC on a thread that can be abandoned, because the library has no such timeout.

    Only one of these threads exists at a time, even if a KDC does not answer.
    """
    turn, left_s = _turn(os.getpid()), min(deadline.left_s, _TIMEOUT_S)
    if not turn.acquire(timeout=max(left_s, 0)):
        raise TimeoutError("the KDC does not answer")
    done: Future[T] = Future()

    def run() -> None:
        try:
            outcome = work()
        except Exception as problem:  # goes to the caller
            turn.release()
            done.set_exception(problem)
        else:
            turn.release()
            done.set_result(outcome)

    try:
        start_daemon(run, "kafka-group-kerberos")
    except OSError:
        turn.release()
        raise
    try:
        return done.result(max(min(deadline.left_s, _TIMEOUT_S), 0))
    except TimeoutError:
        raise TimeoutError("the KDC does not answer") from None


@lru_cache(maxsize=1)
def _turn(_: int) -> threading.Lock:
    # Deliberate: by process.  A lock that was inherited through a fork may be held for ever.
    return threading.Lock()
