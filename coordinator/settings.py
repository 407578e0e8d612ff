"""What the coordinator needs to know of the user's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyspark_kafka_group.offsets.client_config import value_of
from pyspark_kafka_group.offsets.kafka_properties import usual
from pyspark_kafka_group.offsets.start_inputs import StartPolicy


class CommitMode(Enum):
    """How offsets are committed."""

    TRANSACTION = "transaction"  # fenced by generation; the default
    PLAIN = "plain"  # one OffsetCommit, for clusters that allow no transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """One member of one group.

    Attributes
    ----------
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.  Hidden from ``repr``: there are secrets in it.
    group_id : str
        ``kafka.group.id``.
    topics : tuple of str
        What to subscribe to; empty with a pattern.
    commit_mode : CommitMode
        ``commitMode``.
    drain_timeout_s : float
        ``drainTimeoutMs``: how long a hand-over may wait for the running batch.
    read_committed : bool
        Whether the readers skip aborted transactions and wait for open ones.
    start : StartPolicy
        Where partitions start.
    pattern : str or None
        What the names of the topics to subscribe to match as a whole, a regular expression.
    session_timeout_s : float
        How long the group counts on a member that is dead.  Under KIP-848 the broker decides; this is its default.
    """

    properties: Mapping[str, str] = field(repr=False)
    group_id: str
    topics: tuple[str, ...]
    commit_mode: CommitMode
    drain_timeout_s: float
    read_committed: bool
    start: StartPolicy
    pattern: str | None = None
    session_timeout_s: float = int(usual("session.timeout.ms")) / 1000

    @property
    def topics_refresh_s(self) -> float:
        """How often to look which topics match the pattern."""
        return int(value_of("topic.metadata.refresh.interval.ms", self.properties)) / 1000

    @property
    def leaves_with_a_request(self) -> bool:
        """Whether leaving is a request of its own: in the classic protocol, for members that are not static."""
        return value_of("group.protocol", self.properties) == "classic" and "group.instance.id" not in self.properties
