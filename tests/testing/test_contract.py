"""Rules for every kind of broker, tested without starting one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest

from pyspark_kafka_group import testing
from pyspark_kafka_group.testing import (
    ContainerKafka,
    ExistingKafka,
    Kafka,
    KafkaTestingError,
    LocalKafka,
    MockKafka,
    UnsupportedFaultError,
    kafka_from_environment,
)
from pyspark_kafka_group.testing.ports import free_ports

FOLDER = Path(testing.__file__).parent


def test_the_public_names_are_these() -> None:
    assert sorted(testing.__all__) == [
        "ContainerKafka",
        "ExistingKafka",
        "FaultProxy",
        "HeldRequest",
        "Kafka",
        "KafkaTestingError",
        "LocalKafka",
        "MockKafka",
        "Record",
        "TlsFiles",
        "UnsupportedFaultError",
        "kafka_from_environment",
    ]


def test_modules_import_without_spark_and_pytest() -> None:
    """Only the fixtures need pytest.  That nothing else heavy is imported is tested in `test_imports.py`."""
    names = [
        f"pyspark_kafka_group.testing.{file.stem}"
        for file in FOLDER.glob("*.py")
        if file.stem not in {"__init__", "fixtures"}
    ]
    script = f"import sys, {', '.join(names)}; print(sorted({{'pyspark', 'pytest'}} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("kafka", [LocalKafka(), ContainerKafka("image"), MockKafka()], ids=lambda k: type(k).__name__)
def test_before_start_there_is_no_address_and_stop_does_nothing(kafka: Kafka) -> None:
    kafka.stop()
    with pytest.raises(KafkaTestingError, match=f"^{type(kafka).__name__} is not started: use it in a with statement"):
        _ = kafka.bootstrap_servers
    assert kafka.log_tail() == ""


@pytest.mark.parametrize("fault", ["kill", "pause", "resume", "restart"])
def test_the_brokers_of_an_existing_cluster_are_not_hurt(fault: str) -> None:
    cluster = ExistingKafka("127.0.0.1:1")
    with pytest.raises(
        UnsupportedFaultError, match=f"ExistingKafka cannot {fault} broker 1; use LocalKafka or ContainerKafka"
    ):
        getattr(cluster, fault)(1)


@pytest.mark.parametrize(
    ("fault", "arguments", "has_it"),
    [
        ("move", (1, 9099), "LocalKafka"),
        ("set_round_trip_ms", (1, 50), "MockKafka"),
        ("push_errors", (1, 6), "MockKafka"),
        ("delete_records", ("orders", 0, 5), "MockKafka"),
    ],
)
def test_a_fault_that_a_broker_cannot_do_has_its_error(fault: str, arguments: tuple[object, ...], has_it: str) -> None:
    """Regression: it was an AttributeError."""
    with pytest.raises(UnsupportedFaultError, match=f"use {has_it}"):
        getattr(ContainerKafka("image"), fault)(*arguments)


def test_records_of_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it was an error of librdkafka, without a remedy."""
    monkeypatch.setattr("pyspark_kafka_group.testing.records._TIMEOUT_S", 0.3)
    [port] = free_ports(1)
    cluster = ExistingKafka(f"127.0.0.1:{port}")
    for use in (lambda: cluster.produce("orders", ["a"]), lambda: cluster.read("orders")):
        with pytest.raises(KafkaTestingError, match="the brokers do not answer"):
            use()
    monkeypatch.setattr(ExistingKafka, "_answering_servers", lambda _: [])
    uses: tuple[Callable[[], object], ...] = (
        lambda: cluster.read("orders"),
        lambda: cluster.produce("orders", ["a"]),
        lambda: cluster.create_topic("orders"),
        lambda: cluster.add_partitions("orders", 2),
        lambda: cluster.delete_topic("orders"),
    )
    for each in uses:
        with pytest.raises(KafkaTestingError, match="all brokers are down or paused"):
            each()


def test_a_topic_of_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the error ended before its reason."""
    monkeypatch.setattr("pyspark_kafka_group.testing.kafka._REQUEST_TIMEOUT_S", 0.3)
    cluster = ExistingKafka(f"127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(KafkaTestingError, match="could not create topic 'orders': no answer within 0 s"):
        cluster.create_topic("orders")


def test_an_existing_cluster_that_does_not_answer_or_has_no_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    monkeypatch.setattr("pyspark_kafka_group.testing.kafka._REACH_TIMEOUT_S", 0.3)
    with pytest.raises(KafkaTestingError, match=f"no broker of 127.0.0.1:{port} answered within"):
        ExistingKafka(f"127.0.0.1:{port}").start()
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    with pytest.raises(KafkaTestingError, match="pass one, or set KAFKA_BOOTSTRAP_SERVERS"):
        ExistingKafka()


def test_the_environment_chooses_an_existing_cluster_or_a_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "a:1,b:2")
    chosen = kafka_from_environment()
    assert isinstance(chosen, ExistingKafka)
    assert chosen.bootstrap_servers == "a:1,b:2"
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS")
    assert isinstance(kafka_from_environment(), LocalKafka)


def test_two_local_brokers_are_refused() -> None:
    with pytest.raises(ValueError, match="brokers=2: choose 1, or 3"):
        LocalKafka(2)


@pytest.mark.parametrize(
    ("folder", "options", "error"),
    [
        ("file", "", r"files cannot be written \(.*Not a directory.*\): choose another data_dir, or another TMPDIR"),
        ("a,b", "", "because of its comma: choose another data_dir, or another TMPDIR"),
        ("new", "-Da='x", r"KAFKA_JAVA_OPTIONS cannot be read \(No closing quotation\): correct its quotes"),
    ],
)
def test_a_folder_or_an_option_that_cannot_be_used_is_an_error_of_this_package(
    folder: str, options: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: they were bare errors of Python."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("pyspark_kafka_group.testing.local.find_java", lambda: Path("java"))
    monkeypatch.setattr("pyspark_kafka_group.testing.local.kafka_jars", lambda _: [])
    monkeypatch.setenv("KAFKA_JAVA_OPTIONS", options)
    local = LocalKafka(data_dir=tmp_path / folder)
    with pytest.raises(KafkaTestingError, match=error):
        local.start()
    with pytest.raises(KafkaTestingError, match="not started"):
        local.create_topic("orders")
    assert not (tmp_path / "a").exists()


def test_a_port_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="port=70000: choose a port from 1 to 65535"):
        LocalKafka(port=70_000)


def test_the_image_comes_from_argument_variable_or_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_IMAGE", raising=False)
    assert ContainerKafka()._image == "apache/kafka:4.3.1"
    monkeypatch.setenv("KAFKA_IMAGE", "local/kafka:1")
    assert ContainerKafka()._image == "local/kafka:1"
    assert ContainerKafka("mine:2")._image == "mine:2"


def test_a_container_that_does_not_start_is_removed_and_does_not_count_as_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: after another error than Docker's own the container stayed, and the next start did nothing."""
    calls: list[str] = []

    class Interrupted:
        def __init__(self, *_: object, **__: object) -> None:
            self.ports: dict[str, object] = {}

        def start(self) -> None:
            calls.append("start")
            raise KeyboardInterrupt

        def stop(self) -> None:
            calls.append("stop")

    monkeypatch.setattr("testcontainers.core.container.DockerContainer", Interrupted)
    kafka = ContainerKafka()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            kafka.start()
    assert calls == ["start", "stop"] * 2


def test_the_container_gets_its_settings_as_the_official_image_spells_them() -> None:
    environment = ContainerKafka("image", properties={"a.b-c_d": "x"})._environment()
    assert environment["KAFKA_A_B___C__D"] == "x"
    assert environment["KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS"] == "0"
    assert len(environment["CLUSTER_ID"]) == 22
    # It listens where the engine delivers, and advertises loopback.
    assert environment["KAFKA_LISTENERS"].startswith("PLAINTEXT://0.0.0.0:")
    assert environment["KAFKA_ADVERTISED_LISTENERS"].startswith("PLAINTEXT://127.0.0.1:")


def test_free_ports_are_different_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(1024 < port < 32768 for port in ports)


def test_a_container_that_is_killed_or_paused_is_not_asked() -> None:
    """Regression: each use of a topic waited for 30 s."""
    kafka = ContainerKafka("image")
    kafka._container = MagicMock()
    for silence, end in ((kafka.kill, kafka.restart), (kafka.pause, kafka.resume)):
        silence(1)
        with pytest.raises(KafkaTestingError, match="all brokers are down or paused"):
            kafka.read("orders")
        with patch.object(kafka, "_await_broker"):
            end(1)
        assert kafka._answering_servers() == [kafka.bootstrap_servers]
