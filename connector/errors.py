"""The errors that your program can catch: those of ``bookmark``, ``OffsetTable`` and ``LakeTable``, and their bases.

    from pyspark_kafka_group.errors import BookmarkMovedError

All other errors are raised in processes of Spark.  They reach your program as text in an error of Spark.
"""

from pyspark_kafka_group.offsets.errors import (
    ActiveGroupError,
    AuthenticationError,
    BookmarkMovedError,
    BrokerError,
    ConfigurationError,
    DataError,
    DataLossError,
    GroupError,
    KafkaGroupError,
    MissingDependencyError,
    NoOffsetAtTimeError,
    OffsetFormatError,
    OptionError,
    SchemaRegistryError,
    UnknownTopicError,
)
from pyspark_kafka_group.stores.errors import (
    DatabaseError,
    LakeConflictError,
    OtherGroupError,
    OtherTopicError,
    PartitionsLockedError,
    RefusedRecordError,
    TableBehindError,
)

__all__ = [
    "ActiveGroupError",
    "AuthenticationError",
    "BookmarkMovedError",
    "BrokerError",
    "ConfigurationError",
    "DataError",
    "DataLossError",
    "DatabaseError",
    "GroupError",
    "KafkaGroupError",
    "LakeConflictError",
    "MissingDependencyError",
    "NoOffsetAtTimeError",
    "OffsetFormatError",
    "OptionError",
    "OtherGroupError",
    "OtherTopicError",
    "PartitionsLockedError",
    "RefusedRecordError",
    "SchemaRegistryError",
    "TableBehindError",
    "UnknownTopicError",
]
