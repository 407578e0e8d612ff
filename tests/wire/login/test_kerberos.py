"""GSSAPI with a fake Kerberos library.  `integration/test_kerberos.py` uses a real KDC."""

from __future__ import annotations

import enum
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login import kerberos
from pyspark_kafka_group.wire.login.kerberos import KerberosLogin, kerberos_login
from pyspark_kafka_group.wire.login.properties import security_of
from pyspark_kafka_group.wire.types import PropertyError, ProtocolError, RefusedCredentialsError

SASL = {"security.protocol": "SASL_PLAINTEXT"}


class GSSError(Exception):
    def __init__(self, min_code: int) -> None:
        super().__init__()
        self.min_code = min_code

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        assert code == self.min_code
        assert not is_major
        return ["Server not found"]


class Library:
    """The settings of the fake library, and the arguments that it has received."""

    def __init__(self) -> None:
        self.tokens: list[bytes | None] = [b"first", None]
        self.offer = b"\x01\0\0\0"
        self.problem = 0
        self.given: list[Any] = []
        self.store: dict[str, str] | None = None
        self.go_on = threading.Event()
        self.go_on.set()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()

    class Context:
        def __init__(self, **given: Any) -> None:
            made.given.append(given["name"])
            self._tokens = iter(made.tokens)
            self.steps = 0

        @property
        def complete(self) -> bool:
            return self.steps == len(made.tokens)

        def step(self, token: bytes | None = None) -> bytes | None:
            made.go_on.wait(10)
            if made.problem:
                raise GSSError(made.problem)
            self.steps += 1
            made.given.append(token)
            return next(self._tokens)

        def unwrap(self, message: bytes) -> SimpleNamespace:
            made.given.append(message)
            return SimpleNamespace(message=made.offer)

        def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
            assert not encrypt
            return SimpleNamespace(message=b"wrapped " + message)

    def credentials(*, name: object, usage: str, store: dict[str, str] | None = None) -> object:
        made.given.append(name)
        made.store = store
        return object()

    gssapi: Any = ModuleType("gssapi")
    gssapi.RequirementFlag = enum.IntFlag(  # type: ignore[misc]
        "RequirementFlag", ["mutual_authentication", "out_of_sequence_detection", "integrity"]
    )
    gssapi.NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
    gssapi.Name = lambda name, kind: (name, kind)
    gssapi.Credentials = credentials
    gssapi.SecurityContext = Context
    exceptions: Any = ModuleType("gssapi.exceptions")
    exceptions.GSSError = GSSError
    monkeypatch.setitem(sys.modules, "gssapi", gssapi)
    monkeypatch.setitem(sys.modules, "gssapi.exceptions", exceptions)
    return made


def soon() -> Deadline:
    return Deadline.after(5)


def test_tokens_are_exchanged_and_then_no_layer_is_chosen(library: Library) -> None:
    conversation = KerberosLogin("kafka", "etl", None).talk("b1", soon())
    assert next(conversation) == b"first"
    assert conversation.send(b"proof") == b""  # the empty message lets the broker send its offer
    assert conversation.send(b"offer") == b"wrapped \x01\0\0\0"
    with pytest.raises(StopIteration):
        conversation.send(b"")
    assert library.given == [("etl", "principal"), ("kafka@b1", "service"), None, b"proof", b"offer"]
    assert library.store is None


def test_a_key_tab_is_used_with_tickets_in_memory(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "a.keytab"
    file.write_bytes(b"key")
    config = {"sasl.kerberos.keytab": f"FILE:{file}", "sasl.kerberos.principal": "etl"}
    stores = []
    for more in ({}, {}, {"sasl.kerberos.principal": "other"}):
        next(kerberos_login({**config, **more}).talk("b1", soon()))
        assert library.store is not None
        assert library.store["client_keytab"] == str(file)
        stores.append(library.store["ccache"])
    assert stores[0].startswith("MEMORY:")
    assert stores[0] == stores[1] != stores[2]


@pytest.mark.usefixtures("library")
def test_properties_say_who_logs_in(tmp_path: Path) -> None:
    file = str(tmp_path / "a.keytab")
    Path(file).touch()
    keytab = {"sasl.kerberos.keytab": file}
    assert kerberos_login({}) == KerberosLogin("kafka", None, None)
    assert kerberos_login(keytab) == KerberosLogin("kafka", "kafkaclient", file)
    assert kerberos_login({"sasl.kerberos.principal": "p", "sasl.kerberos.service.name": "k"}) == KerberosLogin(
        "k", "p", None
    )
    never = {"sasl.kerberos.min.time.before.relogin": "0", **keytab}
    assert kerberos_login(never) == KerberosLogin("kafka", None, None)
    with pytest.raises(PropertyError, match=r"^sasl\.kerberos\.keytab: it cannot be read here: No such file"):
        kerberos_login({"sasl.kerberos.keytab": "/nowhere"})


@pytest.mark.parametrize("mechanism", [{}, {"sasl.mechanism": "GSSAPI"}, {"sasl.mechanisms": "GSSAPI"}], ids=str)
def test_without_the_package_an_error_names_the_extra(
    mechanism: dict[str, str], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = security_of(SASL | mechanism).login
    assert login is not None
    assert login.mechanism == "GSSAPI"
    assert next(login.talk("b1", soon())) == b"first"
    assert library.given[1] == ("kafka@b1", "service")
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(PropertyError, match=r"^sasl\.mechanism: .*Install pyspark-kafka-group\[kerberos\]"):
        security_of(SASL | mechanism)


@pytest.mark.parametrize("offer", [b"", b"\x02\0\0\0", b"\x01\0\0"])
def test_a_broker_that_demands_a_layer_is_refused(library: Library, offer: bytes) -> None:
    library.tokens, library.offer = [b"only"], offer
    conversation = KerberosLogin("kafka", None, None).talk("b1", soon())
    next(conversation)
    with pytest.raises(ProtocolError, match="security layer"):
        conversation.send(b"offer")


@pytest.mark.parametrize(
    ("code", "raised"),
    [(7, RefusedCredentialsError), (-1765328228 % 2**32, ConnectionError), (-1765328230 % 2**32, ConnectionError)],
)
def test_errors_of_the_library_are_ours(library: Library, code: int, raised: type[Exception]) -> None:
    library.problem = code
    with pytest.raises(raised, match=r"^Kerberos: Server not found$"):
        next(KerberosLogin("kafka", None, None).talk("b1", soon()))


def test_a_kdc_that_does_not_answer_costs_one_thread(library: Library) -> None:
    library.go_on.clear()
    for _ in range(3):
        with pytest.raises(TimeoutError, match="the KDC does not answer"):
            next(KerberosLogin("kafka", None, None).talk("b1", Deadline.after(0.05)))
    (waiting,) = [thread for thread in threading.enumerate() if thread.name == "kafka-group-kerberos"]
    library.go_on.set()
    waiting.join(10)
    assert next(KerberosLogin("kafka", None, None).talk("b1", soon())) == b"first"


def test_a_forked_process_has_a_turn_of_its_own() -> None:
    assert kerberos._turn(1) is kerberos._turn(1)
    assert kerberos._turn(1) is not kerberos._turn(2)
