"""An older version of this project and this one: members of both in one group, checkpoints taken over.  See `rows`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from integration.cluster import Stream, lag
from integration.oracles import memberships
from integration.pipelines import Application, assert_exactly_once, assert_orderly, wait_for
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

pytestmark = pytest.mark.timeout(1500)

NOW = sys.executable
PARTITIONS = 6
PATIENCE_S = 300.0
"""It starts a Spark application half a dozen times, on a machine that may be busy."""


class Versioned(Application):
    """An application that may start again with another version."""

    python = NOW
    topic = ""
    program = ""

    def start_with(self, python: str) -> Versioned:
        """Start it, or start it again, with the version that is installed in this environment."""
        self.python = python
        self.start()
        return self

    def command(self) -> list[str]:
        return [self.python, "-m", self.program, str(self.config)]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYSPARK_PYTHON": self.python, "PYSPARK_DRIVER_PYTHON": self.python}

    def wait_for_more(self) -> None:
        """Wait until it has written something that is new."""
        before = len(self.deliveries)

        def more() -> bool:
            self.check()
            return len(self.deliveries) > before + 1

        wait_for(more, f"{self.name} writes", timeout_s=PATIENCE_S)

    def wait_for_ownership(self, count: int) -> None:
        def reached() -> bool:
            self.check()
            return len(self.owned()) == count

        wait_for(reached, f"{self.name} owns {count} partitions", timeout_s=PATIENCE_S)


Applications = Callable[..., Versioned]


@pytest.fixture(scope="module")
def before() -> str:
    """Return the Python that has the older version, and make sure that it has."""
    python = os.environ["PYTHON_BEFORE"]
    where = "import pyspark_kafka_group; print(pyspark_kafka_group.__file__)"
    found = subprocess.run([python, "-c", where], cwd="/", capture_output=True, text=True, check=True).stdout
    assert Path(found).is_relative_to(Path(python).parents[1])
    return python


@pytest.fixture(params=["integration.compatibility.spark_calls", "integration.application"], ids=["calls", "spark"])
def applications(
    request: pytest.FixtureRequest, tmp_path: Path, topic: TopicFactory, options: dict[str, str]
) -> Iterator[Applications]:
    """Yield a maker of applications that read one topic, ``applications(name, **options)``; none survives the test.

    Once each makes the calls that Spark makes, and once it has Spark.
    """
    made: list[Versioned] = []
    name = topic(PARTITIONS)

    def make(member: str, **more: str) -> Versioned:
        made.append(Versioned(tmp_path, member, {**options, "subscribe": name, **more}))
        made[-1].topic, made[-1].program = name, request.param
        return made[-1]

    yield make
    for one in made:
        one.kill()


def audit(members: list[Versioned], stream: Stream) -> None:
    """Nothing is lost and nothing is twice, and each member kept to the rules."""
    assert_exactly_once([row for member in members for row in member.rows], stream.produced)
    for member in members:
        assert member.events("expired") == []
        for membership in memberships(member.events()):
            assert_orderly(membership)


def test_a_group_is_upgraded_one_member_after_the_other(
    kafka: Kafka, group: str, applications: Applications, before: str, protocol: str
) -> None:
    """While records flow: partitions move from old to new members, back to an old one, and on."""
    let_slow_members_live(kafka, group, protocol)
    one, two = members = [applications(name) for name in ("one", "two")]

    def share() -> None:
        for member in members:
            member.wait_for_ownership(PARTITIONS // 2)
            member.wait_for_more()

    with Stream(kafka.bootstrap_servers, {one.topic: PARTITIONS}, per_second=100) as stream:
        for member in members:
            member.start_with(before)
        share()
        one.stop()
        one.start_with(NOW)
        share()
        one.stop()
        two.wait_for_ownership(PARTITIONS)
        two.wait_for_more()
        one.start_with(NOW)
        two.stop()
        two.start_with(NOW)
        share()
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, one.topic, range(PARTITIONS)) == 0, "all is committed")
        for member in members:
            member.stop()
    audit(members, stream)


def test_an_old_member_that_dies_in_a_batch_comes_back_as_a_new_one(
    kafka: Kafka, group: str, applications: Applications, before: str, protocol: str
) -> None:
    """Its batch was written, and is in Spark's log alone: it runs again under its number, as it was logged."""
    timeout = {"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}
    query = applications("query", **timeout)
    with Stream(kafka.bootstrap_servers, {query.topic: PARTITIONS}, per_second=100) as stream:
        query.start_with(before)
        query.wait_for_more()
        query.slow_down(after_s=600)
        written = len(query.deliveries)
        wait_for(lambda: len(query.deliveries) > written, "a batch is written", timeout_s=PATIENCE_S)
        query.kill()
        last = max(delivery.batch for delivery in query.deliveries)
        query.start_with(NOW)
        query.wait_for_more()
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, query.topic, range(PARTITIONS)) == 0, "all is committed")
        query.stop()
    written_last = {d.tp: [d.start, d.until] for d in query.deliveries if d.batch == last}
    assert [event["ranges"] for event in query.events("replayed")] == [written_last]
    audit([query], stream)


def let_slow_members_live(kafka: Kafka, group: str, protocol: str) -> None:
    """Give the group the session timeout that queries have under the classic protocol; the test brokers' is short."""
    if protocol == "consumer":
        entry = ConfigEntry("consumer.session.timeout.ms", "45000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.incremental_alter_configs([resource])[resource].result(30)
