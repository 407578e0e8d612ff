"""The errors that your program can catch: those of ``bookmark``, ``read_arrow`` and the tables, and their bases.

    from pyspark_kafka_group.errors import BookmarkMovedError

All other errors are raised in processes of Spark.  They reach your program as text in an error of Spark.
"""

from pyspark_kafka_group.offsets.errors import (
    ActiveGroupError,
    AuthenticationError,
    BookmarkMovedError,
    BrokerError,
    ConditionError,
    ConfigurationError,
    DataError,
    DataLossError,
    GroupError,
    KafkaGroupError,
    MalformedRecordError,
    MissingDependencyError,
    NoOffsetAtTimeError,
    OffsetFormatError,
    OptionError,
    ReadTimeoutError,
    RecordBatchTooLargeError,
    SchemaRegistryError,
    UnknownTopicError,
    UnreadableBatchError,
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
    "ConditionError",
    "ConfigurationError",
    "DataError",
    "DataLossError",
    "DatabaseError",
    "GroupError",
    "KafkaGroupError",
    "LakeConflictError",
    "MalformedRecordError",
    "MissingDependencyError",
    "NoOffsetAtTimeError",
    "OffsetFormatError",
    "OptionError",
    "OtherGroupError",
    "OtherTopicError",
    "PartitionsLockedError",
    "ReadTimeoutError",
    "RecordBatchTooLargeError",
    "RefusedRecordError",
    "SchemaRegistryError",
    "TableBehindError",
    "UnknownTopicError",
    "UnreadableBatchError",
]
