"""The brokers of `pyspark_kafka_group.testing`: Apache Kafka as local processes and in a container."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from pyspark_kafka_group.testing import ContainerKafka, Kafka, KafkaTestingError, LocalKafka, Record
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.local import JAVA_OPTIONS_VARIABLE

TIMEOUT_S = 30.0


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain until {what}"
        time.sleep(0.05)


Settings = Mapping[str, str | int | float | bool]


def producer(servers: str, settings: Settings | None = None) -> Producer:
    quiet = {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 250}
    return Producer({**quiet, **(settings or {})})


def produce(servers: str, topic: str, *values: str, partition: int = 0, settings: Settings | None = None) -> None:
    """Produce records and wait until all replicas have acknowledged them."""
    client = producer(servers, settings)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        client.produce(topic, value, partition=partition, on_delivery=delivered)
    unsent = client.flush(TIMEOUT_S)
    if failed or unsent:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._MSG_TIMED_OUT))


def read(servers: str, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[str]:
    """Return the values of a partition from its beginning to its current end."""
    client = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "integration-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    values: list[str] = []
    with contextlib.closing(client):
        client.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = client.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return values
            if error is not None:
                raise KafkaException(error)
            value = message.value()
            assert value is not None
            values.append(value.decode())
    raise AssertionError(f"the end of {topic}-{partition} was not reached in {TIMEOUT_S} s")


def partitions(kafka: Kafka, topic: str) -> int | None:
    """Return the number of partitions that a new client sees; None if it does not see the topic."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    return len(topics[topic].partitions) if topic in topics else None


def broker_setting(kafka: Kafka, name: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    [future] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    value: str | None = future.result(TIMEOUT_S)[name].value
    return value


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


def test_a_new_topic_can_be_written_and_read_at_once(cluster: Kafka) -> None:
    cluster.create_topic("new", 12)
    for partition in range(12):
        cluster.produce("new", ["a"], partition=partition)
        assert cluster.read("new")[-1] == Record(partition, 0, None, b"a", [])


def test_a_topic_keeps_its_settings(cluster: Kafka) -> None:
    cluster.create_topic("set", config={"retention.ms": "12345"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    [future] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "set")]).values()
    assert future.result(TIMEOUT_S)["retention.ms"].value == "12345"


def test_a_topic_can_grow(cluster: Kafka) -> None:
    cluster.create_topic("growing", 2)
    cluster.add_partitions("growing", 5)
    assert partitions(cluster, "growing") == 5
    produce(cluster.bootstrap_servers, "growing", "a", partition=4)


def test_a_deleted_topic_is_gone_and_can_come_back_empty(cluster: Kafka) -> None:
    cluster.create_topic("phoenix")
    produce(cluster.bootstrap_servers, "phoenix", "old")
    cluster.delete_topic("phoenix")
    assert partitions(cluster, "phoenix") is None
    cluster.create_topic("phoenix", 2)
    assert partitions(cluster, "phoenix") == 2
    assert read(cluster.bootstrap_servers, "phoenix") == []


def test_refusals_of_the_broker_are_passed_on(cluster: Kafka) -> None:
    cluster.create_topic("twice")
    with pytest.raises(KafkaTestingError, match=r"could not create topic 'twice': .*TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("twice")
    with pytest.raises(KafkaTestingError, match=r"could not delete topic 'never': .*UNKNOWN_TOPIC_OR_PART"):
        cluster.delete_topic("never")


def test_topics_are_not_created_by_asking_for_them(cluster: Kafka) -> None:
    with pytest.raises(KafkaException) as raised:
        produce(cluster.bootstrap_servers, "typo", "a", settings={"topic.metadata.propagation.max.ms": 1000})
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert partitions(cluster, "typo") is None


def test_readers_of_committed_records_do_not_see_aborted_ones(cluster: Kafka) -> None:
    cluster.create_topic("txn")
    client = producer(cluster.bootstrap_servers, {"transactional.id": "test"})
    client.init_transactions(TIMEOUT_S)
    for value, outcome in [("kept", client.commit_transaction), ("dropped", client.abort_transaction)]:
        client.begin_transaction()
        client.produce("txn", value, partition=0)
        client.flush(TIMEOUT_S)
        outcome(TIMEOUT_S)
    assert read(cluster.bootstrap_servers, "txn", isolation="read_committed") == ["kept"]
    assert read(cluster.bootstrap_servers, "txn", isolation="read_uncommitted") == ["kept", "dropped"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_new_group_gets_its_records_without_the_default_delay(cluster: Kafka, protocol: str) -> None:
    topic = f"group-{protocol}"
    cluster.create_topic(topic)
    produce(cluster.bootstrap_servers, topic, "a")

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


def test_a_paused_broker_does_not_answer_until_it_is_resumed(cluster: Kafka) -> None:
    cluster.create_topic("paused")
    cluster.pause(1)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1.0)
    finally:
        cluster.resume(1)
    produce(cluster.bootstrap_servers, "paused", "after")
    assert read(cluster.bootstrap_servers, "paused") == ["after"]


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_a_restarted_broker_has_its_address_and_data(cluster: Kafka, killed: bool) -> None:
    topic = f"restart-{killed}"
    cluster.create_topic(topic)
    produce(cluster.bootstrap_servers, topic, "before")
    servers = cluster.bootstrap_servers
    if killed:
        cluster.kill(1)
    cluster.restart(1)
    assert cluster.bootstrap_servers == servers
    assert read(servers, topic) == ["before"]


def test_a_killed_broker_refuses_or_drops_connections(cluster: Kafka) -> None:
    cluster.kill(1)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1.0)
    finally:
        cluster.restart(1)


def test_an_unknown_broker_is_named(cluster: Kafka) -> None:
    with pytest.raises(KafkaTestingError, match="there is no broker 9"):
        cluster.kill(9)


def test_the_log_can_be_read(cluster: Kafka) -> None:
    cluster.create_topic("in-the-log")
    wait_until(lambda: "in-the-log" in cluster.log_tail(500), "the log names the new topic")
    assert len(cluster.log_tail(3).splitlines()) == 4


# ---- the fixtures


def test_the_topic_fixture_makes_usable_topics(kafka: Kafka, topic: TopicFactory) -> None:
    name = topic(3)
    produce(kafka.bootstrap_servers, name, "a", partition=2)
    assert read(kafka.bootstrap_servers, name, 2) == ["a"]


# ---- local processes only


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    """Yield one broker with users, a proxy and a changed setting."""
    with LocalKafka(
        proxied=True,
        sasl_users={"alice": 'quo"te\\', "bob": "secret"},
        properties={"group.consumer.heartbeat.interval.ms": "250"},
    ) as local:
        yield local


def sasl(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize(("user", "password"), [("alice", 'quo"te\\'), ("bob", "secret")])
def test_a_known_user_may_write(secured: LocalKafka, user: str, password: str) -> None:
    secured.create_topic(f"of-{user}")
    produce(secured.secured_bootstrap_servers, f"of-{user}", "a", settings=sasl(user, password))
    assert read(secured.bootstrap_servers, f"of-{user}") == ["a"]


def test_wrong_credentials_are_refused(secured: LocalKafka) -> None:
    errors: list[KafkaError] = []
    client = Producer(
        {
            "bootstrap.servers": secured.secured_bootstrap_servers,
            "error_cb": errors.append,
            "log_level": 0,
            **sasl("bob", "wrong"),
        }
    )
    wait_until(
        lambda: client.poll(0.1) >= 0 and any(e.code() == KafkaError._AUTHENTICATION for e in errors),
        "the client learns that its credentials are wrong",
    )


def test_given_properties_reach_the_broker(secured: LocalKafka) -> None:
    assert broker_setting(secured, "group.consumer.heartbeat.interval.ms") == "250"
    assert broker_setting(secured, "group.initial.rebalance.delay.ms") == "0"


def test_clients_stay_on_the_proxied_address(secured: LocalKafka) -> None:
    admin = AdminClient({"bootstrap.servers": secured.proxied_bootstrap_servers})
    [broker] = admin.list_topics(timeout=TIMEOUT_S).brokers.values()
    assert f"{broker.host}:{broker.port}" == secured.proxied_bootstrap_servers == secured.proxy.address


def test_a_producer_survives_a_cut_connection(secured: LocalKafka) -> None:
    secured.create_topic("cut")
    client = producer(secured.proxied_bootstrap_servers, {"enable.idempotence": True})
    for value in ("before", "after"):
        client.produce("cut", value, partition=0)
        assert client.flush(TIMEOUT_S) == 0
        secured.proxy.cut()
    assert read(secured.bootstrap_servers, "cut") == ["before", "after"]


def test_a_producer_times_out_in_a_blackhole_while_others_go_on(secured: LocalKafka) -> None:
    secured.create_topic("hole")
    secured.proxy.blackhole()
    try:
        with pytest.raises(KafkaException) as raised:
            produce(secured.proxied_bootstrap_servers, "hole", "lost", settings={"message.timeout.ms": 2000})
        assert raised.value.args[0].code() == KafkaError._MSG_TIMED_OUT
        produce(secured.bootstrap_servers, "hole", "direct")
    finally:
        secured.proxy.heal()
    assert "direct" in read(secured.proxied_bootstrap_servers, "hole")


def test_three_brokers_go_on_without_one_and_leave_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalKafka(3) as local:
        local.create_topic("replicated", 3, replication_factor=3)
        servers = local.bootstrap_servers
        for partition in range(3):
            produce(servers, "replicated", "a", partition=partition)
        local.kill(2)
        # The killed broker led one of these partitions.  A write with acks=all needs a new leader.
        for partition in range(3):
            produce(servers, "replicated", "b", partition=partition)
        # The cluster can create a topic while a broker is down.
        local.create_topic("meanwhile", 2, replication_factor=2)
        local.restart(2)
        for partition in range(3):
            assert read(servers, "replicated", partition) == ["a", "b"]
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        assert sorted(admin.list_topics(timeout=TIMEOUT_S).brokers) == [1, 2, 3]
        tail = local.log_tail(1)
        assert [f"broker {i}," in tail for i in (1, 2, 3)] == [True, True, True]
        assert list(tmp_path.iterdir()) != []
    assert list(tmp_path.iterdir()) == []


def test_a_kept_data_folder_serves_the_next_run(tmp_path: Path) -> None:
    with LocalKafka(data_dir=tmp_path) as first:
        first.create_topic("kept")
        produce(first.bootstrap_servers, "kept", "a")
    assert "due to signal SIGTERM" in (tmp_path / "broker-1" / "broker.log").read_text()
    with LocalKafka(data_dir=tmp_path) as second:
        assert read(second.bootstrap_servers, "kept") == ["a"]


def test_a_setting_the_broker_rejects_is_shown_with_its_log() -> None:
    local = LocalKafka(properties={"num.io.threads": "none"})
    with pytest.raises(KafkaTestingError, match=r"(?s)broker 1.*num\.io\.threads"):
        local.start()


def test_options_of_java_reach_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Dof.mine=1 -XX:NoSuchOption=1")
    with pytest.raises(KafkaTestingError, match=r"(?s)broker 1.*NoSuchOption"):
        LocalKafka().start()


def test_no_broker_outlives_a_killed_python(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pyspark_kafka_group.testing import LocalKafka\n"
        "kafka = LocalKafka().start()\n"
        "print(kafka.bootstrap_servers, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        host, _, port = owner.stdout.readline().strip().partition(":")
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S).close()
        owner.send_signal(signal.SIGKILL)

    def is_gone() -> bool:
        try:
            socket.create_connection((host, int(port)), timeout=TIMEOUT_S).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(is_gone, "the broker's port is closed")
