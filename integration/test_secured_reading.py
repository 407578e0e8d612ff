"""Each of the three clients reads from listeners that encrypt and authenticate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.cluster_answers import EpochEnd
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import LocalKafka, TlsFiles
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
    """Yield a broker with a user who has a password for each mechanism."""
    with LocalKafka(sasl_users={USER: PASSWORD}) as kafka:
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


@pytest.mark.parametrize("any_client", ["direct"], indirect=True)
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
