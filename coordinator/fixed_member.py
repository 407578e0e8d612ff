"""A stand-in for the member of a query with ``assign``: it gets its partitions once, and keeps them.

The state machine, completion and commits work as for a member.  It joins no group and sends no requests.  Its commits
carry no member id, so a group accepts them only while it has no members.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_kafka_group.cluster.group_identity import no_member
from pyspark_kafka_group.coordinator.member import Callbacks, Standing
from pyspark_kafka_group.coordinator.settings import GroupSettings


class FixedMember:
    """A stand-in for :class:`~pyspark_kafka_group.coordinator.member.Member`, for ``assign``.

    Parameters
    ----------
    settings : GroupSettings
        The group and its partitions.
    callbacks : Callbacks
        Called when the partitions are assigned.

    Attributes
    ----------
    standing : Standing
        Whether it has its partitions.
    """

    def __init__(self, settings: GroupSettings, *, callbacks: Callbacks) -> None:
        self._settings = settings
        self._callbacks = callbacks
        self.standing = Standing.OUTSIDE

    def subscribe(self, topics: Sequence[str]) -> None:
        """Begin; the partitions are fixed."""
        self.standing = Standing.JOINING

    def poll(self) -> None:
        """Assign the partitions, once."""
        if self.standing is Standing.JOINING:
            self._callbacks.assigned(self._settings.partitions)
            self.standing = Standing.MEMBER

    def identity(self) -> str:
        """Return the empty text: there is no member id."""
        return ""

    def generation(self) -> None:
        """Return None: there is no generation."""

    def group_metadata(self) -> bytes:
        """Return the group metadata of a client that is no member."""
        return no_member(self._settings.group_id)

    def close(self) -> None:
        """Do nothing: there is no group to leave."""
