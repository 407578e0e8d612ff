"""A cluster that is already there, and the choice of a cluster by the environment."""

from __future__ import annotations

import os
from typing import Self

from pyspark_kafka_group.testing.kafka import BrokerError, Kafka, await_some_broker
from pyspark_kafka_group.testing.local import LocalKafka

SERVERS_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"

_REACH_TIMEOUT_S = 15.0


class ExistingKafka(Kafka):
    """A cluster that somebody else runs: topics can be made, brokers cannot be hurt, `stop` leaves all as it is.

    Parameters
    ----------
    bootstrap_servers
        ``host:port``, separated by commas; by default the variable ``KAFKA_BOOTSTRAP_SERVERS``.
    """

    def __init__(self, bootstrap_servers: str | None = None) -> None:
        servers = bootstrap_servers or os.environ.get(SERVERS_VARIABLE)
        if not servers:
            raise BrokerError(f"ExistingKafka needs an address: pass one, or set {SERVERS_VARIABLE}")
        self._servers = servers

    @property
    def bootstrap_servers(self) -> str:
        """As given."""
        return self._servers

    def start(self) -> Self:
        """Wait until a broker answers."""
        await_some_broker(self._servers, _REACH_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """Do nothing: the cluster is not ours."""


def kafka_from_environment() -> Kafka:
    """The cluster for this run, not started: the one of ``KAFKA_BOOTSTRAP_SERVERS`` if set, else a `LocalKafka`."""
    return ExistingKafka() if os.environ.get(SERVERS_VARIABLE) else LocalKafka()
