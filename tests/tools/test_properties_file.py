"""Properties files: Java's syntax, and Java's names for the properties of librdkafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.cluster.properties.client_config import connecting
from pyspark_kafka_group.cluster.properties.permissions import options_of_the_owner
from pyspark_kafka_group.cluster.properties.secret_references import parse
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.tools.properties_file import of_connection

FILE = r"""
# a comment
! another one
bootstrap.servers = a:1,\
    b:2
  security.protocol:SASL_SSL
sasl.mechanism SCRAM-SHA-512
path=C:\\kafka\u0020x\ty
empty=
key\ with\:both=1

last=x\\
"""


def test_a_file_is_read_as_java_reads_it() -> None:
    assert parse(FILE) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "path": "C:\\kafka x\ty",
        "empty": "",
        "key with:both": "1",
        "last": "x\\",
    }


def test_the_last_of_a_name_counts_and_lines_may_end_as_on_windows() -> None:
    assert parse("a=1\r\na=2\r\nb=3") == {"a": "2", "b": "3"}
    assert parse("a=1\\") == {"a": "1"}


def test_java_writes_a_character_outside_the_bmp_as_two_escapes() -> None:
    """Regression: two halves came of it, and a password with them was a bug of this tool, not a login."""
    assert parse(r"sasl.password=a\uD83D\uDE00b") == {"sasl.password": "a\N{GRINNING FACE}b"}
    assert parse(r"a=\uD83D") == {"a": "\N{REPLACEMENT CHARACTER}"}, "a half alone means nothing"


@given(st.text(max_size=80))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse(text)


def converted(**properties: str) -> dict[str, str]:
    given = {key.replace("_", "."): value for key, value in properties.items()}
    return connecting(of_connection(given, source="client.properties"))


def test_what_says_nothing_of_the_connection_is_left_out() -> None:
    found = converted(
        bootstrap_servers="a:1",
        metadata_broker_list="b:1",
        group_id="etl",
        key_deserializer="org.apache.kafka.common.serialization.StringDeserializer",
        auto_offset_reset="earliest",
        enable_auto_commit="false",
        isolation_level="read_committed",
        ssl_protocol="TLSv1.3",
    )
    assert found == {"bootstrap.servers": "a:1"}


@pytest.mark.parametrize(
    "jaas",
    [
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="p;=x";',
        "org.apache.kafka.common.security.plain.PlainLoginModule required username='al\"ice' password='p;=x';",
    ],
)
def test_a_login_of_java_becomes_a_name_and_a_password(jaas: str) -> None:
    assert converted(sasl_jaas_config=jaas) == {"sasl.username": 'al"ice', "sasl.password": "p;=x"}


def test_other_logins_of_java_are_refused_without_a_secret() -> None:
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required keyTab="s3cret";'
    with pytest.raises(ConfigurationError, match=r"client\.properties: Option 'sasl\.jaas\.config'") as problem:
        converted(sasl_jaas_config=jaas)
    assert "s3cret" not in str(problem.value)


def test_stores_that_are_pem_files_have_librdkafkas_names() -> None:
    found = converted(
        ssl_truststore_type="PEM",
        ssl_truststore_location="/ca.pem",
        ssl_keystore_type="PEM",
        ssl_keystore_location="/me.pem",
        ssl_endpoint_identification_algorithm="",
    )
    assert found == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize("kind", [None, "JKS", "PKCS12"])
def test_stores_that_only_java_reads_are_refused(kind: str | None) -> None:
    given = {"ssl.truststore.location": "/trust.jks", "ssl.truststore.password": "s3cret"}
    if kind:
        given["ssl.truststore.type"] = kind
    with pytest.raises(ConfigurationError, match="PEM file") as problem:
        of_connection(given, source="client.properties")
    assert "s3cret" not in str(problem.value)


def test_a_store_may_have_the_name_of_another_kind() -> None:
    """Regression: names were translated twice, and the second time the kind of the store was missing."""
    given = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/client.jks",
        "ssl.keystore.password": "s3cret",
    }
    found = of_connection(given, source="x")
    assert found == given
    assert connecting(found)["ssl.keystore.location"] == "/client.jks"


def test_librdkafkas_own_names_stay() -> None:
    given = {"bootstrap.servers": "a:1", "sasl.username": "alice", "ssl.ca.location": "/ca.pem"}
    assert of_connection(given, source="x") == given


def test_references_are_left_to_what_opens_the_connection() -> None:
    given = {"bootstrap.servers": "a:1", "sasl.jaas.config": "${file:/secrets/login:jaas}"}
    with options_of_the_owner():
        assert of_connection(given, source="x") == given
    with pytest.raises(ConfigurationError, match=r"x: Option 'sasl\.password': it has a \$\{\.\.\.:\.\.\.\}"):
        of_connection({"sasl.password": "${vault:a}"}, source="x")
