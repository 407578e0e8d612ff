"""Brokers and faults for tests of pipelines that use the ``kafka-group`` source.

`Kafka` is what all brokers have in common: `LocalKafka` runs Apache Kafka as processes, `ContainerKafka` in a
container, `MockKafka` imitates it inside this process, `ExistingKafka` is a cluster of yours.  `FaultProxy` disturbs
the network.  Fixtures for pytest are in `pyspark_kafka_group.testing.fixtures`.
"""

from pyspark_kafka_group.testing.broker_config import TlsFiles
from pyspark_kafka_group.testing.container import ContainerKafka
from pyspark_kafka_group.testing.errors import KafkaTestingError, UnsupportedFaultError
from pyspark_kafka_group.testing.kafka import ExistingKafka, Kafka
from pyspark_kafka_group.testing.local import LocalKafka, kafka_from_environment
from pyspark_kafka_group.testing.mock import MockKafka
from pyspark_kafka_group.testing.proxy import FaultProxy, HeldRequest
from pyspark_kafka_group.testing.records import Record

__all__ = [
    "ContainerKafka",
    "ExistingKafka",
    "FaultProxy",
    "HeldRequest",
    "Kafka",
    "KafkaTestingError",
    "LocalKafka",
    "MockKafka",
    "Record",
    "TlsFiles",
    "UnsupportedFaultError",
    "kafka_from_environment",
]
