"""The errors form one tree, say what happened and what to do, and survive a pickle.

Only the text of an error reaches the user from Spark's source process.  So each text is here: facts and remedy.
"""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from pyspark_kafka_group.coordinator.handover.transitions import IllegalTransitionError
from pyspark_kafka_group.offsets import errors
from pyspark_kafka_group.offsets.errors import KafkaGroupError

WHERE: dict[str, Any] = {"topic": "orders", "partition": 3}
LOST: dict[str, Any] = {**WHERE, "lost_from": 5, "lost_until": 9}
REWOUND: dict[str, Any] = {**WHERE, "group_id": "etl"}
SILENT: dict[str, Any] = {**WHERE, "position": 5, "until": 9}

TEXTS: list[tuple[KafkaGroupError, str]] = [
    (
        errors.OptionError("kafka.group.id", "it is missing.", "Set it to the name of the group."),
        "Option 'kafka.group.id': it is missing. Set it to the name of the group.",
    ),
    (errors.ColumnError("value", "it must be a string. Cast it."), "Column 'value': it must be a string. Cast it."),
    (
        errors.DeliveryError(**WHERE, code="MSG_SIZE_TOO_LARGE", text="too large", remedy="Raise it."),
        "orders-3: a record could not be written: MSG_SIZE_TOO_LARGE (too large). Raise it.",
    ),
    (
        errors.DeliveryError(topic="", partition=-1, code="_FENCED", text="fenced", remedy="Stop one."),
        "the cluster: a record could not be written: _FENCED (fenced). Stop one.",
    ),
    (errors.SinkTransactionError("Batch 7 is gone."), "Batch 7 is gone."),
    (errors.TriggerError(), "Spark runs this query with the trigger once: ... Use trigger(availableNow=True) ..."),
    (
        errors.UnknownTopicError(["orders", "clicks"]),
        "Option 'subscribe': topic not found: clicks, orders. Create it, ... right READ on it.",
    ),
    (errors.UnknownTopicError(["orders"], option="assign"), "Option 'assign': topic not found: orders. ..."),
    (
        errors.NoOffsetAtTimeError(**WHERE, time_ms=1577836800000, option="startingTimestamp"),
        "orders-3 has no record of the time 1577836800000 (startingTimestamp, ... or later. "
        "Set startingOffsetsByTimestampStrategy=latest ... or an earlier time.",
    ),
    (
        errors.ActiveGroupError("etl"),
        "Option 'assign': the group 'etl' has members, ... Use subscribe to share its partitions, give this query its "
        "own group, or remove kafka.group.id ...",
    ),
    (
        errors.NotUpgradedError("etl", "The group id does not exist"),
        "The group 'etl' has members of the classic protocol, ... (The group id does not exist). ... Stop all members, "
        "then start them with kafka.group.protocol=consumer: ...",
    ),
    (
        errors.ActiveGroupError.of_bookmark("etl", ["one", "other", "one"]),
        "The group 'etl' has members (one, other), ... so a bookmark cannot commit. Stop them, or ...",
    ),
    (
        errors.DataLossError.of_recreated_bookmark("orders", "etl"),
        "Topic 'orders' was deleted and created again after this bookmark ... nothing was committed to the group "
        "'etl'. ... Make a new bookmark: ...",
    ),
    (
        errors.BookmarkMovedError(**REWOUND, before=None, committed=7),
        "orders-3: the group 'etl' had no committed offset when this bookmark was made, and has 7 now. ... make a new "
        "bookmark.",
    ),
    (
        errors.MissingDependencyError("confluent_kafka", "/usr/bin/python3"),
        "The package 'confluent_kafka' is missing ... (/usr/bin/python3). Install pyspark-kafka-group there, or point "
        "PYSPARK_PYTHON ...",
    ),
    (
        errors.MissingDependencyError("fastavro", "/usr/bin/python3", extra="avro"),
        "The package 'fastavro' is missing ... Run `pip install 'pyspark-kafka-group[avro]'` there, ...",
    ),
    (
        errors.DataLossError(**LOST, log_start=9, log_end=20),
        "orders-3: offsets [5, 9) were deleted before they were read, usually by retention; the broker holds [9, 20). "
        "Set failOnDataLoss=false ...",
    ),
    (
        errors.DataLossError(**LOST, log_start=-1, log_end=-1),
        "orders-3: offsets [5, 9) were deleted before ... the broker holds no such partition. Set failOnDataLoss=false "
        "...",
    ),
    (
        errors.DataLossError(**LOST, log_start=0, log_end=5),
        "orders-3: offsets [5, 9) are beyond the end of the log, 5. ... Set failOnDataLoss=false ...",
    ),
    (
        errors.DataLossError(**LOST, log_start=0, log_end=20),
        "orders-3: offsets [5, 9) were truncated, ... Other records have these offsets now. Set failOnDataLoss=false "
        "...",
    ),
    (
        errors.DataLossError.of_start(**WHERE, offset=9, log_start=0, log_end=5),
        "orders-3: the option 'startingOffsets' names the offset 9, but the log has [0, 5). Correct the offset, or set "
        "failOnDataLoss=false ...",
    ),
    (
        errors.DataLossError.of_recreated(**WHERE, finished=9, log_end=4),
        "orders-3: the topic was deleted and created again. ... from offset 9 on are lost. ... Set "
        "failOnDataLoss=false to read the new topic from its beginning.",
    ),
    (
        errors.DataLossError.of_recreated(**WHERE, finished=None, log_end=4),
        "orders-3: the topic was deleted and created again. ... that this query had not read are lost. ... Set "
        "failOnDataLoss=false to read the new topic from its beginning.",
    ),
    (
        errors.DataLossError.of_deleted(["orders", "clicks"]),
        "Topic deleted: clicks, orders. ... Create the topic again, remove it from the subscription ... or set "
        "failOnDataLoss=false ...",
    ),
    (
        errors.OutdatedCheckpointError(**REWOUND, committed=9, finished=5),
        "orders-3: this query has committed 9 to the group 'etl', but its checkpoint ends at 5. ... restored from an "
        "older copy. ... asyncProgressTrackingEnabled ... Then use the newest checkpoint, or a new one: ...",
    ),
    (
        errors.OutdatedCheckpointError(**REWOUND, committed=9, finished=None),
        "orders-3: this query has committed 9 to the group 'etl', but its checkpoint does not contain the partition. "
        "...",
    ),
    (
        errors.OffsetRewindError(**REWOUND, committed=5, finished=9),
        "orders-3: the committed offset of group 'etl' is back at 5, but this query has finished up to 9. Another "
        "program has reset ... Set onOffsetRewind=checkpoint to resume at 9 ... Or set onOffsetRewind=group to process "
        "[5, 9) again.",
    ),
    (
        errors.OffsetRewindError(**REWOUND, committed=None, finished=9),
        "orders-3: the committed offset of group 'etl' is gone, ... finished up to 9. ... they have expired, ... Set "
        "onOffsetRewind=checkpoint to resume at 9 ... Or set onOffsetRewind=group to begin at startingOffsets, ... not "
        "after 9.",
    ),
    (
        errors.OffsetRewindError(**REWOUND, committed=None, finished=None),
        "orders-3: the group 'etl' has no offsets of this topic. ... Set onOffsetRewind=checkpoint to read it from its "
        "beginning, or onOffsetRewind=group to begin at startingOffsets, ...",
    ),
    (
        errors.OffsetRewindError(**REWOUND, committed=5, finished=9, reset="alice set it; it was 9 before"),
        "orders-3: the committed offset of group 'etl' is back at 5, ... It was reset: alice set it; it was 9 before. "
        "Set onOffsetRewind=checkpoint ...",
    ),
    (
        errors.OffsetFormatError("its format version is 3, not 2."),
        "The offset in the checkpoint cannot be read: its format version is 3, not 2. Use the version of ... or a new "
        "checkpoint.",
    ),
    (
        errors.ReadTimeoutError(**SILENT, timeout_s=120.0),
        "orders-3: no records arrived for 120 s at offset 5, and the range ends at 9. ... or raise "
        "kafkaConsumer.pollTimeoutMs.",
    ),
    (
        errors.ReadTimeoutError(**SILENT, timeout_s=0.5, last_error="1/1 brokers are down"),
        "orders-3: no records arrived for 0.5 s at ... The client's last error: 1/1 brokers are down.",
    ),
    (errors.SchemaRegistryError("The schema registry refuses."), "The schema registry refuses."),
    (
        errors.MalformedRecordError(**WHERE, offset=5, column="value", reason="it is not JSON"),
        "orders-3: the value of the record at offset 5 is malformed: it is not JSON. Correct valueFormat ... or set "
        "malformedRecords=null or malformedRecords=deadLetter ...",
    ),
    (
        errors.ConditionError(**WHERE, offset=5, condition="10 / n > 1"),
        "orders-3: the option 'where' fails for the record at offset 5: ... in '10 / n > 1'. Use TRY_CAST, ...",
    ),
    (
        errors.UnexpectedRecordError(**WHERE, position=5, found="offset 4"),
        "orders-3: the next record should have offset 5 or a later one, but ... delivered offset 4. ... please report "
        "it ...",
    ),
    (
        errors.RecordBatchTooLargeError(**WHERE, offset=5, limit_bytes=100_000_000, found="a response of 2 GB"),
        "orders-3: the record batch at offset 5 is too large for a reader: a response of 2 GB, and "
        "kafka.receive.message.max.bytes allows 100000000. ... raise kafka.receive.message.max.bytes, ...",
    ),
    (
        errors.UnreadableBatchError(**WHERE, offset=5, until=9, reason="it is cut off"),
        "orders-3: offsets [5, 9) cannot be read: it is cut off. ... set failOnDataLoss=false ...",
    ),
    (errors.BrokerError("no broker answers"), "no broker answers"),
    (errors.AuthenticationError("wrong password"), "wrong password"),
    (errors.AssignmentTimeoutError("nothing in 60 s"), "nothing in 60 s"),
    (
        errors.NoPartitionsError("etl"),
        "The group 'etl' has assigned no partition to this run with availableNow. ... Start fewer members, or add "
        "partitions. ...",
    ),
    (errors.MemberFencedError("taken"), "taken"),
    (IllegalTransitionError("draining cannot be: assigned"), "draining cannot be: assigned"),
]
"""Errors, and their texts.  ``...`` stands for words without facts."""

ids = [type(error).__name__ for error, _ in TEXTS]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=ids)
def test_text_says_what_happened_and_what_to_do(error: KafkaGroupError, text: str) -> None:
    parts = [re.escape(part.strip()) for part in text.split("...")]
    assert re.fullmatch(".*".join(parts), str(error)), str(error)
    assert error.message == str(error)


@pytest.mark.parametrize("error", [error for error, _ in TEXTS], ids=ids)
def test_error_keeps_type_text_and_attributes_in_a_pickle(error: KafkaGroupError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_docstring_draws_the_tree_of_the_errors_and_each_leaf_has_its_text_here() -> None:
    drawn, branch = {}, ""
    for lead, name in re.findall(r"^    (.*?)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE):
        drawn[name] = branch if lead else "KafkaGroupError"
        branch = branch if lead else name
    assert drawn == {
        name: value.__mro__[1].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, KafkaGroupError) and value is not KafkaGroupError
    }
    assert {type(error).__name__ for error, _ in TEXTS} >= drawn.keys() - {*drawn.values()}


def test_attributes_are_there_to_compute_with() -> None:
    error = errors.DataLossError(topic="t", partition=0, lost_from=5, lost_until=9, log_start=9, log_end=20)
    assert (error.topic, error.partition, error.lost_until - error.lost_from) == ("t", 0, 4)
    recreated = errors.DataLossError.of_recreated(topic="t", partition=0, finished=5, log_end=4)
    assert (recreated.lost_from, recreated.lost_until, recreated.log_start, recreated.log_end) == (5, -1, 0, 4)
    assert errors.DataLossError.of_deleted(["b", "a"]).topic == "a, b"
    assert errors.OptionError("subscribe", "is empty.", "Name a topic.").option == "subscribe"
    assert errors.UnknownTopicError(["b", "a"]).topics == ["a", "b"]
