"""Where a reader is, and when its leaders had better not know."""

from __future__ import annotations

from pyspark_kafka_group.wire.deadline import Deadline

HIDDEN_S = 300.0
"""How long the rack is kept from leaders after reading from a follower has failed.  A leader goes on naming a follower
that answers the leader and not us, or that has just stalled; asking it without a rack is the way not to be sent there
again.  As long as a follower is read from without asking the leader (``metadata.max.age.ms``)."""


class Rack:
    """The rack of one client.  Its fetching threads read it; the thread that reads hides it.

    Parameters
    ----------
    name : str or None
        ``client.rack``; None if the user named none.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._hidden_until = Deadline.after(0)

    @property
    def name(self) -> str | None:
        """What leaders are told."""
        return None if self.hidden else self._name

    @property
    def hidden(self) -> bool:
        """Whether leaders are not to know."""
        return not self._hidden_until.passed

    def hide(self) -> None:
        """Keep it from leaders for some time."""
        self._hidden_until = Deadline.after(HIDDEN_S)
