"""The rack of a reader, in which leaders may name a follower to read from (KIP-392)."""

from __future__ import annotations

from pyspark_kafka_group.wire.deadline import Deadline

HIDDEN_S = 300.0
"""How long requests omit the rack after reading from a follower has failed.  A leader keeps naming a follower that
answers only the leader, or that has just stalled.  Without a rack, the leader names no follower.  The time is that of
reading from a follower without asking the leader again (``metadata.max.age.ms``)."""


class Rack:
    """The rack of one client.  The fetching threads read it.  The reading thread hides it.

    Parameters
    ----------
    name : str or None
        The property ``client.rack``; None if it is not set.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._hidden_until = Deadline.after(0)

    @property
    def name(self) -> str | None:
        """The rack in requests; None if they contain no rack."""
        return None if self.hidden else self._name

    @property
    def hidden(self) -> bool:
        """Whether requests omit the rack."""
        return not self._hidden_until.passed

    def hide(self) -> None:
        """Omit the rack from requests for some time."""
        self._hidden_until = Deadline.after(HIDDEN_S)
