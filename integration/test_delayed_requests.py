"""Commits that the network delays, and commits of deleted topics, on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka import Consumer

from integration.cluster import committed
from integration.pipelines import wait_for
from pyspark_kafka_group.cluster import committer
from pyspark_kafka_group.cluster.committer import CommitRefusedError, TransactionalCommitter
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.testing import FaultProxy, HeldRequest, Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.ports import free_ports

TP = TopicPartition("orders", 0)

# Kafka's API keys.
END_TXN = 26
TXN_OFFSET_COMMIT = 28


@pytest.fixture(scope="module")
def proxied() -> Iterator[LocalKafka]:
    """Yield a cluster behind a proxy that only this module uses."""
    # As in production, the broker does not abort a timed-out transaction as soon as the client has.
    slow = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "60000"}
    with LocalKafka(proxied=True, properties=slow) as cluster:
        cluster.create_topic(TP.topic, partitions=1)
        yield cluster


def nobody(servers: str, group: str) -> bytes:
    """Return group metadata without a member, which the broker accepts while the group has no members."""
    metadata: bytes = Consumer({"bootstrap.servers": servers, "group.id": group}).consumer_group_metadata()
    return metadata


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    """Yield three brokers, each behind its own proxy: if one connection breaks, the others stay open."""
    with LocalKafka(3, proxied=True) as cluster:
        cluster.create_topic(TP.topic, partitions=1)
        yield cluster


def caught(held: list[HeldRequest]) -> HeldRequest:
    """Wait until one of these holds has caught a request, return it, and release the others."""
    wait_for(lambda: any(one.wait(0) for one in held), "a request is held")
    [found] = [one for one in held if one.wait(0)]
    for one in held:
        if one is not found:
            one.release()
    return found


def commit_while_a_request_arrives_late(transactions: TransactionalCommitter, proxy: FaultProxy, group: bytes) -> None:
    """Commit 1, then 10, then 20.  The network delays the request of 10 until the transaction of 20 is about to end."""
    transactions.commit({TP: (Offset(1), None, "")}, group)
    late = proxy.hold(TXN_OFFSET_COMMIT)
    with suppress(CommitRefusedError):  # the commit succeeds if librdkafka retries it
        transactions.commit({TP: (Offset(10), None, "")}, group)
    assert late.wait(0)
    end = proxy.hold(END_TXN)
    with ThreadPoolExecutor(1) as thread:
        next_one = thread.submit(transactions.commit, {TP: (Offset(20), None, "")}, group)
        assert end.wait(10), "the next transaction does not come to its end"
        late.release()
        time.sleep(1)  # no event to wait for: the broker answers on a closed connection
        end.release()
        next_one.result()


def test_request_that_arrives_late_changes_nothing(
    proxied: LocalKafka, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the next transaction had the same epoch, and the late offset replaced its offset."""
    monkeypatch.setattr(committer, "TRANSACTION_TIMEOUT_S", 3.0)
    servers = {"bootstrap.servers": proxied.proxied_bootstrap_servers}
    transactions = TransactionalCommitter(servers, group_id=group, query_id="q")
    metadata = nobody(proxied.bootstrap_servers, group)
    try:
        commit_while_a_request_arrives_late(transactions, proxied.proxy, metadata)
    finally:
        proxied.proxy.heal()
    assert committed(proxied.bootstrap_servers, group, TP.topic, [0]) == {0: 20}


def test_request_that_was_sent_again_after_its_connection_broke_changes_nothing(three: LocalKafka, group: str) -> None:
    """Regression: librdkafka retried the request over a new connection and did not report it.

    The broker then processed the first request, and its offset replaced that of the next commit.
    """
    transactions = TransactionalCommitter(
        {"bootstrap.servers": three.proxied_bootstrap_servers}, group_id=group, query_id="q"
    )
    metadata = nobody(three.bootstrap_servers, group)

    def started() -> bool:  # the cluster first creates the internal topics
        with suppress(CommitRefusedError):
            transactions.commit({TP: (Offset(1), None, "")}, metadata)
            return True
        return False

    wait_for(started, "a commit")
    proxies = three.proxies.values()
    with ThreadPoolExecutor(1) as thread:
        requests = [proxy.hold(TXN_OFFSET_COMMIT) for proxy in proxies]
        first = thread.submit(transactions.commit, {TP: (Offset(10), None, "")}, metadata)
        late = caught(requests)
        late.disconnect()
        first.result()
        requests = [proxy.hold(END_TXN) for proxy in proxies]
        second = thread.submit(transactions.commit, {TP: (Offset(20), None, "")}, metadata)
        end = caught(requests)
        late.release()
        time.sleep(1)
        end.release()
        second.result()
    assert committed(three.bootstrap_servers, group, TP.topic, [0]) == {0: 20}


def test_producer_is_kept_while_no_connection_breaks(kafka: Kafka, topic: TopicFactory, group: str) -> None:
    """A new producer for each commit would take 0.1 s.  A bootstrap server that is down does not matter."""
    [nobody_there] = free_ports(1)
    name = topic(1)
    servers = f"127.0.0.1:{nobody_there},localhost:{nobody_there},{kafka.bootstrap_servers}"
    transactions = TransactionalCommitter({"bootstrap.servers": servers}, group_id=group, query_id="q")
    metadata = nobody(kafka.bootstrap_servers, group)
    transactions.prepare()
    producer = transactions._producer
    assert producer is not None
    for offset in range(1, 6):
        transactions.commit({TopicPartition(name, 0): (Offset(offset), None, "")}, metadata)
        time.sleep(0.3)
    assert transactions._producer is producer


def test_refused_commit_names_a_deleted_topic_soon_and_the_others_can_be_committed(
    kafka: Kafka, topic: TopicFactory, group: str
) -> None:
    """Regression: librdkafka retries for the whole timeout of a commit, 10 s, and then reports only the timeout.

    So the query committed the offsets of no topic.
    """
    kept, deleted = TopicPartition(topic(1), 0), TopicPartition(topic(1), 0)
    transactions = TransactionalCommitter({"bootstrap.servers": kafka.bootstrap_servers}, group_id=group, query_id="q")
    metadata = nobody(kafka.bootstrap_servers, group)
    both = {kept: (Offset(1), None, ""), deleted: (Offset(1), None, "")}
    transactions.commit(both, metadata)
    kafka.delete_topic(deleted.topic)
    begin = time.monotonic()
    with pytest.raises(CommitRefusedError) as refused:
        transactions.commit({kept: (Offset(2), None, ""), deleted: (Offset(2), None, "")}, metadata)
    assert time.monotonic() - begin < 4
    assert refused.value.missing == {deleted}
    assert deleted.topic in str(refused.value)
    begin = time.monotonic()
    transactions.commit({kept: (Offset(3), None, "")}, metadata)
    assert time.monotonic() - begin < 3
    assert committed(kafka.bootstrap_servers, group, kept.topic, [0]) == {0: 3}
