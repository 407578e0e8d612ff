"""The loop of the group thread: what its parts may do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover.inputs import Input
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.offsets.errors import KafkaGroupError


class Loop(Protocol):
    """The methods that the parts of the group thread call."""

    @property
    def state(self) -> State:
        """The newest state; never changed in place.  Any thread."""

    @property
    def emit(self) -> EventLog:
        """Takes the events.  Any thread."""

    def post(self, command: Callable[[], None]) -> None:
        """Run ``command`` on the group thread, and return at once.  Any thread."""

    def feed(self, given: Input) -> None:
        """Feed the state machine and carry out its outputs.  On the group thread."""

    def fail(self, error: KafkaGroupError) -> None:
        """Remember why the query must end, and leave.  On the group thread."""

    def fail_later(self, error: KafkaGroupError) -> None:
        """Do the same, and return at once.  Any thread."""

    def drain(self) -> bool:
        """Let a turn pass without a poll; return whether draining partitions may still be finished and committed.

        On the group thread, inside a callback of the member.
        """
