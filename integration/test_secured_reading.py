"""Each of the three clients reads from listeners that encrypt and authenticate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate
from pyspark.sql import SparkSession

from integration.cluster import produce
from integration.pipelines import Pipeline, answered
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.cluster import group_offsets
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.cluster_answers import EpochEnd
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading import direct_client, range_reader
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import LocalKafka, TlsFiles
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from tests.connector.reading.clients import any_client

__all__ = ["any_client"]

RECORDS = 20_000
USER, PASSWORD = "alice", "s3cret-Pa55phrase"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def filled(kafka: LocalKafka) -> None:
    kafka.create_topic("orders", 1)
    produce(kafka.bootstrap_servers, "orders", {0: RECORDS})


@pytest.fixture(scope="module")
def with_users() -> Iterator[LocalKafka]:
    """Yield a broker with a user who has a password for each mechanism, and must log in again every two seconds."""
    reauthentication = {"listener.name.secured.connections.max.reauth.ms": "2000"}
    with LocalKafka(sasl_users={USER: PASSWORD}, properties=reauthentication) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for mechanism in SCRAM.values():  # one request each: a request can alter a user only once
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([wanted])[USER].result(10)
        filled(kafka)
        yield kafka


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority, its certificates of the broker and of a client, and another authority."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other-ca.pem"))
    for name, identity in {"broker": "127.0.0.1", "client": "alice@example.org"}.items():
        made = authority.issue_cert(identity)
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        # Kafka reads this format.
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.pem").write_bytes(pem + b"".join(blob.bytes() for blob in made.cert_chain_pems))
        own, *others = (load_pem_x509_certificate(blob.bytes()) for blob in made.cert_chain_pems)
        assert isinstance(key, EllipticCurvePrivateKey)
        encryption = BestAvailableEncryption(PASSWORD.encode())
        (folder / f"{name}.p12").write_bytes(serialize_key_and_certificates(None, key, own, others, encryption))
    return folder


@pytest.fixture(scope="module")
def encrypted(certificates: Path) -> Iterator[LocalKafka]:
    """Yield a broker that requires a certificate and a password."""
    tls = TlsFiles(certificate=certificates / "broker.pem", authority=certificates / "ca.pem")
    with LocalKafka(sasl_users={USER: PASSWORD}, tls=tls) as kafka:
        filled(kafka)
        yield kafka


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make readers accept a refusal sooner than by default."""
    monkeypatch.setattr(range_reader, "REFUSAL_PATIENCE_S", 1.0)


def sasl(kafka: LocalKafka, mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.secured_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def tls(kafka: LocalKafka, certificates: Path, authority: str = "ca") -> dict[str, str]:
    return {
        **sasl(kafka),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates / f"{authority}.pem"),
        "ssl.certificate.location": str(certificates / "client.pem"),
        "ssl.key.location": str(certificates / "client.pem"),
    }


def as_options(properties: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in properties.items()}


def rows(properties: dict[str, str], start: int = 0, until: int = RECORDS) -> int:
    options = ReadOptions(columns=("value",), fail_on_data_loss=True, timeout_s=30)
    wanted = {TopicPartition("orders", 0): OffsetRange.checked(start, until)}
    return sum(batch.num_rows for batch in read_ranges(reader_config(properties, "etl"), wanted, options))


@pytest.mark.usefixtures("any_client")
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_a_user_with_a_password_reads(with_users: LocalKafka, mechanism: str) -> None:
    assert rows(sasl(with_users, mechanism)) == RECORDS


@pytest.mark.usefixtures("any_client")
@pytest.mark.parametrize("store", ["PEM", "PKCS#12"])
def test_a_certificate_and_a_password_read_over_tls(encrypted: LocalKafka, certificates: Path, store: str) -> None:
    properties = tls(encrypted, certificates)
    if store == "PKCS#12":
        for name in ("certificate", "key"):
            del properties[f"ssl.{name}.location"]
        properties |= {"ssl.keystore.location": str(certificates / "client.p12"), "ssl.keystore.password": PASSWORD}
    assert rows(properties) == RECORDS


@pytest.mark.parametrize("any_client", ["direct"], indirect=True)
@pytest.mark.usefixtures("any_client", "impatient")
def test_a_wrong_password_is_refused_in_librdkafkas_words(with_users: LocalKafka) -> None:
    wrong = f"{PASSWORD}-wrong"
    with pytest.raises(AuthenticationError, match=r"kafka\.sasl") as problem:
        rows(sasl(with_users, "SCRAM-SHA-256", wrong))
    assert wrong not in str(problem.value)


@either_protocol
def test_a_query_with_a_wrong_password_is_told_so_in_bounded_time(
    with_users: LocalKafka, pipeline: Callable[..., Pipeline]
) -> None:
    wrong = f"{PASSWORD}-wrong"
    begin = time.monotonic()
    text = pipeline("orders", **as_options(sasl(with_users, password=wrong))).start().failure()
    assert "The cluster refuses the credentials" in text
    assert "kafka.sasl.password" in text
    assert wrong not in text
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("login", "properties", "reason"),
    [
        (True, {}, "closed the connection, as at a port that wants a login or TLS"),
        (False, {"security.protocol": "SSL"}, "it does not speak TLS at this port"),
    ],
)
def test_a_port_with_another_protocol_is_named(
    with_users: LocalKafka, monkeypatch: pytest.MonkeyPatch, login: bool, properties: dict[str, str], reason: str
) -> None:
    monkeypatch.setattr(group_offsets, "CONNECT_TIMEOUT_S", 1.0)
    servers = with_users.secured_bootstrap_servers if login else with_users.bootstrap_servers
    offsets = GroupOffsets({"bootstrap.servers": servers, **properties}, group_id="etl", read_committed=True)
    with closing(offsets), pytest.raises(BrokerError, match=rf"{reason}\)\. Check .*security\.protocol"):
        offsets.connect(["orders"])


def test_our_own_requests_are_answered_over_tls(encrypted: LocalKafka, certificates: Path, group: str) -> None:
    tp = TopicPartition("orders", 0)
    properties = tls(encrypted, certificates)
    requests = connect(properties, client_id="etl-offsets")
    assert requests is not None
    assert answered(lambda: requests.committed(group, [tp], require_stable=True)) == ({}, {})
    assert requests.commit(group, "", -1, None, {tp: (Offset(0), None, "x" * 4000)}) == {}
    assert requests.committed(group, [tp], require_stable=True).found[tp].metadata == "x" * 4000
    assert requests.describe_group(group).state == "Empty"
    assert requests.topics([tp.topic])[tp.topic].topic_id
    assert requests.epoch_ends({tp: 0}).found[tp] == EpochEnd(0, Offset(RECORDS))
    requests.close()
    refused = connect({**properties, "sasl.password": f"{PASSWORD}-wrong"}, client_id="etl-offsets")
    assert refused is not None
    with pytest.raises(AuthenticationError, match=r"kafka\.sasl\.password") as problem:
        refused.describe_group(group)
    assert f"{PASSWORD}-wrong" not in str(problem.value)
    refused.close()


@pytest.mark.parametrize("any_client", ["direct"], indirect=True)
@pytest.mark.usefixtures("any_client", "impatient")
def test_a_broker_of_an_unknown_authority_is_not_read_from(encrypted: LocalKafka, certificates: Path) -> None:
    with pytest.raises(AuthenticationError, match=r"kafka\.ssl"):
        rows(tls(encrypted, certificates, "other-ca"))


def test_a_login_is_renewed_before_it_ends(with_users: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads for longer than a login lasts.  The broker closes connections with an expired login."""
    logins: list[float] = []

    def connect(*args: Any, **more: Any) -> BrokerConnection:
        logins.append(time.monotonic())
        return BrokerConnection(*args, **more)

    monkeypatch.setattr(direct_client, "BrokerConnection", connect)
    monkeypatch.setattr(DirectClient, "_fall_back", lambda _client, problem: pytest.fail(f"gave up: {problem}"))
    CONSUMERS.close_idle()
    properties = sasl(with_users, "SCRAM-SHA-512")
    for start in range(0, 5000, 1000):
        assert rows(properties, start, start + 1000) == 1000
        time.sleep(1)
    # The client logs in once to find the leader, once to fetch, and then before each login expires.
    assert 3 <= len(logins) <= 6


@either_protocol
def test_a_query_reads_and_commits_over_tls(
    encrypted: LocalKafka, certificates: Path, pipeline: Callable[..., Pipeline]
) -> None:
    query = pipeline("orders", **as_options(tls(encrypted, certificates))).start()
    query.wait_for_rows(RECORDS)
    query.stop()


@either_protocol
def test_javas_settings_with_secrets_in_files_serve_stream_sink_and_batch(
    encrypted: LocalKafka, certificates: Path, pipeline: Callable[..., Pipeline], tmp_path: Path, spark: SparkSession
) -> None:
    """The options are those of Java's client.  Each process reads the password when it opens a connection."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={PASSWORD}\n")
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    java = {
        "kafka.bootstrap.servers": encrypted.secured_bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{login} required username="{USER}" password="${{file:{secrets}:password}}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificates / "ca.pem"),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": f"${{file:{tmp_path / 'where-the-key-is'}}}",
    }
    (tmp_path / "where-the-key-is").write_text(str(certificates / "client.pem"))
    query = pipeline("orders", **java).start()
    query.wait_for_rows(RECORDS)
    encrypted.create_topic("copies", 1)
    written = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string").write.format("kafka-group")
    written.options(**java).option("topic", "copies").mode("append").save()
    read = spark.read.format("kafka-group").options(**java).option("subscribe", "copies").load()
    assert sorted(row.value for row in read.select("value").collect()) == [b"1", b"2"]
    assert PASSWORD not in str(query.progress())
