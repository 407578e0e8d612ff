"""The group's decisions, fed to the state machine: partitions assigned, revoked or lost.

Runs inside ``poll`` of the member, on the group thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark_kafka_group.coordinator.fixed_member import FixedMember
from pyspark_kafka_group.coordinator.handover import events, inputs
from pyspark_kafka_group.coordinator.handover.lifecycle import Lifecycle
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.member import Callbacks, Member
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline


class Rebalances:
    """The member, and its answers to the group.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    client_id : str
        The client id of this member, as Kafka's tools show it.
    state : callable
        Returns the newest state.
    feed : callable
        Feeds an input to the state machine.
    emit : callable
        Takes the events.
    joined : callable
        Called after an assignment of the group was fed.
    wait : callable
        Lets a turn pass while partitions drain.  Returns False if waiting has become useless.
    check_topics : callable
        Begins to check whether topics were deleted, because the group may have revoked their partitions for that.

    Attributes
    ----------
    is_member : bool
        Whether the group has answered, and has not thrown this member out since.
    member_id : str
        The member id under which the partitions were assigned; empty before the first assignment.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        client_id: str,
        state: Callable[[], State],
        feed: Callable[[inputs.Input], None],
        emit: Callable[[events.Event], None],
        joined: Callable[[], None],
        wait: Callable[[], bool],
        check_topics: Callable[[Collection[str]], None],
    ) -> None:
        self._settings = settings
        self._state = state
        self._feed = feed
        self._emit = emit
        self._joined = joined
        self._wait = wait
        self._check_topics = check_topics
        self.is_member = False
        self.member_id = ""
        callbacks = Callbacks(assigned=self._on_assigned, revoked=self._on_revoked, lost=self._on_lost)
        self.member: Member | FixedMember
        if settings.partitions:
            self.member = FixedMember(settings, callbacks=callbacks)
        else:
            self.member = Member(settings, client_id=client_id, callbacks=callbacks)

    def is_another(self) -> bool:
        """Return whether the member id has changed since partitions were assigned under it."""
        return bool(self._state().owned) and self.member.identity() != self.member_id

    def check_identity(self) -> None:
        """Treat a changed member id as the loss of everything assigned under the old one.

        On the classic protocol, librdkafka may report lost partitions as revoked if the session ended inside another
        rebalance (librdkafka pull request 5604, not merged as of 2.16).  The new id shows it.
        """
        if self.is_another():
            self.is_member = False
            self._feed(inputs.Lose(tuple(self._state().owned)))

    def _on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.check_identity()
        self.member_id = self.member.identity()
        if self.member_id and not self.is_member:
            self._emit(events.Joined(member_id=self.member_id))
        # A partition that is assigned again was lost before, even if librdkafka has not reported that.
        self._feed(inputs.Lose(tuple(tp for tp in partitions if tp in self._state().owned)))
        self._feed(inputs.Assign(partitions))
        # Last: a thread that waits for the group's answer must not see it before the partitions.
        self.is_member = True
        self._joined()

    def _on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Return when the partitions have left or the time is over; the return acknowledges the revocation."""
        if self._state().lifecycle is Lifecycle.LEFT:
            return
        self.check_identity()
        self._feed(inputs.Revoke(partitions))
        deadline = Deadline.after(self._settings.drain_timeout_s)
        while any(tp in self._state().owned for tp in partitions):
            if deadline.passed or not self._wait():
                self._feed(inputs.Expire())
                break
        self._check_topics({tp.topic for tp in partitions})

    def _on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.is_member = False
        self._feed(inputs.Lose(partitions))
        self._check_topics({tp.topic for tp in partitions})
