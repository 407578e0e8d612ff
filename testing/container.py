"""`ContainerKafka`: Apache Kafka in a container, started through testcontainers.

The image only has to understand ``KAFKA_*`` variables as the official one does; ``scripts/build-kafka-image.sh`` of
the repository builds such an image where none can be pulled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark_kafka_group.testing.broker_config import BrokerPorts, broker_properties, new_id
from pyspark_kafka_group.testing.errors import KafkaTestingError
from pyspark_kafka_group.testing.kafka import Kafka, await_brokers
from pyspark_kafka_group.testing.pinned_jars import KAFKA_VERSION
from pyspark_kafka_group.testing.ports import HOST, free_ports

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer

IMAGE_VARIABLE = "KAFKA_IMAGE"
DEFAULT_IMAGE = f"apache/kafka:{KAFKA_VERSION}"

# A container is up in 6 s; a machine busy with Spark may need far longer.
_START_TIMEOUT_S = 120.0
_STOP_GRACE_S = 10
_LOG_LINES_IN_ERRORS = 30
_BROKER_ID = 1
_CONTROLLER_PORT = 9093
# Inside the container: a folder that any image lets its user create.
_DATA = Path("/tmp/kafka-data")


class ContainerKafka(Kafka):
    """One Apache Kafka broker in a container, published on 127.0.0.1 only; its id is 1.

    Needs the ``testing`` extra and a container engine on this machine.  testcontainers removes the container when
    this process is killed, through a helper container; ``TESTCONTAINERS_RYUK_DISABLED=true`` switches that off where
    its image cannot be pulled.

    Parameters
    ----------
    image
        The image; by default that of the variable ``KAFKA_IMAGE``, else Apache's own.
    properties
        Settings of the broker, over those that `LocalKafka` has.
    """

    def __init__(self, image: str | None = None, *, properties: Mapping[str, str] | None = None) -> None:
        self._image = image or os.environ.get(IMAGE_VARIABLE) or DEFAULT_IMAGE
        self._properties = dict(properties or {})
        self._port = 0
        self._container: DockerContainer | None = None
        self._killed = self._paused = False

    @property
    def bootstrap_servers(self) -> str:
        """The published port, on 127.0.0.1."""
        self._started()
        return f"{HOST}:{self._port}"

    def start(self) -> Self:
        """Pull the image if it is not there, start the container and wait for the broker."""
        if self._container is not None:
            return self
        try:
            from docker.errors import DockerException
            from testcontainers.core.container import DockerContainer
        except ImportError as error:
            raise KafkaTestingError(
                f"ContainerKafka needs testcontainers ({error}): pip install 'pyspark-kafka-group[testing]'"
            ) from error

        [self._port] = free_ports(1)
        try:
            self._container = DockerContainer(self._image, env=self._environment())
            # The same port on both sides: it is the one that the broker tells its clients. testcontainers has no
            # public way to choose the interface, and its type of ports knows no more than the number.
            published: dict[str, Any] = self._container.ports
            published[str(self._port)] = (HOST, self._port)
            self._container.start()
            self._await_broker()
        except BaseException as error:
            self.stop()
            if not isinstance(error, DockerException):
                raise
            raise KafkaTestingError(
                f"the container engine could not start image {self._image!r}: {error}. Is an engine running? Where "
                f"images cannot be pulled, build one with scripts/build-kafka-image.sh, name it in {IMAGE_VARIABLE} "
                "and set TESTCONTAINERS_RYUK_DISABLED=true"
            ) from error
        return self

    def stop(self) -> None:
        """Remove the container with its data."""
        container, self._container = self._container, None
        self._killed = self._paused = False
        if container is not None:
            container.stop()

    def kill(self, broker_id: int) -> None:
        """Kill the process in the container; its data stays."""
        self._broker(broker_id).kill()
        self._killed = True

    def pause(self, broker_id: int) -> None:
        """Freeze the container."""
        self._broker(broker_id).pause()
        self._paused = True

    def resume(self, broker_id: int) -> None:
        """Unfreeze the container."""
        self._broker(broker_id).unpause()
        self._paused = False

    def restart(self, broker_id: int) -> None:
        """Start the container again, and stop it cleanly first if it runs."""
        broker = self._broker(broker_id)
        if self._killed:
            broker.start()
        else:
            broker.restart(timeout=_STOP_GRACE_S)
        self._killed = self._paused = False
        self._await_broker()

    def log_tail(self, lines: int = 100) -> str:
        """Return the last lines of the container's log, until the cluster is stopped."""
        if self._container is None:
            return ""
        tail = self._broker(_BROKER_ID).logs(tail=lines).decode(errors="replace")
        return f"---- broker {_BROKER_ID}, last {lines} lines of its log ----\n{tail}"

    def _answering_servers(self) -> list[str]:
        return [] if self._killed or self._paused else super()._answering_servers()

    def _environment(self) -> dict[str, str]:
        ports = BrokerPorts(client=self._port, controller=_CONTROLLER_PORT)
        properties = broker_properties(_BROKER_ID, {_BROKER_ID: ports}, _DATA, overrides=self._properties)
        # What the engine publishes does not arrive at the container's own loopback interface.
        properties["listeners"] = properties["listeners"].replace(f"PLAINTEXT://{HOST}", "PLAINTEXT://0.0.0.0")
        variables = {f"KAFKA_{_as_variable(key)}": value for key, value in properties.items()}
        return {**variables, "CLUSTER_ID": new_id(), "KAFKA_HEAP_OPTS": "-Xmx512m"}

    def _await_broker(self) -> None:
        await_brokers([self.bootstrap_servers], 1, _START_TIMEOUT_S, self._check_alive)

    def _check_alive(self) -> None:
        broker = self._broker(_BROKER_ID)
        broker.reload()
        if broker.status == "exited":
            raise KafkaTestingError(
                f"the container of image {self._image!r} ended:\n{self.log_tail(_LOG_LINES_IN_ERRORS)}"
            )

    def _started(self) -> DockerContainer:
        if self._container is None:
            raise KafkaTestingError("ContainerKafka is not started: use it in a with statement, or call start()")
        return self._container

    def _broker(self, broker_id: int) -> Container:
        if broker_id != _BROKER_ID:
            raise KafkaTestingError(f"there is no broker {broker_id}: ContainerKafka has only broker {_BROKER_ID}")
        return self._started().get_wrapped_container()


def _as_variable(key: str) -> str:
    """Return the name of a setting in the environment, as the official image spells it."""
    return key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
