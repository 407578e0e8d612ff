"""Options are input from others: what they may do is for the owner of the process to allow, in one variable."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka.cimpl
import pytest

from pyspark_kafka_group.cluster.properties.client_config import connecting
from pyspark_kafka_group.cluster.properties.java_security import LEFT_OUT, TRANSLATED
from pyspark_kafka_group.cluster.properties.kafka_properties import PROPERTIES
from pyspark_kafka_group.cluster.properties.permissions import (
    AZURE_URL,
    TABLE,
    VARIABLE,
    Kind,
    check_allowed,
    options_of_the_owner,
)
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.options.table import OPTIONS
from pyspark_kafka_group.source import KafkaGroupDataSource
from pyspark_kafka_group.wire.login import known_secrets
from pyspark_kafka_group.wire.login.token_cache import PROVIDER
from pyspark_kafka_group.writing.options import WRITE_OPTIONS, parse_write_options

Allow = Callable[..., None]

BASE = {"kafka.bootstrap.servers": "b:9092"}
PLAIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "x",
    "kafka.sasl.password": "p",
}
OIDC = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.method": "oidc",
    "kafka.sasl.oauthbearer.client.id": "a",
    "kafka.sasl.oauthbearer.client.secret": "b",
}
URL = "kafka.sasl.oauthbearer.token.endpoint.url"
ASSERTION = "kafka.sasl.oauthbearer.assertion"

PARSERS: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "stream": lambda options: parse({**options, "kafka.group.id": "etl", "subscribe": "orders"}),
    "batch": lambda options: parse_batch({**options, "subscribe": "orders"}),
    "view": lambda options: KafkaGroupDataSource({**options, "kafka.group.id": "g", "show": "lag"}).reader(
        KafkaGroupDataSource({"show": "lag"}).schema()
    ),
    "sink": parse_write_options,
}

ATTACKS = {
    f"kafka.{PROVIDER}": ({f"kafka.{PROVIDER}": "os:system"}, "function:os:system"),
    "kafka.sasl.password": ({**PLAIN, "kafka.sasl.password": "${file:/etc/passwd}"}, "file:/etc/passwd"),
    "kafka.sasl.username": ({**PLAIN, "kafka.sasl.username": "${env:HOME}"}, "env:HOME"),
    URL: ({**OIDC, URL: "http://10.0.0.1/latest"}, "url:http://10.0.0.1/latest"),
    f"{ASSERTION}.file": ({**OIDC, f"{ASSERTION}.file": "/etc/passwd"}, "file:/etc/passwd"),
    f"{ASSERTION}.jwt.template.file": ({**OIDC, f"{ASSERTION}.jwt.template.file": "/x"}, "file:/x"),
    f"{ASSERTION}.private.key.file": ({**OIDC, f"{ASSERTION}.private.key.file": "/x"}, "file:/x"),
    "kafka.sasl.oauthbearer.metadata.authentication.type": (
        {**OIDC, "kafka.sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
        f"url:{AZURE_URL}",
    ),
    "kafka.sasl.kerberos.kinit.cmd": ({"kafka.sasl.kerberos.kinit.cmd": "id > x"}, "command:id > x"),
    "kafka.sasl.kerberos.principal": ({"kafka.sasl.kerberos.principal": "a; id"}, "command:a; id"),
    "kafka.sasl.kerberos.keytab": ({"kafka.sasl.kerberos.keytab": "/$(id)"}, "command:/$(id)"),
}


def refusal(check: Callable[[Mapping[str, str]], Any], options: Mapping[str, str]) -> str:
    try:
        check(options)
    except OptionError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("use", PARSERS)
@pytest.mark.parametrize("option", ATTACKS)
def test_what_the_owner_has_not_allowed_is_refused_at_the_options(use: str, option: str, allow: Allow) -> None:
    given, entry = ATTACKS[option]
    check = PARSERS[use]
    with pytest.raises(OptionError) as refused:
        check({**BASE, **given})
    assert refused.value.option == option
    assert f"If you are the owner, add {entry} to the variable {VARIABLE}" in str(refused.value)
    allow("file:/nothing", entry)
    assert VARIABLE not in refusal(check, {**BASE, **given}), "the rest may be wrong, but this is allowed"


@pytest.mark.parametrize("option", ATTACKS)
def test_what_the_owner_has_not_allowed_is_refused_where_a_client_opens(option: str, allow: Allow) -> None:
    """A process that gets settings from another one has its own variable."""
    given, entry = ATTACKS[option]
    properties = {key.removeprefix("kafka."): value for key, value in {**BASE, **given}.items()}
    with pytest.raises(OptionError, match=VARIABLE):
        connecting(properties)
    if not entry.startswith(("file:/etc/passwd", "env:HOME")):
        allow(entry)
        connecting(properties)


@pytest.mark.parametrize("use", PARSERS)
@pytest.mark.parametrize("key", [key for key, rule in TABLE.items() if rule.kind is Kind.NEVER])
def test_libraries_and_files_of_offsets_are_always_refused(use: str, key: str, allow: Allow) -> None:
    allow("file:/", "command:x", "function:x")
    with options_of_the_owner(), pytest.raises(OptionError, match=f"{re.escape(key)}': .* Remove it"):
        PARSERS[use]({**BASE, f"kafka.{key}": "/x.so"})
    with options_of_the_owner(), pytest.raises(OptionError, match="cannot be set"):
        connecting({"bootstrap.servers": "a", key: "/x.so"})


@pytest.mark.parametrize("use", PARSERS)
def test_the_identity_of_a_machine_of_aws_goes_to_no_broker(use: str) -> None:
    """Regression: the sink handed this to confluent-kafka, which would have sent a token of AWS to any broker."""
    given = {**OIDC, "kafka.sasl.oauthbearer.metadata.authentication.type": "aws_iam"}
    with (
        options_of_the_owner(),
        pytest.raises(OptionError, match=r"aws_iam\. .*set kafka\.sasl\.oauthbearer\.provider=msk"),
    ):
        PARSERS[use]({**BASE, **given})


def test_a_reference_cannot_hide_what_is_not_allowed(allow: Allow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "_read", frozenset())
    monkeypatch.setenv("NAME", "os:system")
    allow("env:NAME")
    with pytest.raises(OptionError, match=r"add function:\[redacted\] to"):
        connecting({"bootstrap.servers": "a", PROVIDER: "${env:NAME}"})


@pytest.mark.parametrize("use", PARSERS)
def test_an_error_about_a_url_shows_no_password(use: str) -> None:
    """Regression: the error quoted the whole URL."""
    for url in ("https://etl:s3cr3t@idp.example/t", "https://etl:s3/cr3t@idp.example/t", "https://etl:s3?cr3t@idp/t"):
        has_user = r"it has a user or a password.*\.client\.secret"
        with pytest.raises(OptionError, match=has_user) as refused, options_of_the_owner():
            PARSERS[use]({**BASE, **OIDC, URL: url})
        assert "s3" not in str(refused.value)
    for url in (
        "https://idp.example:8443/t?for=kafka@prod",
        "https://[::1]/t?for=kafka@prod",
    ):  # an @ elsewhere is fine
        with options_of_the_owner():
            PARSERS[use]({**BASE, **OIDC, URL: url})
    with pytest.raises(OptionError, match=r"add url:https://idp\.example/t to"):
        PARSERS[use]({**BASE, **OIDC, URL: "https://idp.example/t?code=s3cr3t"})


@pytest.mark.parametrize(
    ("kind", "entry", "allowed", "refused"),
    [
        (Kind.FILE, "/etc/kafka", ["/etc/kafka", "/etc/kafka/a/b"], ["/etc/kafka2", "/etc/kafka/../passwd", "etc"]),
        (Kind.FILE, "/etc/kafka/", ["/etc/kafka/a"], ["/etc/passwd"]),
        (Kind.VARIABLE, "KAFKA_PASSWORD", ["KAFKA_PASSWORD"], ["KAFKA_PASSWORD_2", "HOME"]),
        (Kind.VARIABLE, "KAFKA_*", ["KAFKA_PASSWORD"], ["HOME", "kafka_x"]),
        # From an allowed module, names would lead to every other module that it imports.
        (Kind.FUNCTION, "shop.tokens:token", ["shop.tokens:token"], ["shop.tokens:os.system", "shop.tokens:token.x"]),
        (Kind.FUNCTION, "shop.tokens", [], ["shop.tokens:token"]),
        (Kind.COMMAND, "kinit -R", ["kinit -R"], ["kinit -R; id"]),
        (
            Kind.URL,
            "https://login.example/t1",
            ["https://login.example/t1", "HTTPS://LOGIN.example/t1/token?x=1"],
            [
                "http://login.example/t1",
                "https://login.example/t12",
                "https://login.example.org/t1",
                "https://login.example@evil.org/t1",
                "https://login.example:444/t1",
                "https://login.example/t1/../t2",
                "https://login.example/t1/%2e%2e/t2",
                "https://[login.example/t1",
            ],
        ),
        (Kind.URL, "https://login.example", ["https://login.example", "https://login.example/a"], ["https://x"]),
    ],
)
def test_what_an_entry_allows(kind: Kind, entry: str, allowed: list[str], refused: list[str], allow: Allow) -> None:
    allow("env:SOMETHING", f" {kind.value}:{entry} ")
    for target in allowed:
        check_allowed("x", kind, target, "it does that")
    for target in refused:
        with pytest.raises(OptionError):
            check_allowed("x", kind, target, "it does that")
        with options_of_the_owner():
            check_allowed("x", kind, target, "it does that")


@pytest.mark.parametrize(
    ("provider", "server"),
    [
        ("msk:", "b-1.shop.abc.c2.kafka.eu-west-1.amazonaws.com:9098"),
        ("msk:us-east-1", "boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098"),
        ("entra:shop.servicebus.windows.net", "shop.servicebus.windows.net:9093"),
        ("google", "bootstrap.shop.europe-west1.managedkafka.my-project.cloud.goog:9092"),
        ("databricks:shop", "shop.servicebus.windows.net:9093"),
    ],
)
def test_providers_of_this_package_need_no_permission_for_brokers_of_their_cloud(provider: str, server: str) -> None:
    """Regression: a view of SQL could send a token of the driver's identity to a broker of the attacker."""
    given = {"kafka.bootstrap.servers": server, f"kafka.{PROVIDER}": provider}
    for check in PARSERS.values():
        check(given)
        for changed in (
            {"kafka.bootstrap.servers": f"{server},evil.example:9093"},
            {"kafka.bootstrap.servers": f"evil.example:9093,{server}"},
            {"kafka.bootstrap.servers": server.replace(":", ".evil.example:")},
            {"kafka.bootstrap.servers": "ec2-1.compute.amazonaws.com:9098"},
            {"kafka.security.protocol": "SASL_PLAINTEXT"},
        ):
            with pytest.raises(OptionError, match=re.escape(f"add function:{provider} to")):
                check({**given, **changed})


def test_an_event_log_is_no_file_that_a_program_executes() -> None:
    given = {**BASE, "kafka.group.id": "g", "subscribe": "t"}
    parse({**given, "eventLog": "/tmp/x.jsonl"})
    for path in ("/root/.bashrc", "/etc/cron.d/x", "/x.jsonl/../y.sh"):
        with pytest.raises(OptionError, match=r"^Option 'eventLog': .*does not end in \.jsonl"):
            parse({**given, "eventLog": path})


NAMES_A_PLACE = re.compile(
    r"location|path|file|dir\b|cmd|command|plugin|engine|\burl\b|uri\b|keytab|providers?\b|offset\.store\.method"
)
HARMLESS = {
    "checkpointLocation": "only the names of its files are read",
    "eventLog": "see above",
    "schema.registry.url": "the answer is not sent on",
    "security.providers": "a class of Java, refused",
    "ssl.provider": "a class of Java, refused",
    "ssl.engine.factory.class": "a class of Java, refused",
    "config.providers": "only two fixed values",
    "config.providers.*": "only two fixed values",
    "config.providers.env.class": "only one fixed value",
    "config.providers.file.class": "only one fixed value",
    "ssl.engine.*": "its members are in the table, or name no file",
    "ssl.engine.id": "means nothing without ssl.engine.location",
    "ssl_engine_callback_data": "no text",
}


def names_of_librdkafka(file: Path) -> set[str]:
    libc, library = ctypes.CDLL(None), ctypes.CDLL(confluent_kafka.cimpl.__file__)
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(str(file).encode(), b"w"))
    library.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    return set(re.findall(r"^([a-z][\w.]+) +\|", file.read_text(), re.MULTILINE))


def test_each_property_that_names_a_place_is_decided(tmp_path: Path) -> None:
    known = names_of_librdkafka(tmp_path / "names")
    assert {"plugin.library.paths", "ssl.ca.location"} <= known
    known |= {row.key for row in PROPERTIES} | {row.key for row in LEFT_OUT} | TRANSLATED
    known |= {row.name.removeprefix("schema.registry.") for row in OPTIONS if row.name != "schema.registry.url"}
    known |= {row.name for row in (*OPTIONS, *WRITE_OPTIONS)}
    named = {name for name in known if NAMES_A_PLACE.search(name) and not name.startswith("schema.registry.ssl")}
    assert named - TABLE.keys() - HARMLESS.keys() == set()
