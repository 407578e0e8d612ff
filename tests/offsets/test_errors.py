"""The errors form one tree, say what to do, and survive a pickle.

Only the text of an error reaches the user from Spark's source process.  So these tests pin every text.
"""

from __future__ import annotations

import pickle
import re

import pytest

from pyspark_kafka_group.coordinator.handover.transitions import IllegalTransitionError
from pyspark_kafka_group.offsets import errors
from pyspark_kafka_group.offsets.errors import KafkaGroupError

TEXTS: list[tuple[KafkaGroupError, str]] = [
    (
        errors.OptionError("kafka.group.id", "it is missing.", "Set it to the name of the group."),
        "Option 'kafka.group.id': it is missing. Set it to the name of the group.",
    ),
    (
        errors.ColumnError("value", "value must be a(n) string. Cast it."),
        "Column 'value': value must be a(n) string. Cast it.",
    ),
    (
        errors.DeliveryError(
            topic="orders", partition=3, code="MSG_SIZE_TOO_LARGE", text="too large", remedy="Raise it."
        ),
        "orders-3: a record could not be written: MSG_SIZE_TOO_LARGE (too large). Raise it.",
    ),
    (
        errors.DeliveryError(topic="", partition=-1, code="_FENCED", text="fenced", remedy="Stop one."),
        "the cluster: a record could not be written: _FENCED (fenced). Stop one.",
    ),
    (errors.SinkTransactionError("Batch 7 is gone."), "Batch 7 is gone."),
    (
        errors.TriggerError(),
        "Spark runs this query with the trigger once: you have set it, or you have set availableNow and another source "
        "of the query does not support that. Use trigger(availableNow=True), and for such another source also set "
        "spark.sql.streaming.triggerAvailableNowWrapper.enabled to true.",
    ),
    (
        errors.UnknownTopicError(["orders", "clicks"]),
        "Option 'subscribe': topic not found: clicks, orders. Create it, correct the name, or give the user of this "
        "query the right READ on it.",
    ),
    (
        errors.UnknownTopicError(["orders"], option="assign"),
        "Option 'assign': topic not found: orders. Create it, correct the name, or give the user of this query the "
        "right READ on it.",
    ),
    (
        errors.NoOffsetAtTimeError(topic="orders", partition=3, time_ms=1577836800000, option="startingTimestamp"),
        "orders-3 has no record of the time 1577836800000 (startingTimestamp, in milliseconds since 1970) or later. "
        "Set startingOffsetsByTimestampStrategy=latest to start such partitions at their end, or an earlier time.",
    ),
    (
        errors.ActiveGroupError("etl"),
        "Option 'assign': the group 'etl' has members, and accepts offsets only from them. Use subscribe to share its "
        "partitions, give this query its own group, or remove kafka.group.id to keep the offsets only in the "
        "checkpoint. If the members have just stopped, wait until the group has removed them (kafka-consumer-groups "
        "--describe --members shows them).",
    ),
    (
        errors.NotUpgradedError("etl", "The group id does not exist"),
        "The group 'etl' has members of the classic protocol, and its coordinator refuses members of the new one (The "
        "group id does not exist). It can upgrade a group with members only while their assignments carry no user "
        "data. Those of librdkafka's cooperative-sticky carry some once partitions have moved. Stop all members, then "
        "start them with kafka.group.protocol=consumer: their offsets and checkpoints stay as they are.",
    ),
    (
        errors.ActiveGroupError.of_bookmark("etl", ["one", "other", "one"]),
        "The group 'etl' has members (one, other), and accepts offsets only from them, so a bookmark cannot commit. "
        "Stop them, or give the bookmark its own group (option 'kafka.group.id'). If they have just stopped, wait "
        "until the group has removed them.",
    ),
    (
        errors.DataLossError.of_recreated_bookmark("orders", "etl"),
        "Topic 'orders' was deleted and created again after this bookmark was made. Its offsets do not belong to the "
        "new topic, so nothing was committed to the group 'etl'. This run may have read records of both topics. Make "
        "a new bookmark: it reads the new topic from its beginning.",
    ),
    (
        errors.BookmarkMovedError(topic="orders", partition=3, group_id="etl", before=None, committed=7),
        "orders-3: the group 'etl' had no committed offset when this bookmark was made, and has 7 now. Another run, "
        "or a tool, has changed it meanwhile. So this bookmark has committed nothing, and both runs may have "
        "processed the same records. Make sure that two runs of a job never overlap, and make a new bookmark.",
    ),
    (
        errors.MissingDependencyError("confluent_kafka", "/usr/bin/python3"),
        "The package 'confluent_kafka' is missing from the Python that Spark uses for data sources "
        "(/usr/bin/python3). Install pyspark-kafka-group there, or point PYSPARK_PYTHON (or spark.pyspark.python) at "
        "the environment that has it, on the driver and on all executors.",
    ),
    (
        errors.DataLossError(topic="orders", partition=3, lost_from=5, lost_until=9, log_start=9, log_end=20),
        "orders-3: offsets [5, 9) were deleted before they were read, usually by retention; the broker holds [9, 20). "
        "Set failOnDataLoss=false to resume at the nearest offset that exists.",
    ),
    (
        errors.DataLossError(topic="orders", partition=3, lost_from=5, lost_until=9, log_start=-1, log_end=-1),
        "orders-3: offsets [5, 9) were deleted before they were read, usually by retention; the broker holds no such "
        "partition. Set failOnDataLoss=false to resume at the nearest offset that exists.",
    ),
    (
        errors.DataLossError(topic="orders", partition=3, lost_from=9, lost_until=12, log_start=0, log_end=9),
        "orders-3: offsets [9, 12) are beyond the end of the log, 9. The log was truncated, usually by an unclean "
        "leader election, or the topic was deleted and created again. Set failOnDataLoss=false to resume at the "
        "nearest offset that exists.",
    ),
    (
        errors.DataLossError(topic="orders", partition=3, lost_from=9, lost_until=12, log_start=0, log_end=20),
        "orders-3: offsets [9, 12) were truncated, usually by an unclean leader election. Other records have these "
        "offsets now. Set failOnDataLoss=false to resume at the nearest offset that exists.",
    ),
    (
        errors.DataLossError.of_start(topic="orders", partition=3, offset=9, log_start=0, log_end=5),
        "orders-3: the option 'startingOffsets' names the offset 9, but the log has [0, 5). Correct the offset, or set "
        "failOnDataLoss=false to start at the nearest one that exists.",
    ),
    (
        errors.DataLossError.of_recreated(topic="orders", partition=3, finished=9, log_end=4),
        "orders-3: the topic was deleted and created again. The records of the old topic from offset 9 on are lost. "
        "The offsets of the group and of the checkpoint do not belong to the new topic. Set failOnDataLoss=false to "
        "read the new topic from its beginning.",
    ),
    (
        errors.DataLossError.of_recreated(topic="orders", partition=3, finished=None, log_end=4),
        "orders-3: the topic was deleted and created again. The records of the old topic that this query had not read "
        "are lost. The offsets of the group and of the checkpoint do not belong to the new topic. Set "
        "failOnDataLoss=false to read the new topic from its beginning.",
    ),
    (
        errors.DataLossError.of_deleted(["orders", "clicks"]),
        "Topic deleted: clicks, orders. The records that this query had not read are lost. Create the topic again, "
        "remove it from the subscription (options 'subscribe', 'subscribePattern'), or set failOnDataLoss=false to "
        "continue with the other topics.",
    ),
    (
        errors.OutdatedCheckpointError(topic="orders", partition=3, group_id="etl", committed=9, finished=5),
        "orders-3: this query has committed 9 to the group 'etl', but its checkpoint ends at 5. There are three "
        "possible causes. The checkpoint was restored from an older copy. Another run of this query uses a copy of "
        "the checkpoint, and has committed meanwhile. Or the option asyncProgressTrackingEnabled has left out "
        "batches. The next batches would have the numbers of batches that ran before, and a sink that relies on these "
        "numbers would skip or replace records. Stop the other run, if there is one. Then use the newest checkpoint, "
        "or a new one: it begins at the group's committed offsets and numbers its batches from 0.",
    ),
    (
        errors.OutdatedCheckpointError(topic="orders", partition=3, group_id="etl", committed=9, finished=None),
        "orders-3: this query has committed 9 to the group 'etl', but its checkpoint does not contain the partition. "
        "There are three possible causes. The checkpoint was restored from an older copy. Another run of this query "
        "uses a copy of the checkpoint, and has committed meanwhile. Or the option asyncProgressTrackingEnabled has "
        "left out batches. The next batches would have the numbers of batches that ran before, and a sink that relies "
        "on these numbers would skip or replace records. Stop the other run, if there is one. Then use the newest "
        "checkpoint, or a new one: it begins at the group's committed offsets and numbers its batches from 0.",
    ),
    (
        errors.OffsetRewindError(topic="orders", partition=3, group_id="etl", committed=5, finished=9),
        "orders-3: the committed offset of group 'etl' is back at 5, but this query has finished up to 9. Another "
        "program has reset or deleted the group's offsets, or this query had another group, or none, before. Set "
        "onOffsetRewind=checkpoint to resume at 9 and commit it to the group. Do this once if you have changed the "
        "group. Or set onOffsetRewind=group to process [5, 9) again.",
    ),
    (
        errors.OffsetRewindError(topic="orders", partition=3, group_id="etl", committed=None, finished=9),
        "orders-3: the committed offset of group 'etl' is gone, but this query has finished up to 9. Another program "
        "has reset or deleted the group's offsets, they have expired, or this query had another group, or none, "
        "before. Set onOffsetRewind=checkpoint to resume at 9 and commit it to the group. Do this once if you have "
        "changed the group. Or set onOffsetRewind=group to begin at startingOffsets, as a new group does, but not "
        "after 9.",
    ),
    (
        errors.OffsetRewindError(topic="orders", partition=3, group_id="etl", committed=None, finished=None),
        "orders-3: the group 'etl' has no offsets of this topic. Another program has reset or deleted the "
        "group's offsets, they have expired, or this query had another group, or none, before. This query has read "
        "other partitions of the topic, and cannot find out how far the group has processed this one. Set "
        "onOffsetRewind=checkpoint to read it from its beginning, or onOffsetRewind=group to begin at startingOffsets, "
        "as a new group does.",
    ),
    (
        errors.OffsetRewindError(
            topic="orders",
            partition=3,
            group_id="etl",
            committed=5,
            finished=9,
            reset="alice@laptop set it with 'kafka-group' at 2026-01-01 00:00:00 UTC; it was 9 before",
        ),
        "orders-3: the committed offset of group 'etl' is back at 5, but this query has finished up to 9. It was "
        "reset: alice@laptop set it with 'kafka-group' at 2026-01-01 00:00:00 UTC; it was 9 before. Set "
        "onOffsetRewind=checkpoint to resume at 9 and commit it to the group. Or set onOffsetRewind=group to process "
        "[5, 9) again.",
    ),
    (
        errors.OffsetFormatError("its format version is 3, not 2."),
        "The offset in the checkpoint cannot be read: its format version is 3, not 2. Use the version of "
        "pyspark-kafka-group that wrote it (or a newer one), or a new checkpoint.",
    ),
    (
        errors.ReadTimeoutError(topic="orders", partition=3, position=5, until=9, timeout_s=120.0),
        "orders-3: no records arrived for 120 s at offset 5, and the range ends at 9. The broker that leads the "
        "partition is slow, or this executor cannot reach it. Check the network from the executors, or raise "
        "kafkaConsumer.pollTimeoutMs.",
    ),
    (
        errors.ReadTimeoutError(
            topic="orders", partition=3, position=5, until=9, timeout_s=0.5, last_error="1/1 brokers are down"
        ),
        "orders-3: no records arrived for 0.5 s at offset 5, and the range ends at 9. The broker that leads the "
        "partition is slow, or this executor cannot reach it. Check the network from the executors, or raise "
        "kafkaConsumer.pollTimeoutMs. The client's last error: 1/1 brokers are down.",
    ),
    (
        errors.SchemaRegistryError("The schema registry refuses."),
        "The schema registry refuses.",
    ),
    (
        errors.MalformedRecordError(topic="orders", partition=3, offset=5, column="value", reason="it is not JSON"),
        "orders-3: the value of the record at offset 5 is malformed: it is not JSON. Correct valueFormat or its "
        "schema, or set malformedRecords=null or malformedRecords=deadLetter for such records.",
    ),
    (
        errors.ConditionError(topic="orders", partition=3, offset=5, condition="10 / n > 1"),
        "orders-3: the option 'where' fails for the record at offset 5: a cast, an overflow or a division by zero in "
        "'10 / n > 1'. Use TRY_CAST, or exclude such records before that part with AND.",
    ),
    (
        errors.MissingDependencyError("fastavro", "/usr/bin/python3", extra="avro"),
        "The package 'fastavro' is missing from the Python that Spark uses for data sources (/usr/bin/python3). Run "
        "`pip install 'pyspark-kafka-group[avro]'` there, or point PYSPARK_PYTHON (or spark.pyspark.python) at the "
        "environment that has it, on the driver and on all executors.",
    ),
    (
        errors.UnexpectedRecordError(topic="orders", partition=3, position=5, found="offset 4"),
        "orders-3: the next record should have offset 5 or a later one, but the Kafka client delivered offset 4. This "
        "is a bug in pyspark-kafka-group or in librdkafka: please report it with the versions of both. Spark did not "
        "get this record. You can start the query again.",
    ),
    (
        errors.RecordBatchTooLargeError(
            topic="orders", partition=3, offset=5, limit_bytes=100_000_000, found="a response of 200000000 bytes"
        ),
        "orders-3: the record batch at offset 5 is too large for a reader: a response of 200000000 bytes, and "
        "kafka.receive.message.max.bytes allows 100000000. If producers may send batches of this size, raise "
        "kafka.receive.message.max.bytes, and give the Python workers of the executors twice as much memory. "
        "Otherwise correct the producer. Then delete the log up to the end of this batch with "
        "kafka-delete-records.sh, and set failOnDataLoss=false to skip the deleted records.",
    ),
    (
        errors.UnreadableBatchError(
            topic="orders", partition=3, offset=5, until=9, reason="it cannot be decompressed (it is cut off)"
        ),
        "orders-3: offsets [5, 9) cannot be read: it cannot be decompressed (it is cut off). Correct the producer or "
        "the broker's disk, and set failOnDataLoss=false to continue without these records.",
    ),
    (errors.BrokerError("no broker answers"), "no broker answers"),
    (errors.AuthenticationError("wrong password"), "wrong password"),
    (errors.AssignmentTimeoutError("nothing in 60 s"), "nothing in 60 s"),
    (
        errors.NoPartitionsError("etl"),
        "The group 'etl' has assigned no partition to this run with availableNow. Other members have all "
        "partitions, and read them, because the group has at least as many members as partitions. Start fewer "
        "members, or add partitions. kafka-consumer-groups --describe --members shows the members.",
    ),
    (errors.MemberFencedError("taken"), "taken"),
    (
        IllegalTransitionError("a partition that is draining cannot be: assigned"),
        "a partition that is draining cannot be: assigned",
    ),
]

ids = [type(error).__name__ for error, _ in TEXTS]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=ids)
def test_text_is_pinned(error: KafkaGroupError, text: str) -> None:
    assert str(error) == text
    assert error.message == text


@pytest.mark.parametrize("error", [error for error, _ in TEXTS], ids=ids)
def test_error_keeps_type_text_and_attributes_in_a_pickle(error: KafkaGroupError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def drawn_tree() -> dict[str, str]:
    """Return the parent of each error in the tree that the module's docstring draws."""
    found, branch = {}, ""
    for lead, name in re.findall(r"^    (.*?)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE):
        found[name] = branch if lead else "KafkaGroupError"
        branch = branch if lead else name
    return found


def test_docstring_draws_the_tree_of_the_errors() -> None:
    defined = {
        name: value.__mro__[1].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, KafkaGroupError) and value is not KafkaGroupError
    }
    assert drawn_tree() == defined


def test_every_error_with_a_text_of_its_own_has_it_pinned() -> None:
    tree = drawn_tree()
    assert {type(error).__name__ for error, _ in TEXTS} >= tree.keys() - {*tree.values()}


def test_attributes_are_there_to_compute_with() -> None:
    error = errors.DataLossError(topic="t", partition=0, lost_from=5, lost_until=9, log_start=9, log_end=20)
    assert (error.topic, error.partition, error.lost_until - error.lost_from) == ("t", 0, 4)
    recreated = errors.DataLossError.of_recreated(topic="t", partition=0, finished=5, log_end=4)
    assert (recreated.lost_from, recreated.lost_until, recreated.log_start, recreated.log_end) == (5, -1, 0, 4)
    assert errors.DataLossError.of_deleted(["b", "a"]).topic == "a, b"
    outdated = errors.OutdatedCheckpointError(topic="t", partition=0, group_id="g", committed=9, finished=5)
    assert (outdated.committed, outdated.finished) == (9, 5)
    assert errors.OptionError("subscribe", "is empty.", "Name a topic.").option == "subscribe"
    assert errors.UnknownTopicError(["b", "a"]).topics == ["a", "b"]
