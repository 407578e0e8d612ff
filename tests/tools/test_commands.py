"""The command line in a shell: exit codes, output streams, and no traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import Result

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.tools import group_commands
from pyspark_kafka_group.tools.analysis import group_view
from pyspark_kafka_group.tools.analysis.arguments import parse_partitions
from pyspark_kafka_group.tools.analysis.group_records import LoggedRecord, decode
from pyspark_kafka_group.tools.commands import kafka_group
from pyspark_kafka_group.wire.describe_requests import DescribedGroup, ListedGroup, ListGroups
from pyspark_kafka_group.wire.group_requests import Coordinator, FindCoordinator
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.types import TopicPartition
from tests.tools.analysis import records
from tests.tools.analysis.spark_checkpoints import KAFKA, write_checkpoint
from tests.tools.shell import refused, run
from tests.wire import answers
from tests.wire.fake_broker import Answer, Asked, ByRequest, FakeBroker
from tests.wire.fake_group import (
    CLASSIC,
    CONSUMER,
    FETCH,
    LIST,
    METADATA,
    classic,
    coordinator,
    fake_group,
    fetched,
    logs,
    topic_metadata,
)

NO_LEADER, NO_COORDINATOR, TOPIC_REFUSED, GROUP_REFUSED = 5, 15, 29, 30
LISTED = ListGroups.api.key

ASKING = [
    name
    for name, command in kafka_group.commands.items()
    if any(parameter.name == "bootstrap_server" for parameter in command.params)
]
"""The commands that ask a cluster."""


def required(command: str, folder: Path) -> tuple[str, ...]:
    """Return the arguments that a command needs beside the servers, for the group ``etl``."""
    match command:
        case "groups":
            return ()
        case "reset":
            return ("--to", "start", "etl")
        case "import-checkpoint":
            return ("--group", "etl", str(write_checkpoint(folder / "checkpoint", KAFKA)))
        case _:
            return ("etl",)


def test_a_group_is_described(broker: FakeBroker) -> None:
    found = run("describe", "--no-status", "-b", str(broker.address), "etl")
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[0] == "etl: Empty, classic protocol, 0 members, lag 4"
    assert found.stderr == ""
    found = run("describe", "--no-status", "--json", "-b", str(broker.address), "etl")
    assert json.loads(found.stdout)["partitions"][0]["lag"] == 4


def test_the_servers_may_stand_in_the_environment(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_GROUP_BOOTSTRAP_SERVERS", str(broker.address))
    assert run("describe", "--no-status", "etl").exit_code == 0


def test_a_group_that_does_not_exist_is_1_and_said_alike_by_all_commands(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: some commands ended with 2, and each had a different message."""
    broker.answers |= {CLASSIC: classic("Dead"), FETCH: fetched({})}
    monkeypatch.setattr("pyspark_kafka_group.tools.analysis.history.read_group", lambda *_: iter(()))
    commands = ("describe", "watch", "doctor", "history", "history --poll 1", "rewinds", "reset --to start")
    for command in (*commands, "reset --to-group other --allow-new-topics", "export-checkpoint"):
        found = run(*command.split(), "-b", str(broker.address), "etl")
        assert (found.exit_code, found.stdout.count("orders")) == (1, 0), command
        name = "other" if "other" in command else "etl"
        assert f"The cluster does not know the group '{name}'. Check its name." in found.stderr, command


def test_the_name_of_a_group_that_is_near_is_suggested(broker: FakeBroker) -> None:
    listed = [
        ListedGroup("orders-etl", "consumer"),
        ListedGroup("c", "connect"),
        ListedGroup("orders-share", "", "share"),
    ]
    broker.answers |= {CLASSIC: classic("Dead"), FETCH: fetched({}), LISTED: answers.groups(0, listed)}
    broker.answers[FindCoordinator.api.key] = coordinator(broker, "order-etl")
    found = run("describe", "-b", str(broker.address), "order-etl")
    assert found.exit_code == 1
    assert "Did you mean 'orders-etl'?" in found.stderr
    broker.answers[FindCoordinator.api.key] = coordinator(broker, "payments")
    assert "'kafka-group groups' lists the groups." in run("doctor", "-b", str(broker.address), "payments").stderr


def test_groups_are_listed_with_their_members_and_lag(broker: FakeBroker) -> None:
    listed = [
        ListedGroup("etl", "consumer", "classic"),
        ListedGroup("connect-sink", "connect", "classic"),
        ListedGroup("s", "", "streams"),
    ]
    broker.answers[LISTED] = answers.groups(0, listed)
    found = run("groups", "-b", str(broker.address))
    assert (found.exit_code, found.stderr) == (0, "")
    head, line = found.stdout.splitlines()
    assert head.split() == ["GROUP", "STATE", "PROTOCOL", "MEMBERS", "LAG", "TOPICS"]
    assert line.split() == ["etl", "Empty", "classic", "0", "4", "orders"]
    document = json.loads(run("groups", "--json", "-b", str(broker.address)).stdout)
    assert document == {
        "group": "etl",
        "state": "Empty",
        "protocol": "classic",
        "members": 0,
        "topics": ["orders"],
        "lag": 4,
    }
    broker.answers[LISTED] = answers.groups(0, [])
    assert "no groups of consumers" in run("groups", "-b", str(broker.address)).stdout


def listed_with(broker: FakeBroker, **errors: int) -> Result:
    """Run ``groups`` in a cluster with ``etl`` and groups for which FindCoordinator has these errors."""
    broker.answers[LISTED] = answers.groups(0, [ListedGroup(name, "consumer") for name in (*errors, "etl")])

    def found(asked: Asked) -> Answer:
        name = next((name for name in errors if name.encode() in asked.body), "etl")
        return answers.coordinator(Coordinator(errors.get(name, 0), "", broker.address), name)

    broker.answers[FindCoordinator.api.key] = ByRequest(found)
    return run("groups", "-b", str(broker.address))


def test_a_group_that_may_not_be_described_does_not_hide_the_others(broker: FakeBroker) -> None:
    """Regression: with the right to describe the cluster Kafka lists all groups, and ``groups`` showed none of them."""
    found = listed_with(broker, another=GROUP_REFUSED)
    assert found.exit_code == 0
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["GROUP", "etl"]
    assert "not shown, because this user may not describe them or one of their topics: 1." in found.stderr
    refused_topic = TopicMetadata("orders", TOPIC_REFUSED, None, ())
    broker.answers[METADATA] = answers.metadata(ClusterMetadata({1: broker.address}, (refused_topic,)))
    found = listed_with(broker)
    assert (found.exit_code, "one of their topics: 1." in found.stderr) == (0, True)


def test_a_coordinator_that_does_not_answer_hides_only_its_groups(broker: FakeBroker) -> None:
    """Regression: ``groups`` showed none of the others."""
    found = listed_with(broker, another=NO_COORDINATOR)
    assert found.exit_code == 2
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["GROUP", "etl"]
    assert "groups not shown, because the cluster does not answer: another (" in found.stderr


def test_an_unknown_lag_is_not_zero(broker: FakeBroker) -> None:
    """Regression: without leaders the lag of each group was 0, so an alert on a lag never fired."""
    broker.answers |= {
        LISTED: answers.groups(0, [ListedGroup("etl", "consumer")]),
        METADATA: answers.metadata(
            ClusterMetadata(
                {1: broker.address}, (TopicMetadata("orders", 0, None, (PartitionMetadata(0, NO_LEADER, -1, 1),)),)
            )
        ),
    }
    assert json.loads(run("groups", "--json", "-b", str(broker.address)).stdout)["lag"] is None
    found = run("describe", "--no-status", "-b", str(broker.address), "etl")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[0].endswith(", lag unknown, ERR")


def test_arguments_are_checked_before_the_cluster_is_asked(tmp_path: Path) -> None:
    """Regression: with a closed port, each of these only said that the cluster does not answer."""
    for arguments, said in (
        (("reset", "etl"), "the new offsets are missing"),
        (("reset", "--to", "yesterday", "etl"), "--to 'yesterday' is not valid"),
        (("reset", "--to-file", str(tmp_path / "none"), "etl"), "No such file"),
        (("reset", "--to", "start", "--dry-run", "--execute", "etl"), "contradict each other"),
        (("import-checkpoint", "--group", "etl", str(tmp_path / "none")), "none"),
        (("history", "--count", "3", "etl"), "--count works with --poll only"),
    ):
        found = run(*arguments, "-b", "127.0.0.1:1")
        assert found.exit_code == 2, arguments
        assert said in found.stderr, arguments
        assert "does not answer" not in found.stderr, arguments


def test_offsets_that_expired_are_no_lag(broker: FakeBroker) -> None:
    """Regression: they counted as records to read, for ever if the topic was idle."""
    broker.answers[LIST] = logs({TopicPartition("orders", 0): 9}, {TopicPartition("orders", 0): 7})
    found = run("describe", "--no-status", "-b", str(broker.address), "etl").stdout.splitlines()
    assert found[0] == "etl: Empty, classic protocol, 0 members, lag 2"
    assert "no members: the records wait until one starts" in found
    assert any("the brokers deleted 2 offsets before the group read them" in line for line in found)
    document = json.loads(run("describe", "--no-status", "--json", "-b", str(broker.address), "etl").stdout)
    assert (document["lag"], document["expired"], document["partitions"][0]["expired"]) == (2, 2, 2)


def test_an_offset_beyond_the_end_of_the_log_is_not_ok(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its status was OK, and the exit code 0, although a query fails there and others skip new records."""
    monkeypatch.setattr("pyspark_kafka_group.tools.analysis.group_view.read_group", lambda *_, **__: iter(()))
    broker.answers[FETCH] = fetched({TopicPartition("orders", 0): 12})
    for option in ("--wide", "--no-status"):
        found = run("describe", option, "-b", str(broker.address), "etl")
        assert found.exit_code == 1
        assert found.stdout.startswith("etl: Empty, classic protocol, 0 members, lag 0, ERR\n")
        assert "beyond the end of the log, and not part of the lag: orders-0" in found.stdout
    document = json.loads(run("describe", "--json", "-b", str(broker.address), "etl").stdout)
    (part,) = document["partitions"]
    assert (part["lag"], part["lag_seconds"], part["status"]) == (-3, None, "BEYOND")


def test_groups_of_another_kind_are_2_and_nothing_is_said_about_their_members(broker: FakeBroker) -> None:
    """Regression: a running group of Kafka Streams was Dead and had no members, and a share group did not exist."""
    other = DescribedGroup(69, "Group etl is not a consumer group.", "", 0, ())
    broker.answers |= {CONSUMER: answers.consumer_group(other), CLASSIC: classic("Dead")}
    for command in ("describe", "watch", "doctor", "history --poll 1", "reset --to start", "export-checkpoint"):
        found = run(*command.split(), "-b", str(broker.address), "etl")
        assert (found.exit_code, found.stdout.count("orders")) == (2, 0), command
        assert "The group 'etl' is a share group, or a group of Kafka Streams" in found.stderr, command


def test_a_group_that_has_never_committed_exists(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: ``history`` and ``rewinds`` said that the cluster does not know it, although it had members."""
    broker.answers |= {CLASSIC: classic("Stable"), FETCH: fetched({})}
    monkeypatch.setattr("pyspark_kafka_group.tools.analysis.history.read_group", lambda *_: iter(()))
    assert run("history", "-b", str(broker.address), "etl").exit_code == 0
    found = run("rewinds", "-b", str(broker.address), "etl")
    assert (found.exit_code, found.stdout) == (0, "Nothing found.\n")


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ("payments", "The topic 'payments' does not exist. Check its name, or choose other topics with --topics."),
        ("ordres", "The topic 'ordres' does not exist. Did you mean 'orders'?"),
        ("orders:7", "orders-7 does not exist. Check the numbers, or choose other partitions with --topics."),
    ],
)
def test_a_topic_that_does_not_exist_is_2_and_said_alike_by_all_commands(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, topics: str, said: str
) -> None:
    """Regression: for a misspelt topic ``rewinds`` ended with 0 and "Nothing found", so an alert never fired."""
    record = LoggedRecord(0, 0, decode(records.offset_key(tp=TopicPartition("orders", 0)), records.offset_value(5)))
    monkeypatch.setattr("pyspark_kafka_group.tools.analysis.history.read_group", lambda *_: iter([record]))
    for command in ("history", "history --poll 1", "rewinds", "reset --to start", "export-checkpoint"):
        found = run(*command.split(), "-b", str(broker.address), "--topics", topics, "etl")
        assert (found.exit_code, found.stdout.count("orders")) == (2, 0), command
        assert said in found.stderr, command
    broker.answers[METADATA] = topic_metadata([broker], {"other": 1})
    assert run("rewinds", "-b", str(broker.address), "--topics", "orders:0", "etl").exit_code == 0, "it existed once"


def test_a_missing_right_on_the_group_is_2_and_said_alike_by_all_commands(broker: FakeBroker, tmp_path: Path) -> None:
    broker.answers |= {
        FindCoordinator.api.key: answers.coordinator(Coordinator(GROUP_REFUSED, "", broker.address), "etl")
    }
    for command in [name for name in ASKING if name != "groups"]:
        found = run(command, "-b", str(broker.address), *required(command, tmp_path))
        assert (found.exit_code, found.stdout) == (2, ""), command
        assert "kafka-group: The user of this connection may not use the group 'etl'" in found.stderr, command


def test_a_closed_port_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the command waited 10 s, the time that a new cluster may need to start."""
    monkeypatch.setattr(group_view, "_PATIENCE_S", 10.0)
    for address in ("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2", "host.invalid:9092"):
        begin = time.monotonic()
        assert run("describe", "-b", address, "etl").exit_code == 2
        assert time.monotonic() - begin < 5


def test_names_are_not_cut_in_a_pipe() -> None:
    """Regression: ``kafka-group describe ... | grep TOPIC`` found nothing."""
    name = "orders-" + "x" * 150
    with fake_group(name, [5], end=9) as broker:
        found = run("describe", "--no-status", "-b", str(broker.address), "etl")
    assert name in found.stdout


def test_a_missing_right_is_2_and_says_which(broker: FakeBroker) -> None:
    broker.answers[CLASSIC] = classic("", GROUP_REFUSED)
    refused(run("describe", "-b", str(broker.address), "etl"), "GROUP_AUTHORIZATION_FAILED")


def test_a_broker_that_does_not_answer_is_2(tmp_path: Path) -> None:
    assert len(ASKING) >= 9
    for command in ASKING:
        found = run(command, "-b", "127.0.0.1:1", *required(command, tmp_path))
        assert (found.exit_code, found.stdout) == (2, ""), command
        assert "the cluster at 127.0.0.1:1 does not answer" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("describe",), "Missing argument 'GROUP'"),
        (("describe", "etl"), "--bootstrap-server HOST:PORT"),
        (("describe", "--config", "/no/such/file", "etl"), "/no/such/file: No such file"),
        (("history", "-b", "a:1", "--topics", "orders:x", "etl"), "is not a topic. Write orders, or orders:0,2"),
        (("explain", "etl"), "No such command 'explain'"),
        (("describe", "--speed", "etl"), "No such option"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    refused(run(*arguments), said)


def test_a_password_of_a_file_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=s3cret-Pa55\n",
        encoding="utf-8",
    )
    found = run("describe", "--config", str(file), "etl")
    assert found.exit_code == 2
    assert "s3cret-Pa55" not in found.output


def test_a_bug_is_one_line_and_2(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(group_commands, "coordinator_document", broken)
    found = run("coordinator", "-b", str(broker.address), "etl")
    refused(found, "this is a bug: ZeroDivisionError: oh")
    assert len(found.stderr.splitlines()) == 1


def test_partitions_are_chosen_as_in_kcl() -> None:
    assert parse_partitions([]) == {}
    assert parse_partitions(["orders"]) == {"orders": None}
    assert parse_partitions(["orders:0,2", "orders:5", "a.b_c-d"]) == {"orders": frozenset({0, 2, 5}), "a.b_c-d": None}
    assert parse_partitions(["orders:0", "orders"]) == {"orders": None}
    for wrong in ("", ":1", "orders:", "orders:1,", "orders:-1", "or ders", "orders:²"):
        with pytest.raises(ConfigurationError):
            parse_partitions([wrong])


@pytest.mark.parametrize("command", [(), *[(name,) for name in kafka_group.commands]])
def test_help_is_80_columns_wide_and_has_an_example(command: tuple[str, ...]) -> None:
    found = run(*command, "--help")
    assert found.exit_code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert "..." not in found.stdout.partition("Commands:")[2], "a first sentence is too long"
    if command:
        assert re.search(rf"Examples?:\n +kafka-group {command[0]} -", found.stdout)


def test_every_command_that_asks_a_cluster_knows_the_same_connection_and_json() -> None:
    for name, command in kafka_group.commands.items():
        if name in ("demo", "health") or any(parameter.name == "files" for parameter in command.params):
            continue  # it starts a Kafka, asks the queries on this machine, or reads event logs
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--bootstrap-server", "--config", "--profile", "--json"} <= options, name
        assert options & {"group", "--group"} or name == "groups", name


COMPLETION = {
    "bash": ({"COMP_WORDS": "kafka-group des", "COMP_CWORD": "1"}, ["plain,describe"]),
    "zsh": ({"COMP_WORDS": "kafka-group des", "COMP_CWORD": "1"}, ["plain", "describe"]),
    "fish": ({"COMP_WORDS": "kafka-group des", "COMP_CWORD": "des"}, ["plain,describe"]),
}


@pytest.mark.parametrize("shell", COMPLETION)
def test_shells_complete_commands(shell: str) -> None:
    words, expected = COMPLETION[shell]
    program = Path(sys.executable).with_name("kafka-group")

    def ask(instruction: str, **variables: str) -> str:
        environment = {**os.environ, **variables, "_KAFKA_GROUP_COMPLETE": f"{shell}_{instruction}"}
        found = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=True)
        return found.stdout

    assert "kafka-group" in ask("source")
    lines = ask("complete", **words).splitlines()
    assert [line.partition("\t")[0] for line in lines][: len(expected)] == expected


def test_profiles_are_completed_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kafka-group"
    folder.mkdir()
    for name in ("prod.properties", "preview.properties", "stage.properties", "prod.txt", "no name.properties"):
        (folder / name).touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (option,) = [found for found in kafka_group.commands["describe"].params if found.name == "profile"]
    completed = option.shell_complete(click.Context(kafka_group.commands["describe"]), "pr")
    assert [item.value for item in completed] == ["preview", "prod"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert option.shell_complete(click.Context(kafka_group.commands["describe"]), "") == []


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_a_package_it_is_said_what_to_install(package: str) -> None:
    program = f"import sys; sys.modules['{package}'] = None; "
    program += "from pyspark_kafka_group.tools.__main__ import main; main()"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert f"'{package}' is not installed. Install it with pip install 'pyspark-kafka-group[cli]'" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "pyspark_kafka_group.tools", "--version"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (0, "")
