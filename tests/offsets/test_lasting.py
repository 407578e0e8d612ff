"""Facts that count only once they last."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.lasting import Lasting


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.gone: Lasting[str] = Lasting(3.0, lambda: self.now)


@pytest.fixture
def world() -> World:
    return World()


def test_a_fact_counts_once_it_has_lasted(world: World) -> None:
    assert not world.gone.note({"a"})
    world.now += 2.9
    assert not world.gone.note({"a"})
    world.now += 0.1
    assert world.gone.note({"a"}) == {"a"}


def test_each_key_has_its_own_time(world: World) -> None:
    world.gone.note({"a"})
    world.now += 2
    world.gone.note({"a", "b"})
    world.now += 1
    assert world.gone.note({"a", "b"}) == {"a"}


def test_a_fact_that_did_not_hold_meanwhile_begins_anew(world: World) -> None:
    world.gone.note({"a", "b"})
    world.now += 2
    world.gone.note({"b"})
    assert [*world.gone.keys] == ["b"]
    world.now += 2
    assert world.gone.note({"a", "b"}) == {"b"}


def test_keys_that_were_not_asked_for_keep_their_time(world: World) -> None:
    world.gone.note({"a", "b"})
    world.now += 2
    world.gone.note((), {"a"})
    world.now += 1
    assert world.gone.note({"a", "b"}, {"a", "b"}) == {"b"}
