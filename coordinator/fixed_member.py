"""What stands in for a member where the partitions are given by the user: they are assigned once and never taken away.

Everything behind it, the state machine, completion and commits, is the same.  It talks to nobody.  Its commits carry no
member id, which a group takes only as long as it has no members.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_kafka_group.cluster.group_identity import no_member
from pyspark_kafka_group.coordinator.member import Callbacks
from pyspark_kafka_group.coordinator.settings import GroupSettings


class FixedMember:
    """In place of :class:`~pyspark_kafka_group.coordinator.member.Member`, for ``assign``.

    Parameters
    ----------
    settings : GroupSettings
        The group and its partitions.
    callbacks : Callbacks
        What to call when they are assigned.
    """

    def __init__(self, settings: GroupSettings, *, callbacks: Callbacks) -> None:
        self._settings = settings
        self._callbacks = callbacks
        self._assigned = False

    def subscribe(self, topics: Sequence[str]) -> None:
        """Do nothing: it is known what to read."""

    def poll(self) -> None:
        """Assign the partitions, once."""
        if not self._assigned:
            self._assigned = True
            self._callbacks.assigned(self._settings.partitions)

    def identity(self) -> str:
        """Return the empty text: it has no member id."""
        return ""

    def generation(self) -> None:
        """Return None: it is in no generation."""

    def group_metadata(self) -> bytes:
        """Return what says that it is no member."""
        return no_member(self._settings.group_id)

    def close(self) -> None:
        """Do nothing: there is nothing to leave."""
