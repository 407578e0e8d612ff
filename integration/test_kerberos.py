"""Kerberos with an MIT KDC: our own connections log in without librdkafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration.cluster import produce
from integration.kdc import REALM, Kdc, missing
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.log_ends import LogEnds
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import OffsetRange
from pyspark_kafka_group.offsets.types import TopicPartition as SourcePartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import LocalKafka
from tests.connector.reading.clients import need_native_library
from tests.missing_tools import skip_without

RECORDS = 200
ORDERS = SourcePartition("orders", 0)


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """Yield a KDC whose tickets last 4 seconds, and set this process's environment for it."""
    lacking = missing()
    if lacking:
        skip_without("kerberos", f"no Kerberos: {lacking} (scripts/install-kerberos.sh installs it)")
    with Kdc(tmp_path_factory.mktemp("kdc"), ticket_life_s=4) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.keytab("etl")


@pytest.fixture(scope="module")
def broker(kdc: Kdc) -> Iterator[LocalKafka]:
    """Yield a broker that accepts tickets and requires a new login every 2 seconds.  Only etl has rights."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:etl",
        "listener.name.secured.connections.max.reauth.ms": "2000",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", kdc.java_options)
        kafka = kdc.broker(**authorizer).start()
    with kafka:
        kafka.create_topic("orders", 1)
        produce(kafka.bootstrap_servers, "orders", {0: RECORDS})
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "some-group"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
        consumer.close()
        yield kafka


@pytest.fixture
def properties(broker: LocalKafka, keytab: Path) -> dict[str, str]:
    """Return the client properties with a keytab."""
    return {
        "bootstrap.servers": broker.secured_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.keytab": str(keytab),
        "sasl.kerberos.principal": f"etl@{REALM}",
    }


def committed(properties: Mapping[str, str]) -> int:
    """Fetch the group's committed offset over a new connection."""
    requests = connect(properties, client_id="etl")
    assert requests is not None
    try:
        return requests.committed("some-group", [ORDERS], require_stable=True).found[ORDERS].offset
    finally:
        requests.close()


def rows(properties: dict[str, str]) -> int:
    wanted = {ORDERS: OffsetRange.checked(0, RECORDS)}
    options = ReadOptions(columns=("offset",), fail_on_data_loss=True, timeout_s=30)
    return sum(batch.num_rows for batch in read_ranges(reader_config(properties, "etl"), wanted, options))


def test_a_key_tab_serves_for_longer_than_a_ticket(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    need_native_library()
    monkeypatch.setattr(DirectClient, "_fall_back", lambda _, reason: pytest.fail(f"librdkafka took over: {reason}"))
    requests = connect(properties, client_id="etl")
    ends = LogEnds(properties, client_id="etl", read_committed=True)
    begin, lost = time.monotonic(), 0
    while time.monotonic() < begin + 10:
        assert ends.ends([ORDERS]) == {ORDERS: RECORDS}
        try:
            assert requests.committed("some-group", [ORDERS], require_stable=True).found[ORDERS].offset == 10
        except TryAgainError:  # the broker has closed the connection: a query retries
            lost += 1
        assert rows(properties) == RECORDS
        time.sleep(0.2)
    assert lost <= 2
    ends.close()
    requests.close()
    CONSUMERS.close_idle()


def test_a_ticket_that_is_there_is_used(properties: dict[str, str], keytab: Path) -> None:
    without = {key: value for key, value in properties.items() if not key.startswith("sasl.kerberos.")}
    with pytest.raises(AuthenticationError, match=r"Kerberos: No Kerberos credentials available.*sasl\.kerberos"):
        committed(without)
    subprocess.run(["kinit", "-k", "-t", str(keytab), "etl"], check=True)
    assert committed(without) == 10
    assert committed({**properties, "sasl.kerberos.min.time.before.relogin": "0"}) == 10


def test_another_principal_has_other_rights(properties: dict[str, str], kdc: Kdc) -> None:
    bob = {"sasl.kerberos.keytab": str(kdc.keytab("bob")), "sasl.kerberos.principal": "bob"}
    with pytest.raises(AuthenticationError, match="GROUP_AUTHORIZATION_FAILED"):
        committed({**properties, **bob})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("principal", "bob", "Kerberos: No credentials"),
        ("service.name", "nobody", f"Kerberos: Server nobody/127.0.0.1@{REALM} not found in Kerberos database"),
    ],
)
def test_what_the_kdc_refuses_is_named(properties: dict[str, str], name: str, value: str, reason: str) -> None:
    with pytest.raises(AuthenticationError, match=reason):
        committed({**properties, f"sasl.kerberos.{name}": value})


def test_the_command_line_logs_in(properties: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "kerberos.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    command = [sys.executable, "-m", "pyspark_kafka_group.tools", "describe", "some-group", "--json"]
    run = subprocess.run([*command, "--config", str(config)], capture_output=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)


@pytest.mark.timeout(240)
def test_batches_are_read_and_show_answers_in_an_application(properties: dict[str, str], tmp_path: Path) -> None:
    """Batch reads work.  A stream needs a librdkafka with Kerberos, and fails with an error without it."""
    options = {f"kafka.{key}": value for key, value in properties.items()} | {"kafka.group.id": "some-group"}
    run = subprocess.run(
        [sys.executable, "-m", "integration.kerberos_application"],
        cwd=Path(__file__).parents[1],
        input=json.dumps(options).encode(),
        capture_output=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "CHECKPOINT": str(tmp_path / "checkpoint")},
        timeout=220,
        check=False,
    )
    said = run.stdout.decode()
    assert run.returncode == 0, run.stderr.decode()[-5000:]
    found = json.loads(next(line for line in said.splitlines() if line.startswith("FOUND ")).removeprefix("FOUND "))
    assert found["rows"] == RECORDS
    assert found["lag"] == 1
    assert "No provider for SASL mechanism GSSAPI" in found["stream"]
