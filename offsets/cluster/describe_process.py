"""Describes a group in a process of its own, by way of librdkafka's admin client.

For clusters that only librdkafka can talk to (Kerberos, keys in PKCS#12 ...).  Its DescribeConsumerGroups
ends the process when the coordinator goes away meanwhile: an assertion fails in `rd_kafka_enq_once_del_source_return`
(confluentinc/librdkafka#4605 and #3663, still in 2.16.1).  That must not take a query along.  Once librdkafka has been
mended, the admin client may be called where the query runs, and this module goes.

`describe_elsewhere` is called by the process that runs the query; the rest is the other process.  The properties, which
hold secrets, go through its standard input, never through its arguments or environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError, refusal
from pyspark_kafka_group.offsets.cluster.group_description import DEAD, GroupDescription, GroupProtocol, Member
from pyspark_kafka_group.offsets.properties.client_config import Properties, client_error, client_properties
from pyspark_kafka_group.offsets.properties.kafka_properties import ClientKind
from pyspark_kafka_group.offsets.redaction import redact
from pyspark_kafka_group.offsets.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription, MemberAssignment

_START_S = 10.0
"""How much longer than the cluster the process may take: a Python starts, on a busy machine, and loads librdkafka."""

_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}


def describe_elsewhere(properties: Properties, group_id: str, timeout_s: float) -> GroupDescription:
    """Describe a group.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    group_id : str
        Which group.
    timeout_s : float
        How long the cluster may take.

    Raises
    ------
    TryAgainError
        If the cluster does not answer, or the other process has failed.
    KafkaGroupError
        If no retry cures what is wrong.
    """
    question = {
        "properties": client_properties(ClientKind.ADMIN, properties),
        "group_id": group_id,
        "timeout_s": timeout_s,
    }
    # The same modules, also where Spark has put the package on the path at run time.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-P", "-m", __name__]  # -P: nothing of the working directory
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    ) as process:
        try:
            output, _ = process.communicate(json.dumps(question).encode(), timeout_s + _START_S)
        except subprocess.TimeoutExpired:
            raise TryAgainError(f"describing group {group_id!r} took longer than {timeout_s + _START_S:g} s") from None
        finally:
            process.kill()  # does nothing if it has ended
    if process.returncode:
        raise TryAgainError(f"the process that describes group {group_id!r} ended with {process.returncode}")
    try:
        answer = json.loads(output)
        if "group" in answer:
            return GroupDescription.from_json(answer["group"])
        name, text = answer["error"]
    except (ValueError, LookupError, TypeError):
        raise TryAgainError(f"the process that describes group {group_id!r} said nothing of use") from None
    if not name:
        raise client_error(ValueError(text), properties)
    final = refusal(name, text, group_id=group_id, properties=properties)
    raise final or TryAgainError(f"group {group_id!r}: {name}: {redact(text, properties)}")


def _main() -> None:
    """Answer the question of standard input.  The other process."""
    question = json.load(sys.stdin)
    # Should the process that asked be gone: its default action ends this one, whatever librdkafka is doing.
    signal.alarm(int(question["timeout_s"] + _START_S) + 1)
    print(json.dumps(_answer(question)), flush=True)  # noqa: T201
    # Deliberate: without taking the client apart, which may hang, and has nothing left to tell.
    os._exit(0)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    group_id, timeout_s = question["group_id"], question["timeout_s"]
    try:
        admin = AdminClient(question["properties"])
    except (KafkaException, ValueError, TypeError) as problem:
        return {"error": ["", str(problem)]}
    try:
        asked = admin.describe_consumer_groups([group_id], request_timeout=timeout_s)
        found = asked[group_id].result(timeout_s)
    except KafkaException as problem:
        error = problem.args[0]
        return {"error": [error.name(), error.str()]}
    except TimeoutError:
        return {"error": ["_TIMED_OUT", "no answer in time"]}
    return {"group": _description(found).to_json()}


def _description(found: ConsumerGroupDescription) -> GroupDescription:
    from confluent_kafka import ConsumerGroupType

    modern = found.type == ConsumerGroupType.CONSUMER
    members = tuple(
        Member(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            host=member.host,
            assignment=_partitions(member.assignment),
            target=_partitions(member.target_assignment) if modern and member.target_assignment else None,
        )
        for member in found.members
    )
    name = getattr(found.state, "name", str(found.state))
    protocol = GroupProtocol.CONSUMER if modern else GroupProtocol.CLASSIC
    state = _STATES.get(name, name)
    forgets = not modern and state != DEAD and not found.is_simple_consumer_group
    return GroupDescription(state=state, protocol=protocol, members=members, forgets=forgets)


def _partitions(assignment: MemberAssignment) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(part.topic, part.partition) for part in assignment.topic_partitions or ())


if __name__ == "__main__":
    _main()
