"""The registry: which requests it gets, how often, and the errors if it refuses or does not answer."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pyspark_kafka_group.formats import registry
from pyspark_kafka_group.formats.registry import Registry, UnknownSchemaError
from pyspark_kafka_group.offsets.errors import OptionError, SchemaRegistryError
from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer
from tests.formats_samples import descriptor, proto_file


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer("etl:s3cr3t") as found:
        yield found


class Clock:
    """Advances only while the code sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.after: dict[float, Callable[[], object]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.after.get(self.now, lambda: None)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(registry, "time", found)
    return found


def ask(server: SchemaRegistryServer, **more: str) -> Registry:
    given = {"url": server.url, "basic.auth.user.info": "etl:s3cr3t", **more}
    return Registry(given, patience_s=0)


def test_an_id_is_asked_for_once(server: SchemaRegistryServer) -> None:
    number = server.register("orders-value", '"string"')
    registry = ask(server)

    found = [registry.by_id(number), registry.by_id(number)]

    assert found[0] == found[1]
    assert (found[0].id, found[0].kind, found[0].text) == (number, "AVRO", '"string"')
    assert server.requests == [f"/schemas/ids/{number}"]


def test_an_unknown_id_is_not_asked_for_with_each_record(server: SchemaRegistryServer, clock: Clock) -> None:
    registry = ask(server)

    for _ in range(3):
        with pytest.raises(UnknownSchemaError):
            registry.by_id(9)

    assert len(server.requests) == 2  # the second request follows after a second
    assert clock.now == 1


def test_an_id_that_no_registry_can_have_is_unknown_at_once(server: SchemaRegistryServer, clock: Clock) -> None:
    """Regression: the registry answers as for a wrong path.  One record with such an id ended the query."""
    for number in (2**31, 2**32 - 1):
        with pytest.raises(UnknownSchemaError):
            ask(server).by_id(number)
    with pytest.raises(UnknownSchemaError):
        ask(server).by_id(2**31 - 1)

    assert set(server.requests) == {f"/schemas/ids/{2**31 - 1}"}


def test_an_id_that_another_node_of_the_registry_has_first_is_found(server: SchemaRegistryServer, clock: Clock) -> None:
    """Regression: records with this id were malformed, and so were the records of the next 10 s."""
    clock.after[1] = lambda: server.register("orders-value", '"string"')

    assert ask(server).by_id(1).text == '"string"'


def test_many_unknown_ids_do_not_cost_a_wait_each(server: SchemaRegistryServer, clock: Clock) -> None:
    registry = ask(server)
    for number in range(100, 150):
        with pytest.raises(UnknownSchemaError):
            registry.by_id(number)

    assert clock.now == 1
    assert len(server.requests) == 51


def test_a_404_of_a_wrong_path_or_a_proxy_does_not_make_records_malformed(server: SchemaRegistryServer) -> None:
    number = server.register("orders-value", '"string"')
    registry = ask(server, url=f"{server.url}/registry")

    with pytest.raises(SchemaRegistryError, match=r"answers HTTP 404 \(HTTP 404 Not Found\).*schema\.registry\.url"):
        registry.by_id(number)


def test_the_newest_version_and_its_references(server: SchemaRegistryServer) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]}
    server.register("line", json.dumps(line))
    server.register("orders-value", '"int"')
    number = server.register("orders-value", '{"type": "array", "items": "Line"}', references=[("Line", "line", 1)])

    found = ask(server).newest("orders-value")

    assert found.id == number
    assert found.references == (("Line", json.dumps(line)),)


def test_protobuf_comes_as_a_descriptor(server: SchemaRegistryServer) -> None:
    number = server.register("orders-value", descriptor(proto_file()), "PROTOBUF")

    assert ask(server).by_id(number, "PROTOBUF").text == descriptor(proto_file())
    assert server.requests == [f"/schemas/ids/{number}?format=serialized"]


def test_a_registry_that_cannot_convert_returns_descriptors_as_they_were_registered(
    server: SchemaRegistryServer,
) -> None:
    """Apicurio 3.3.3 answers 500 when it shall return what confluent-kafka has registered."""
    server.converts = False
    line, order = descriptor(proto_file("line.proto")), descriptor(proto_file())
    server.register("line", line, "PROTOBUF")
    number = server.register("orders-value", order, "PROTOBUF", [("line.proto", "line", 1)])

    newest, by_id = ask(server).newest("orders-value", "PROTOBUF"), ask(server).by_id(number, "PROTOBUF")

    assert newest == by_id
    assert (newest.text, newest.references) == (order, (("line.proto", line),))


def test_the_text_of_a_file_is_no_descriptor(server: SchemaRegistryServer) -> None:
    """A registry may fail for a moment.  Then the text of a file must not replace the descriptor."""
    server.converts = False
    number = server.register("orders-value", 'syntax = "proto3"; message Order {}', "PROTOBUF")
    registry = ask(server)

    with pytest.raises(SchemaRegistryError, match=r"HTTP 500 \(java.lang.IllegalStateException: Syntax error\)"):
        registry.by_id(number, "PROTOBUF")
    server.converts = True

    assert registry.by_id(number, "PROTOBUF").text.startswith('syntax = "proto3"')
    assert server.requests[-1].endswith("?format=serialized"), "the client has not kept the text"


@pytest.mark.usefixtures("references_allowed")
def test_a_password_can_be_a_reference(server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER", "etl:s3cr3t")
    server.register("orders-value", '"string"')

    assert ask(server, **{"basic.auth.user.info": "${env:REGISTRY_USER}"}).newest("orders-value").id == 1


@pytest.mark.usefixtures("references_allowed")
@pytest.mark.parametrize(
    "url", ["http://${env:TEST_SECRET}", "${env:TEST_SECRET}", "http://h.invalid/${env:TEST_SECRET}"]
)
@pytest.mark.parametrize("secret", ["S3cr3t", "S3cr3t.invalid:1/S3cr3t", "http://S3cr3t:S3cr3t@S3cr3t.invalid/S3cr3t"])
def test_no_error_shows_an_address_behind_a_reference(monkeypatch: pytest.MonkeyPatch, url: str, secret: str) -> None:
    """Regression: the errors named the address, so who wrote options could read any allowed file."""
    monkeypatch.setenv("TEST_SECRET", secret)
    with pytest.raises((OptionError, SchemaRegistryError)) as raised:
        Registry({"url": url}, patience_s=0).newest("orders-value")
    assert "s3cr3t" not in str(raised.value).lower()


@pytest.mark.usefixtures("references_allowed")
def test_a_reference_that_leads_nowhere_names_the_option(server: SchemaRegistryServer) -> None:
    with pytest.raises(OptionError, match=r"'schema\.registry\.basic\.auth\.user\.info'.*no variable 'NO_SUCH'"):
        ask(server, **{"basic.auth.user.info": "${env:NO_SUCH}"})


def test_a_token_is_sent() -> None:
    with SchemaRegistryServer() as server:
        server.register("orders-value", '"string"')
        Registry({"url": server.url, "bearer.auth.token": "t0ken"}, patience_s=0).newest("orders-value")

        assert server.authorization == ["Bearer t0ken"]


@pytest.mark.parametrize("wrong", [{"basic.auth.user.info": "etl:wr0ng"}, {"bearer.auth.token": "wr0ng"}])
def test_a_registry_that_refuses_is_an_error_without_the_password(
    server: SchemaRegistryServer, wrong: dict[str, str]
) -> None:
    with pytest.raises(SchemaRegistryError) as raised:
        Registry({"url": server.url, **wrong}, patience_s=0).newest("orders-value")

    assert len(server.requests) == 1
    assert str(raised.value) == (
        f"The schema registry {server.url} refuses to show subject 'orders-value' (HTTP 401). Check "
        "schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token, and that this user "
        "may read schemas."
    )


@pytest.mark.usefixtures("references_allowed")
def test_a_password_that_was_changed_is_read_again(tmp_path: Path) -> None:
    secret = tmp_path / "registry"
    secret.write_text("etl:0ld")
    with SchemaRegistryServer("etl:n3w") as server:
        number = server.register("orders-value", '"string"')
        registry = ask(server, **{"basic.auth.user.info": f"${{file:{secret}}}"})
        with pytest.raises(SchemaRegistryError, match="HTTP 401"):
            registry.by_id(number)
        secret.write_text("etl:n3w")

        assert registry.by_id(number).text == '"string"'


@pytest.mark.parametrize("user", ["etl:s3cr3t", "etl:s3c@r3t", "s3c@r3t", "etl:s3c:r3t"])
def test_a_user_in_the_url_is_not_shown(user: str) -> None:
    with SchemaRegistryServer() as server:
        url = server.url.replace("//", f"//{user}@")

    with pytest.raises((SchemaRegistryError, OptionError)) as raised:
        Registry({"url": url}, patience_s=0).by_id(1)

    assert "r3t" not in str(raised.value)
    assert "s3c" not in str(raised.value)
    assert server.url in str(raised.value) or user != "etl:s3cr3t"


def test_a_registry_that_is_down_is_asked_again_and_then_an_error(server: SchemaRegistryServer) -> None:
    server.down = True
    registry = Registry({"url": server.url}, patience_s=1.5)

    with pytest.raises(
        SchemaRegistryError, match=r"answers HTTP 503 \(not now\) when it is asked for schema 1, since 1\.5 s"
    ):
        registry.by_id(1)

    assert len(server.requests) >= 2


@pytest.mark.parametrize("status", [500, 501, 400])
def test_an_error_of_the_registry_is_said_and_soon(status: int, server: SchemaRegistryServer, clock: Clock) -> None:
    """Regression: the query retried for 30 s, and then called the registry unreachable."""
    server.error = status

    with pytest.raises(SchemaRegistryError) as raised:
        Registry({"url": server.url}).newest("orders-value")

    assert str(raised.value).startswith(
        f"The schema registry {server.url} answers HTTP {status} (Error in the backend datastore) when it is asked for "
        f"subject 'orders-value', since 5 s. "
    )
    assert "reach" not in str(raised.value)
    assert clock.now == 5


@pytest.mark.parametrize(("status", "seconds"), [(500, 4), (429, 29), (502, 29), (503, 29), (504, 29)])
def test_a_registry_that_is_well_again_is_asked_again(
    status: int, seconds: int, server: SchemaRegistryServer, clock: Clock
) -> None:
    number = server.register("orders-value", '"string"')
    server.error = status
    clock.after[seconds] = lambda: setattr(server, "error", None)

    assert Registry({"url": server.url, "basic.auth.user.info": "etl:s3cr3t"}).by_id(number).text == '"string"'


def test_what_is_no_answer_of_a_registry_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, the answer is a login page for people."""
    with SchemaRegistryServer() as server:
        found = Registry({"url": server.url}, patience_s=0)
        monkeypatch.setattr(found._clients[None], "get_schema", lambda *_, **__: json.loads("<html>"))

        with pytest.raises(SchemaRegistryError, match=r"gives no usable answer \(Expecting value"):
            found.by_id(1)


def test_the_newest_version_is_asked_for_each_time(server: SchemaRegistryServer) -> None:
    """Regression: a second load() of a session got the version of the first one."""
    found = ask(server)
    server.register("orders-value", '"int"')
    before = found.newest("orders-value")
    server.register("orders-value", '"long"')

    assert before.text == '"int"'
    assert found.newest("orders-value").text == '"long"'


def test_unknown_ids_take_a_limited_amount_of_memory(
    server: SchemaRegistryServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_MOST_REMEMBERED", 5)
    found = ask(server)
    for number in [*range(100, 110), 106, 100]:
        with pytest.raises(UnknownSchemaError):
            found.by_id(number)

    assert list(found._unknown) == [106, 107, 108, 109, 100]
    assert len(server.requests) == 12  # the first id takes two requests; 106 is in the cache, and 100 no longer is


def test_what_the_client_refuses_names_the_options() -> None:
    with pytest.raises(OptionError, match=r"schema\.registry"):
        Registry({"url": "registry:8081"})


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the options to connect to a registry that requires a client certificate."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = authority.issue_cert("me@example.org")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "me.crt")
    key = load_pem_private_key(mine.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"k3y"))
    (tmp_path / "me.key").write_bytes(encrypted)
    with SchemaRegistryServer(tls=context) as server:
        server.register("orders-value", '"string"')
        yield {
            "url": server.url,
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "me.crt"),
            "ssl.key.location": str(tmp_path / "me.key"),
            "ssl.key.password": "k3y",
        }


def test_mutual_tls(secured: dict[str, str]) -> None:
    assert Registry(secured, patience_s=0).newest("orders-value").id == 1


@pytest.mark.parametrize(
    "name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"]
)
def test_each_part_of_mutual_tls_counts(name: str, secured: dict[str, str]) -> None:
    wrong = {key: value for key, value in secured.items() if key != name}
    if name == "ssl.key.password":
        wrong[name] = "wr0ng"  # without a password, OpenSSL would prompt for it at the terminal

    with pytest.raises((OptionError, SchemaRegistryError)) as raised:
        Registry(wrong, patience_s=0).newest("orders-value")

    assert "wr0ng" not in str(raised.value)


def test_a_schema_that_was_asked_for_in_another_format_is_asked_for_again(server: SchemaRegistryServer) -> None:
    """Regression: the client kept the text, and valid records of Protobuf were malformed until the worker ended."""
    number = server.register("orders-value", descriptor(proto_file()), "PROTOBUF")
    registry = ask(server)

    registry.by_id(number, "AVRO")  # a record of an Avro column names this id

    assert registry.by_id(number, "PROTOBUF").text == descriptor(proto_file())
    assert server.requests == [f"/schemas/ids/{number}", f"/schemas/ids/{number}?format=serialized"]
