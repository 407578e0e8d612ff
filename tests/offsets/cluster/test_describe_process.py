"""A group described in another process, and what becomes of that process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pyspark_kafka_group.offsets.cluster import describe_process
from pyspark_kafka_group.offsets.cluster.describe_process import describe_elsewhere
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_description import GroupDescription, GroupProtocol, Member
from pyspark_kafka_group.offsets.errors import AuthenticationError, OptionError
from pyspark_kafka_group.offsets.types import TopicPartition

SECRET = "hunter2-and-more"
PROPERTIES = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": SECRET, "session.timeout.ms": "6000"}
Script = Callable[[str], None]


@pytest.fixture
def instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Let the other process be a script."""
    script = tmp_path / "python"

    def be(text: str) -> None:
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return be


def test_a_cluster_that_does_not_answer_passes_by_itself() -> None:
    """The real process: it is started, asks in vain, and says so."""
    with pytest.raises(TryAgainError, match=r"_TIMED_OUT|_TRANSPORT"):
        describe_elsewhere({"bootstrap.servers": "127.0.0.1:1"}, "etl", 1.0)


def test_a_property_that_librdkafka_refuses_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.security\.protocol"):
        describe_elsewhere({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "never"}, "etl", 1.0)


@pytest.mark.parametrize("number", ["ABRT", "SEGV", "KILL"])
def test_a_process_that_dies_of_a_signal_takes_nobody_along(instead: Script, number: str) -> None:
    instead(f"kill -{number} $$")
    with pytest.raises(TryAgainError, match="ended with -"):
        describe_elsewhere(PROPERTIES, "etl", 1.0)


def test_a_process_that_hangs_is_killed(instead: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_process, "_START_S", 0.5)
    instead(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    begin = time.monotonic()
    with pytest.raises(TryAgainError, match=r"took longer than 0\.6 s"):
        describe_elsewhere(PROPERTIES, "etl", 0.1)
    assert time.monotonic() - begin < 10
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "said",
    ["", "rubbish", "[]", "{}", '{"error": []}', '{"error": 3}', '{"group": {"state": "Stable"}}', '{"group": 1}'],
)
def test_a_process_that_says_nothing_of_use_passes_by_itself(instead: Script, said: str) -> None:
    instead(f"cat > /dev/null; echo '{said}'")
    with pytest.raises(TryAgainError, match="nothing of use"):
        describe_elsewhere(PROPERTIES, "etl", 1.0)


def test_a_refusal_is_an_explained_error_without_secrets(instead: Script) -> None:
    instead(f"""cat > /dev/null; echo '{{"error": ["_AUTHENTICATION", "wrong: {SECRET}"]}}'""")
    with pytest.raises(AuthenticationError, match=r"kafka\.sasl\.password") as problem:
        describe_elsewhere(PROPERTIES, "etl", 1.0)
    assert SECRET not in str(problem.value)


def test_properties_go_through_standard_input_only(instead: Script, tmp_path: Path) -> None:
    instead(f'echo "$@" > {tmp_path}/arguments; env > {tmp_path}/environment; cat > {tmp_path}/input; exit 3')
    with pytest.raises(TryAgainError, match="ended with 3"):
        describe_elsewhere(PROPERTIES, "etl", 1.0)
    assert SECRET in (tmp_path / "input").read_text()
    assert "session.timeout.ms" not in (tmp_path / "input").read_text(), "of the connection only"
    assert SECRET not in (tmp_path / "arguments").read_text()
    assert SECRET not in (tmp_path / "environment").read_text()


def test_the_process_finds_the_package_where_this_one_does(
    instead: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", "/spark/added/this", *sys.path])
    instead(f'echo "$PYTHONPATH" > {tmp_path}/path; exit 1')
    with pytest.raises(TryAgainError):
        describe_elsewhere(PROPERTIES, "etl", 1.0)
    assert (tmp_path / "path").read_text().startswith("/spark/added/this:")


def test_a_description_survives_the_way_as_json() -> None:
    tps = frozenset(TopicPartition("orders", n) for n in range(3))
    members = (
        Member(member_id="a", instance_id=None, client_id="c", host="h", assignment=tps),
        Member(
            member_id="b", instance_id="i", client_id="c", host="h", assignment=frozenset(), target=tps, member_epoch=3
        ),
    )
    group = GroupDescription(state="Stable", protocol=GroupProtocol.CONSUMER, members=members, epoch=4)
    assert GroupDescription.from_json(json.loads(json.dumps(group.to_json()))) == group
