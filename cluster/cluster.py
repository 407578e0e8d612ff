"""The one door to the cluster, for every request that is not a member's, a reader's or a producer's.

Not through librdkafka, for four reasons.  Its admin client ends the process if a coordinator goes away meanwhile
(confluentinc/librdkafka#4605 and #3663, still in 2.16.1).  While it listed offsets, partitions could not start for up
to 80 s after a broker's restart.  It holds back all committed offsets while one partition is in an open transaction.
And it shows neither leader epochs nor the answer to a commit for each partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_kafka_group.cluster.channel import TIMEOUT_S
from pyspark_kafka_group.cluster.properties.client_config import Properties, connecting, reach
from pyspark_kafka_group.cluster.topics import Topics
from pyspark_kafka_group.cluster.transactions import Transactions
from pyspark_kafka_group.wire.config_requests import BROKER, GROUP, TOPIC, DescribeConfigs
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.requests import OfferedVersions
from pyspark_kafka_group.wire.types import Address, ProtocolError


class Cluster(Topics, Transactions):
    """Asks brokers about topics, groups and transactions.  Belongs to one thread; each call has a time limit.

    Every method may raise

    * :class:`~pyspark_kafka_group.cluster.error_remedies.TryAgainError`: no broker answers, or none can answer now;
    * :class:`~pyspark_kafka_group.offsets.errors.AuthenticationError`: the cluster refuses the credentials, or the
      user lacks a right;
    * :class:`~pyspark_kafka_group.offsets.errors.BrokerError`: the broker refuses permanently, or is too old.

    Use :func:`connect` to make one.
    """

    def offered_versions(self, broker: Address, *, timeout_s: float = TIMEOUT_S) -> OfferedVersions:
        """Return the versions of each request that a broker supports."""
        with self._errors.translated(f"the broker {broker}"):
            return self._connections.to(broker, Deadline.after(timeout_s)).offered

    def broker_settings(
        self, node_id: int | None, broker: Address, *, timeout_s: float = TIMEOUT_S
    ) -> dict[str, str] | None:
        """Return the settings of a broker by name; None if the user may not see them."""
        if node_id is None:
            return None
        try:
            asked = DescribeConfigs(BROKER, (str(node_id),))
            return self._connections.ask(broker, asked, Deadline.after(timeout_s)).get(str(node_id))
        except (OSError, ProtocolError):
            return None

    def topic_settings(self, names: Collection[str], *, timeout_s: float = TIMEOUT_S) -> Mapping[str, dict[str, str]]:
        """Return the settings of topics by name, without topics whose settings the user may not see."""
        try:
            asked = DescribeConfigs(TOPIC, tuple(sorted(names)))
            return self._connections.ask_any(asked, Deadline.after(timeout_s)) if names else {}
        except (OSError, ProtocolError):
            return {}

    def group_settings(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> dict[str, str] | None:
        """Return the settings of a group by name; None if the user may not see them, or the brokers have none."""
        try:
            asked = DescribeConfigs(GROUP, (group_id,))
            return self._connections.ask_any(asked, Deadline.after(timeout_s)).get(group_id)
        except (OSError, ProtocolError):
            return None


def connect(properties: Properties, *, client_id: str) -> Cluster:
    """Return the door to the cluster.  The first question opens the first connection.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties, without ``kafka.``.
    client_id : str
        What the brokers' logs and quotas call this client.

    Raises
    ------
    OptionError
        If a property asks for a connection that this source cannot make.
    """
    return Cluster(*reach(connecting(properties)), client_id=client_id, properties=properties)
