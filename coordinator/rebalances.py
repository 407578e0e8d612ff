"""The group's decisions, fed to the state machine: partitions assigned, revoked or lost.

Runs inside ``poll`` of the member, on the group thread.
"""

from __future__ import annotations

from pyspark_kafka_group.coordinator.handover import events, inputs
from pyspark_kafka_group.coordinator.handover.lifecycle import Lifecycle
from pyspark_kafka_group.coordinator.loop import Loop
from pyspark_kafka_group.coordinator.member import Callbacks, FixedMember, Member, Standing
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.coordinator.start_requests import StartRequests
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
    loop : Loop
        The loop of the group thread.
    start_requests : StartRequests
        Checks whether topics were deleted: the group may have revoked their partitions for that.

    Attributes
    ----------
    member : Member or FixedMember
        The member.
    member_id : str
        The member id under which the partitions were assigned; empty before the first assignment.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        client_id: str,
        loop: Loop,
        start_requests: StartRequests,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._start_requests = start_requests
        self.member_id = ""
        callbacks = Callbacks(assigned=self._on_assigned, revoked=self._on_revoked, lost=self._on_lost)
        self.member: Member | FixedMember
        if settings.partitions:
            self.member = FixedMember(settings, callbacks=callbacks)
        else:
            self.member = Member(settings, client_id=client_id, callbacks=callbacks)

    def is_another(self) -> bool:
        """Return whether the member id has changed since partitions were assigned under it."""
        return bool(self._loop.state.owned) and self.member.identity() != self.member_id

    def check_identity(self) -> None:
        """Treat a changed member id as the loss of everything assigned under the old one.

        On the classic protocol, librdkafka may report lost partitions as revoked if the session ended inside another
        rebalance (librdkafka pull request 5604, not merged as of 2.16).  The new id shows it.
        """
        if self.is_another():
            self.member.standing = Standing.LOST
            self._loop.feed(inputs.Lose(tuple(self._loop.state.owned)))

    def _on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.check_identity()
        self.member_id = self.member.identity()
        if self.member_id and self.member.standing is not Standing.MEMBER:
            self._loop.emit(events.Joined(member_id=self.member_id))
        # A partition that is assigned again was lost before, even if librdkafka has not reported that.
        self._loop.feed(inputs.Lose(tuple(tp for tp in partitions if tp in self._loop.state.owned)))
        self._loop.feed(inputs.Assign(partitions))
        self._loop.emit.activity.generation = self.member.generation()

    def _on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Return when the partitions have left or the time is over; the return acknowledges the revocation."""
        if self._loop.state.lifecycle is Lifecycle.LEFT:
            return
        self.check_identity()
        self._loop.feed(inputs.Revoke(partitions))
        deadline = Deadline.after(self._settings.drain_timeout_s)
        while any(tp in self._loop.state.owned for tp in partitions):
            if deadline.passed or not self._loop.drain():
                self._loop.feed(inputs.Expire())
                break
        self._start_requests.check(partitions)

    def _on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._loop.feed(inputs.Lose(partitions))
        self._start_requests.check(partitions)
