"""The settings of local brokers."""

from pathlib import Path

from pyspark_kafka_group.testing.broker_config import (
    BrokerPorts,
    TlsFiles,
    broker_properties,
    meta_properties,
    new_id,
    render,
)

ONE = {1: BrokerPorts(client=21001, controller=21002)}
THREE = {i: BrokerPorts(client=21000 + i, controller=22000 + i) for i in (1, 2, 3)}
DATA = Path("/data")


def test_all_listeners_are_on_loopback() -> None:
    ports = {1: BrokerPorts(client=21001, controller=21002, proxied=(21003, 21004), secured=21005)}
    properties = broker_properties(1, ports, DATA, sasl_users={"a": "b"})
    for setting in ("listeners", "advertised.listeners"):
        hosts = {listener.split("://")[1].split(":")[0] for listener in properties[setting].split(",")}
        assert hosts == {"127.0.0.1"}


def test_the_proxied_listener_advertises_the_proxy() -> None:
    ports = {1: BrokerPorts(client=21001, controller=21002, proxied=(21003, 21004))}
    properties = broker_properties(1, ports, DATA)
    assert "PROXIED://127.0.0.1:21003" in properties["listeners"].split(",")
    assert "PROXIED://127.0.0.1:21004" in properties["advertised.listeners"].split(",")


def test_one_broker_replicates_nothing_and_given_settings_win() -> None:
    properties = broker_properties(1, ONE, DATA, overrides={"group.consumer.heartbeat.interval.ms": "200"})
    assert properties["offsets.topic.replication.factor"] == "1"
    assert properties["transaction.state.log.min.isr"] == "1"
    assert properties["group.consumer.heartbeat.interval.ms"] == "200"


def test_three_brokers_survive_the_loss_of_one() -> None:
    properties = broker_properties(2, THREE, DATA)
    assert properties["node.id"] == "2"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:22001,2@127.0.0.1:22002,3@127.0.0.1:22003"
    assert properties["transaction.state.log.replication.factor"] == "3"
    assert properties["transaction.state.log.min.isr"] == properties["min.insync.replicas"] == "2"


def test_passwords_survive_both_layers_of_quoting() -> None:
    ports = {1: BrokerPorts(client=21001, controller=21002, secured=21005)}
    properties = broker_properties(1, ports, DATA, sasl_users={"alice": 'a"b\\c'})
    jaas = properties["listener.name.secured.plain.sasl.jaas.config"]
    assert jaas.endswith(' required user_alice="a\\"b\\\\c";')
    assert r"user_alice=\"a\\\"b\\\\c\";" in render(properties)


def test_java_reads_every_character_of_a_setting() -> None:
    """Regression: Java reads such a file as ISO-8859-1, so folders and passwords with other characters were wrong."""
    text = render({"log.dirs": "/home/jos\u00e9/\U0001f680"})
    assert text.isascii()
    assert r"/home/jos\u00e9/\ud83d\ude80" in text


def test_certificates_are_found_from_the_folder_of_a_broker() -> None:
    """Regression: a relative path meant another file there."""
    ports = {1: BrokerPorts(client=21001, controller=21002, secured=21005)}
    files = TlsFiles(certificate=Path("certs/broker.pem"), authority=Path("certs/ca.pem"))
    properties = broker_properties(1, ports, DATA, tls=files)
    for store, file in (("keystore", "broker.pem"), ("truststore", "ca.pem")):
        assert properties[f"listener.name.secured.ssl.{store}.location"] == str(Path.cwd() / "certs" / file)


def test_ids_have_kafkas_form_and_differ() -> None:
    """Regression: one id in 64 began with a dash.  Kafka's format tool took it for an option, and asked for an id."""
    ids = [new_id() for _ in range(2000)]
    assert len({*ids}) == 2000
    assert {(len(one), "=" in one, one.startswith("-")) for one in ids} == {(22, False, False)}


def test_the_ids_of_a_data_folder_are_its_own() -> None:
    first, second = (dict(line.split("=") for line in meta_properties(n, "c").splitlines()) for n in (1, 2))
    assert (first["version"], first["cluster.id"], first["node.id"], second["node.id"]) == ("1", "c", "1", "2")
    assert first["directory.id"] != second["directory.id"]
