"""Which lease gets which consumer, and when the cache closes one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.reading.client_cache import ConsumerCache, open_client
from pyspark_kafka_group.reading.message_client import MessageClient
from pyspark_kafka_group.reading.reader_client import ReaderClient, note

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "etl-reader"}
OTHER_CONFIG = {**CONFIG, "bootstrap.servers": "127.0.0.1:2"}


class FakeConsumer:
    """Records what the cache does to a consumer."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.on_unassign: Callable[[], None] = lambda: None
        self.stale_events: list[Callable[[], None]] = []

    def unassign(self) -> None:
        self.calls.append("unassign")
        self.on_unassign()

    def poll(self, timeout: float) -> object | None:
        assert timeout == 0
        if not self.stale_events:
            return None
        self.stale_events.pop()()
        return object()

    def close(self) -> None:
        self.calls.append("close")


class Caches:
    """Builds caches of fake consumers and closes them after the test."""

    def __init__(self) -> None:
        self.made: list[FakeConsumer] = []
        self._caches: list[ConsumerCache] = []

    def __call__(self, **limits: Any) -> ConsumerCache:
        def create(config: Mapping[str, str]) -> ReaderClient:
            self.made.append(FakeConsumer())
            return MessageClient({}, cast(Any, self.made[-1]))

        self._caches.append(ConsumerCache(create, **limits))
        return self._caches[-1]

    def close(self) -> None:
        for cache in self._caches:
            cache.close_idle()


@pytest.fixture
def caches() -> Iterator[Caches]:
    caches = Caches()
    yield caches
    caches.close()


def fake(client: ReaderClient) -> FakeConsumer:
    return cast(FakeConsumer, cast(MessageClient, client)._consumer)


def lease_once(cache: ConsumerCache, config: Mapping[str, str] = CONFIG) -> FakeConsumer:
    with cache.lease(config) as client:
        return fake(client)


def in_child(check: Callable[[], bool]) -> bool:
    """Return whether `check` holds in a forked child of this process."""
    pid = os.fork()
    if pid == 0:
        passed = False
        with suppress(BaseException):
            passed = check()
        os._exit(0 if passed else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_a_returned_consumer_is_lent_again_without_its_assignment(caches: Caches) -> None:
    cache = caches()
    first = lease_once(cache)
    assert first.calls == ["unassign"]
    assert lease_once(cache, dict(reversed(CONFIG.items()))) is first, "in whatever order the properties stand"


def test_neither_two_leases_at_once_nor_other_configurations_share(caches: Caches) -> None:
    cache = caches()
    with cache.lease(CONFIG) as one, cache.lease(CONFIG) as other, cache.lease(OTHER_CONFIG) as another:
        assert len({id(one), id(other), id(another)}) == 3
    assert lease_once(cache, OTHER_CONFIG) is fake(another)


def test_keys_show_nothing_of_the_configuration(caches: Caches) -> None:
    cache = caches()
    lease_once(cache, {**CONFIG, "sasl.password": "hunter2"})
    assert "hunter2" not in repr(vars(cache))


@pytest.mark.parametrize("failure", [ValueError("x"), KeyboardInterrupt()])
def test_a_failed_task_closes_its_consumer(caches: Caches, failure: BaseException) -> None:
    cache = caches()
    with pytest.raises(type(failure)), cache.lease(CONFIG):
        raise failure
    assert caches.made[0].calls == ["close"]
    assert lease_once(cache) is not caches.made[0]


def test_a_reader_that_is_closed_early_closes_its_consumer(caches: Caches) -> None:
    cache = caches()

    def rows() -> Iterator[int]:
        with cache.lease(CONFIG):
            yield from range(10)

    reading = cast(Any, rows())
    next(reading)
    reading.close()
    assert caches.made[0].calls == ["close"]


def test_a_consumer_that_cannot_be_unassigned_is_closed(caches: Caches) -> None:
    with pytest.raises(RuntimeError, match="broken"), caches().lease(CONFIG) as client:
        fake(client).on_unassign = MagicMock(side_effect=RuntimeError("broken"))
    assert caches.made[0].calls == ["unassign", "close"]


def test_errors_reported_while_idle_are_not_the_next_tasks(caches: Caches) -> None:
    cache = caches()
    stale = KafkaError(KafkaError._AUTHENTICATION)
    with cache.lease(CONFIG) as client:
        note(client.errors, KafkaError(KafkaError._TRANSPORT))
    fake(client).stale_events.append(lambda: note(client.errors, stale))
    with cache.lease(CONFIG) as client:
        assert client.errors == {}


def test_the_latest_error_of_a_client_comes_last(caches: Caches) -> None:
    with caches().lease(CONFIG) as client:
        for code in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TRANSPORT):
            note(client.errors, KafkaError(code))
        assert list(client.errors) == [KafkaError._RESOLVE, KafkaError._TRANSPORT]


def test_consumers_that_were_not_used_for_long_are_closed_by_the_next_task_of_any_query(caches: Caches) -> None:
    cache = caches(idle_s=0.05)
    with cache.lease(CONFIG) as lent:
        idle = [lease_once(cache, {**CONFIG, "n": str(n)}) for n in range(3)]
        time.sleep(0.1)
        recent = lease_once(cache, OTHER_CONFIG)
        assert [consumer.calls for consumer in idle] == [["unassign", "close"]] * 3
        assert (recent.calls, fake(lent).calls) == (["unassign"], [])


def test_of_too_many_idle_consumers_the_one_unused_longest_is_closed(caches: Caches) -> None:
    cache = caches(max_idle=2)
    first, second, third = (lease_once(cache, {**CONFIG, "n": str(n)}) for n in range(3))
    assert ["close" in consumer.calls for consumer in (first, second, third)] == [True, False, False]


def test_a_forked_child_gets_a_consumer_of_its_own(caches: Caches) -> None:
    cache = caches()
    parents = lease_once(cache)
    assert in_child(lambda: lease_once(cache) is not parents and parents.calls == ["unassign"])
    assert lease_once(cache) is parents


def test_a_forked_child_never_touches_a_consumer_its_parent_had_lent(caches: Caches) -> None:
    cache = caches()
    lease = cache.lease(CONFIG)
    parents = fake(lease.__enter__())
    try:
        assert in_child(lambda: lease.__exit__(None, None, None) is not True and parents.calls == [])
        assert in_child(lambda: not lease.__exit__(ValueError, ValueError(), None) and parents.calls == [])
    finally:
        lease.__exit__(None, None, None)
    assert parents.calls == ["unassign"]


def test_the_text_of_an_error_shows_its_name_and_no_secret() -> None:
    client = MessageClient({"sasl.password": "hunter2"}, cast(Any, FakeConsumer()))
    text = client.text_of(KafkaError(KafkaError._AUTHENTICATION, "bob:hunter2 refused"))
    assert text == "_AUTHENTICATION: bob:[redacted] refused"
    assert "hunter2" not in repr(client)


def test_a_refused_configuration_names_the_property_and_no_secret() -> None:
    with pytest.raises(OptionError, match=r"no\.such\.property") as refused:
        open_client({**CONFIG, "no.such.property": "hunter2"})
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("name", ["socket.timeout.sm", "metadata.max.agge.ms", "reconnect.backof.ms", "retry.backoff"])
def test_a_misspelled_property_of_librdkafka_is_refused(name: str) -> None:
    """Regression: own connections ignored each name that began like a family of librdkafka's."""
    with pytest.raises(OptionError, match=name):
        open_client({**CONFIG, name: "1"})
