"""The table of Kafka's error codes has only real names, and these tests pin its decisions."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from confluent_kafka import KafkaError

from pyspark_kafka_group.cluster.error_remedies import Remedy, explanation, refusal, remedy_for
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, MemberFencedError
from pyspark_kafka_group.offsets.kafka_errors import ERROR_CODES, Consequence, KafkaErrorCode, Meaning, codes_with
from pyspark_kafka_group.reading.range_reader import meaning_of
from pyspark_kafka_group.wire.error_codes import error_code


def test_each_error_has_one_row() -> None:
    assert [name for name, count in Counter(row.name for row in ERROR_CODES).items() if count > 1] == []


@pytest.mark.parametrize("row", ERROR_CODES, ids=lambda row: row.name)
def test_names_are_those_of_kafka_and_of_librdkafka(row: KafkaErrorCode) -> None:
    code = getattr(KafkaError, row.librdkafka or row.name)
    assert KafkaError(code).name() == (row.librdkafka or row.name)
    if not row.name.startswith("_"):
        assert code == error_code(row.name)


@pytest.mark.parametrize("row", ERROR_CODES, ids=lambda row: row.name)
def test_error_that_ends_the_query_says_why_and_what_to_do(row: KafkaErrorCode) -> None:
    problem = refusal(row.name, "x hunter2", group_id="etl", properties={"sasl.password": "hunter2"})
    assert (problem is None) == (row.ends is None) == (row.problem == "") == (row.remedy == "")
    if row.ends is not None:
        assert type(problem) is row.ends
        assert "(x [redacted]). " in str(problem)
        assert row.remedy.endswith(".")
        assert "{" not in str(problem)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("SASL_AUTHENTICATION_FAILED", AuthenticationError, r"refuses the credentials \(x\)\. Check .*sasl\.password"),
        (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            AuthenticationError,
            r"may not commit in a transaction \(x\)\. Grant .* ids that begin with 'kafka-group-etl-', or set com",
        ),
        ("FENCED_INSTANCE_ID", MemberFencedError, r"of group 'etl' uses the same kafka\.group\.instance\.id \(x\)\."),
        ("_FATAL", BrokerError, r"^Kafka answered with _FATAL: x$"),
    ],
)
def test_the_group_and_the_option_are_named(name: str, kind: type, text: str) -> None:
    problem = explanation(name, "x", group_id="etl", properties={})
    assert type(problem) is kind
    assert re.search(text, str(problem))


def test_what_is_not_in_the_table_is_tried_again_and_ends_a_readers_task() -> None:
    unknown = KafkaError(KafkaError.INVALID_RECORD)
    assert remedy_for(unknown) is Remedy.RETRY
    assert meaning_of(unknown) is Meaning.FINAL


def test_fatal_error_of_librdkafka_ends_a_readers_task_whatever_its_name() -> None:
    assert meaning_of(KafkaError(KafkaError._TRANSPORT)) is Meaning.PASSING
    assert meaning_of(KafkaError(KafkaError._TRANSPORT, "gone", True)) is Meaning.FINAL


def test_errors_after_which_a_leader_is_looked_for() -> None:
    assert codes_with(Consequence.OTHER_LEADER) == {3, 5, 6, 9, 56, 74, 75, 78}


@pytest.mark.parametrize(
    ("meaning", "names"),
    [
        (Meaning.END, "_PARTITION_EOF"),
        (Meaning.OUT_OF_RANGE, "_AUTO_OFFSET_RESET _LOG_TRUNCATION OFFSET_OUT_OF_RANGE"),
        (
            Meaning.REFUSED,
            "_AUTHENTICATION _SSL CLUSTER_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED TOPIC_AUTHORIZATION_FAILED",
        ),
        (Meaning.GONE, "_UNKNOWN_PARTITION _UNKNOWN_TOPIC UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PART"),
        (
            Meaning.PASSING,
            "_ALL_BROKERS_DOWN _RESOLVE _TIMED_OUT _TIMED_OUT_QUEUE _TRANSPORT _WAIT_CACHE BROKER_NOT_AVAILABLE "
            "FENCED_LEADER_EPOCH KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION NOT_LEADER_FOR_PARTITION "
            "OFFSET_NOT_AVAILABLE REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT THROTTLING_QUOTA_EXCEEDED UNKNOWN "
            "UNKNOWN_LEADER_EPOCH",
        ),
        (
            Meaning.NOT_OURS,
            "_WAIT_COORD COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE GROUP_AUTHORIZATION_FAILED "
            "NOT_COORDINATOR",
        ),
    ],
)
def test_what_librdkafkas_errors_mean_to_a_reader(meaning: Meaning, names: str) -> None:
    assert {row.librdkafka or row.name for row in ERROR_CODES if row.reader is meaning} == {*names.split()}
