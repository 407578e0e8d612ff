"""When a batch waits for more records, with a clock that the test moves."""

from __future__ import annotations

from pyspark_kafka_group.query.stream_planner import BatchDelay


class Waiting:
    def __init__(self, min_offsets: int | None = 10) -> None:
        self.now = 1000.0
        self.delay = BatchDelay(min_offsets, 60.0, clock=lambda: self.now)

    def is_delayed(self, backlog: int) -> bool:
        """Poll, and plan a batch if it is not delayed."""
        if self.delay.delays(lambda: backlog):
            return True
        self.delay.begin()
        return False


def test_the_first_batch_does_not_wait_and_the_next_one_does() -> None:
    waiting = Waiting()
    assert not waiting.is_delayed(1)
    assert waiting.is_delayed(9)
    assert not waiting.is_delayed(10)
    assert waiting.is_delayed(9)


def test_it_waits_no_longer_than_it_may_and_then_begins_anew() -> None:
    waiting = Waiting()
    assert not waiting.is_delayed(1)
    waiting.now += 59
    assert waiting.is_delayed(9)
    waiting.now += 1
    assert not waiting.is_delayed(9)
    waiting.now += 59
    assert waiting.is_delayed(9)


def test_nothing_waits_without_the_option() -> None:
    waiting = Waiting(None)
    assert not any(waiting.is_delayed(0) for _ in range(3))


def test_the_delay_does_not_begin_before_a_batch_is_planned() -> None:
    """Regression: if no partition could be planned at that poll, the records waited for the delay once more."""
    waiting = Waiting()
    assert not waiting.delay.delays(lambda: 1)
    assert not waiting.delay.delays(lambda: 1)
    assert not waiting.is_delayed(1)
    assert waiting.is_delayed(9)
