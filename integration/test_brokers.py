"""The brokers of `pyspark_kafka_group.testing`: Apache Kafka as local processes and in a container."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from integration.cluster import produce
from integration.pipelines import wait_for
from pyspark_kafka_group.testing import ContainerKafka, Kafka, KafkaTestingError, LocalKafka, Record
from pyspark_kafka_group.testing import local as local_module
from pyspark_kafka_group.testing.local import JAVA_OPTIONS_VARIABLE
from pyspark_kafka_group.testing.ports import free_ports

TIMEOUT_S = 30.0


def admin(cluster: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def values(cluster: Kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.read(topic)]


def partitions(cluster: Kafka, topic: str) -> int | None:
    """Return the number of partitions that a new client sees; None if it does not see the topic."""
    topics = admin(cluster).list_topics(timeout=TIMEOUT_S).topics
    return len(topics[topic].partitions) if topic in topics else None


def setting(cluster: Kafka, kind: Any, of: str, name: str) -> str | None:
    client = admin(cluster)  # keep the client until the answer arrives
    [future] = client.describe_configs([ConfigResource(kind, of)]).values()
    value: str | None = future.result(TIMEOUT_S)[name].value
    return value


def cluster_id(cluster: Kafka) -> str | None:
    found: str | None = admin(cluster).list_topics(timeout=TIMEOUT_S).cluster_id
    return found


# ---- any kind of broker


@pytest.fixture(scope="module", params=["local", "container"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Yield a cluster.  A test may break it, but must repair it."""
    if request.param == "local":
        with LocalKafka() as local:
            yield local
    else:
        with ContainerKafka(request.getfixturevalue("container_image")) as container:
            yield container


def test_topics_are_made_filled_enlarged_and_deleted(cluster: Kafka) -> None:
    cluster.create_topic("new", 4, config={"retention.ms": "12345678"})
    for partition in range(4):
        cluster.produce("new", ["a"], partition=partition)
        assert cluster.read("new")[-1] == Record(partition, 0, None, b"a", [])
    assert setting(cluster, ConfigResource.Type.TOPIC, "new", "retention.ms") == "12345678"
    cluster.add_partitions("new", 5)
    assert partitions(cluster, "new") == 5
    cluster.produce("new", ["b"], partition=4)
    with pytest.raises(KafkaTestingError, match=r"could not create topic 'new': .*TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("new")
    cluster.delete_topic("new")
    assert partitions(cluster, "new") is None
    cluster.create_topic("new", 2)
    assert (partitions(cluster, "new"), values(cluster, "new")) == (2, [])
    with pytest.raises(KafkaTestingError, match=r"could not delete topic 'never': .*UNKNOWN_TOPIC_OR_PART"):
        cluster.delete_topic("never")
    assert setting(cluster, ConfigResource.Type.BROKER, "1", "auto.create.topics.enable") == "false"
    wait_for(lambda: "new" in cluster.log_tail(500), "the log names the topic")
    assert len(cluster.log_tail(3).splitlines()) == 4


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_new_group_gets_its_records_without_the_default_delay(cluster: Kafka, protocol: str) -> None:
    topic = f"group-{protocol}"
    cluster.create_topic(topic)
    cluster.produce(topic, ["a"])

    def first_record_s(group: str) -> float:
        member = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        with contextlib.closing(member):
            member.subscribe([topic])
            start = time.monotonic()
            assert member.poll(TIMEOUT_S) is not None
            return time.monotonic() - start

    first_record_s(f"{topic}-warm-up")  # until the internal topics exist
    # Both defaults of Kafka would take longer: 3 s before the first classic rebalance, 5 s between heartbeats.
    assert first_record_s(topic) < 2.5


def test_a_broker_is_paused_killed_and_restarted(cluster: Kafka) -> None:
    """It keeps its address and its data."""
    cluster.create_topic("hurt")
    cluster.produce("hurt", ["before"])
    servers = cluster.bootstrap_servers
    cluster.pause(1)
    try:
        with pytest.raises(KafkaException):
            admin(cluster).list_topics(timeout=1.0)
    finally:
        cluster.resume(1)
    assert values(cluster, "hurt") == [b"before"]
    cluster.kill(1)
    try:
        with pytest.raises(KafkaException):
            admin(cluster).list_topics(timeout=1.0)
    finally:
        cluster.restart(1)
    assert cluster.bootstrap_servers == servers
    assert values(cluster, "hurt") == [b"before"]
    with pytest.raises(KafkaTestingError, match="there is no broker 9"):
        cluster.kill(9)


# ---- local processes only


def test_a_kept_data_folder_serves_the_next_run(tmp_path: Path) -> None:
    own = {"group.consumer.heartbeat.interval.ms": "250"}
    with LocalKafka(data_dir=tmp_path, properties=own) as first:
        first.create_topic("kept")
        produce(first.bootstrap_servers, "kept", {0: 1})
        assert setting(first, ConfigResource.Type.BROKER, "1", "group.consumer.heartbeat.interval.ms") == "250"
        assert setting(first, ConfigResource.Type.BROKER, "1", "group.initial.rebalance.delay.ms") == "0"
    assert "due to signal SIGTERM" in (tmp_path / "broker-1" / "broker.log").read_text()
    with LocalKafka(data_dir=tmp_path) as second:
        assert values(second, "kept") == [b"0:0"]


def test_a_setting_the_broker_rejects_is_shown_with_its_log() -> None:
    local = LocalKafka(properties={"num.io.threads": "none"})
    with pytest.raises(KafkaTestingError, match=r"(?s)broker 1.*num\.io\.threads"):
        local.start()


def test_options_of_java_reach_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Dof.mine=1 -XX:NoSuchOption=1")
    with pytest.raises(KafkaTestingError, match=r"(?s)broker 1.*NoSuchOption"):
        LocalKafka().start()


def test_a_cluster_never_takes_the_broker_of_another_run_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: if two runs chose the same port, the second one used the broker of the first one, and lost it."""
    with LocalKafka() as other, monkeypatch.context() as patch:
        port = int(other.bootstrap_servers.rpartition(":")[2])
        chosen = [[*free_ports(2), port, *free_ports(2)]]
        patch.setattr(local_module, "free_ports", lambda count: chosen.pop() if chosen else free_ports(count))
        with LocalKafka() as own:
            assert own.bootstrap_servers != other.bootstrap_servers
            assert cluster_id(own) != cluster_id(other)
            with pytest.raises(KafkaTestingError, match=f"port {port} is in use on 127.0.0.1: choose another one"):
                own.move(1, port)
            patch.setattr(local_module, "is_free", lambda _: True)  # until the broker wants to listen
            with pytest.raises(KafkaTestingError, match=f"port {port} is in use on 127.0.0.1: choose another one"):
                own.move(1, port)


def test_a_cluster_whose_first_start_was_interrupted_starts_again(tmp_path: Path) -> None:
    """Regression: the folders that were not formatted yet got another cluster id, so the brokers refused each other."""

    class Interrupted(LocalKafka):
        def _launch(self, broker_id: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted(3, data_dir=tmp_path).start()
    for file in (tmp_path / "broker-2" / "data").iterdir():
        file.unlink()
    formatted = (tmp_path / "broker-1" / "data" / "meta.properties").read_text()
    with LocalKafka(3, data_dir=tmp_path) as again:
        assert f"cluster.id={cluster_id(again)}\n" in formatted


def test_data_folders_can_be_chosen(tmp_path: Path) -> None:
    """Regression: a cluster with another `log.dirs` ended with an error of Python, also after a usual one."""
    own = {"log.dirs": f"first, {tmp_path}/second", "metadata.log.dir": f"{tmp_path}/second"}
    for run in ("new", "formatted"):
        with LocalKafka(data_dir=tmp_path / "kept", properties=own) as local:
            topic = f"chosen-{run}"
            local.create_topic(topic, 4)
            local.produce(topic, ["a"], partition=3)
            folders = [local.partition_folder(1, topic, n) for n in range(4)]
            assert all(folder.is_dir() for folder in folders)
            assert {folder.parent.name for folder in folders} == {"first", "second"}
            assert f"cluster.id={cluster_id(local)}\n" in (tmp_path / "second" / "meta.properties").read_text()
