"""The table of options: name, meaning and parser of each option.

``docs/options.md`` is generated from it (a test compares).
"""

from __future__ import annotations

from pyspark_kafka_group.cluster.properties.kafka_properties import default_of
from pyspark_kafka_group.columns.schema import DEFAULT_COLUMNS
from pyspark_kafka_group.coordinator.settings import CommitMode
from pyspark_kafka_group.offsets.range_bounds import NotCommitted
from pyspark_kafka_group.offsets.start_inputs import NoMatch, RewindPolicy
from pyspark_kafka_group.options import parsers
from pyspark_kafka_group.options.format_settings import REGISTRY, Format, OnMalformed
from pyspark_kafka_group.options.option import Option, Use
from pyspark_kafka_group.options.parsers import Form

DRAIN_MARGIN_MS = 10_000
"""How much shorter a hand-over is than kafka.max.poll.interval.ms, by default.

The group measures from its own request.  The member learns of it with a heartbeat, every 3 s by default, and its answer
takes a request.  For a short interval the margin is a third of it, so that most of the time remains for the batch.
"""


def _column(column: str) -> tuple[Option, ...]:
    return (
        Option(
            name=f"{column}Format",
            form=parsers.choice(Format, "a format", "binary, string, json, avro or protobuf"),
            default="binary",
            doc=f"The format of {column}s. It decides the type of the column {column}. See [formats](formats.md).",
        ),
        Option(
            name=f"{column}Schema",
            form=Form("Spark's DDL or JSON; Avro's JSON", parsers.not_blank),
            doc=f"With {column}Format=json: the fields, for example id BIGINT, name STRING; required. With avro: the "
            "reader's schema, to which records of other schemas are converted. With avro and without a registry: also "
            "the schema that records were written with; they must have no schema ids.",
        ),
        Option(
            name=f"{column}SchemaId",
            form=Form("number", parsers.count),
            doc=f"With {column}Format=avro or protobuf: the id of the reader's schema in the registry. Without this "
            f"option and {column}Schema, the source uses the newest version of {column}Subject at the time of load().",
        ),
        Option(
            name=f"{column}Subject",
            doc=f"The subject in the registry whose newest version is the reader's schema. The default is the name of "
            f"the topic and -{column}. Required if the query reads several topics and neither {column}Schema nor "
            f"{column}SchemaId is set.",
        ),
        Option(
            name=f"{column}Message",
            form=Form("text: full name", parsers.not_blank),
            doc=f"With {column}Format=protobuf: the message type of the records, for example shop.Order. The default "
            "is the first one in the schema.",
        ),
    )


def _registry(name: str, doc: str, kind: str = "text") -> Option:
    return Option(name=REGISTRY + name, form=Form(kind, parsers.not_blank), doc=doc)


SERVERS = Option(
    name="kafka.bootstrap.servers",
    form=Form("text: host:port,...", parsers.not_blank),
    required=True,
    doc="Addresses of some brokers of the cluster, such as broker1:9092,broker2:9092.",
)
"""Also an option of the sink."""

OPTIONS: tuple[Option, ...] = (
    SERVERS,
    Option(
        name="kafka.group.id",
        doc="The consumer group. Required in a stream, except with groupIdPrefix or assign. With "
        "commitMode=transaction its name is printable ASCII. All queries with the same group share the partitions of "
        "their topics. A second load() of one stream with the same group and topics is an error: give it its "
        "own group.",
    ),
    Option(
        name="groupIdPrefix",
        doc="In place of kafka.group.id: the query has its own group. Its name is this prefix, a dash, and the id of "
        "the query, which stays the same after a restart. Ignored if kafka.group.id is set. In a batch read, this is "
        "only a name for the clients.",
    ),
    Option(
        name="subscribe",
        form=Form("text: topic,...", parsers.topics),
        doc="The topics to read. Exactly one of subscribe, subscribePattern and assign is required. Members of one "
        "group may subscribe to different topics.",
    ),
    Option(
        name="subscribePattern",
        form=Form("regular expression", parsers.pattern),
        doc="In place of subscribe: the query reads the topics whose whole name matches, as with Python's "
        "re.fullmatch. It finds new topics within "
        f"{default_of('topic.metadata.refresh.interval.ms')} ms (kafka.topic.metadata.refresh.interval.ms) and reads "
        "them from their beginning. Kafka's own topics, such as __consumer_offsets, never match.",
    ),
    Option(
        name="assign",
        form=Form("JSON", parsers.partitions),
        doc='In place of subscribe: the partitions to read, for example {"orders": [0, 1]}. The query is not a member '
        "of a group and keeps these partitions. The checkpoint decides where it resumes. With kafka.group.id or "
        "groupIdPrefix, a new query starts at the group's offsets, and the query commits to the group, which must have "
        "no members.",
    ),
    Option(
        name="startingOffsets",
        form=Form("earliest, latest, or JSON", parsers.starting_offsets),
        default="latest",
        batch_parse=parsers.batch_starting_offsets,
        batch_default="earliest",
        doc="Where to start a partition for which the group has no committed offset. If it has one, the query resumes "
        "there. In JSON, -2 means earliest and -1 latest, and a topic may have one word for all its partitions. "
        "Partitions that the JSON does not name start at their beginning. So do partitions that are added to a topic "
        "later, and topics and partitions that you add to subscribe or assign later, unless the JSON names them. In a "
        "batch read, this is the start whether or not the group has committed offsets: its JSON must name each "
        "partition, latest is refused, and committed means the group's committed offset.",
    ),
    Option(
        name="startingTimestamp",
        form=parsers.TIME,
        doc="In place of startingOffsets: start each partition at the first record with this timestamp or a later one, "
        "according to Kafka's time index. Takes precedence over startingOffsetsByTimestamp.",
    ),
    Option(
        name="startingOffsetsByTimestamp",
        form=Form("JSON", parsers.partition_times),
        doc="In place of startingOffsets: the same as startingTimestamp, with a time for each partition, for example "
        '{"orders": {"0": 1577836800000}}. Partitions that it does not name start at their beginning. '
        "A batch read must name all partitions.",
    ),
    Option(
        name="startingOffsetsByTimestampStrategy",
        form=parsers.choice(NoMatch, "a strategy", "error or latest"),
        default="error",
        doc="What to do if a partition has no record with that timestamp or a later one. error: end the query. "
        "latest: start the partition at its end.",
    ),
    Option(
        name="failOnDataLoss",
        form=parsers.BOOLEAN,
        default="true",
        doc="Whether to end the query if records were deleted before they were read, or cannot be read. If false, the "
        "query logs the exact range and continues at the nearest offset that can be read.",
    ),
    Option(
        name="onOffsetRewind",
        form=parsers.choice(RewindPolicy, "a policy", "fail, checkpoint or group"),
        default="fail",
        batch=Use.NO,
        doc="What to do if the group's offsets were reset or deleted, so that a committed offset is gone, or lower "
        "than the offset that this query has finished. fail: end the query with an error that names the exact range. "
        "checkpoint: resume at the finished offset, and commit it again. group: resume at the committed offset, which "
        "processes the range again; if the offset is gone, start according to startingOffsets, but not after the "
        "finished offset. Without effect with assign, where the checkpoint decides.",
    ),
    Option(
        name="includeHeaders",
        form=parsers.BOOLEAN,
        default="false",
        doc="Whether the rows have the column headers.",
    ),
    Option(
        name="columns",
        form=Form("text: column,...", parsers.columns),
        default=",".join(DEFAULT_COLUMNS),
        doc="The columns of the rows. Their order is always that of Spark's own source. Leave out columns that the "
        "query does not use: this saves time, because Spark does not pass this information to a Python source.",
    ),
    Option(
        name="where",
        form=Form("condition in Spark's SQL", parsers.not_blank),
        doc="Which records become rows, for example key = 'eu' AND value.amount > 10. The reader drops the other ones "
        "before Spark sees them, which is faster than df.where(...). They count as read. See [where](where.md).",
    ),
    Option(
        name="maxOffsetsPerTrigger",
        form=parsers.RECORDS,
        batch=Use.IGNORED,
        doc="The approximate maximum number of offsets in one batch, shared among the partitions in proportion to "
        "their backlog. Each partition with a backlog gets at least one. Without this option, a batch reads up to the "
        "log ends.",
    ),
    Option(
        name="minOffsetsPerTrigger",
        form=parsers.RECORDS,
        batch=Use.IGNORED,
        doc="A batch waits until there are this many offsets to read, or until maxTriggerDelay has passed. At most "
        "maxOffsetsPerTrigger. Meanwhile the query commits finished batches and hands partitions over. If there is "
        "anything to read at the start, the first batch does not wait. availableNow reads everything.",
    ),
    Option(
        name="maxTriggerDelay",
        form=parsers.DURATION,
        default="15m",
        batch=Use.IGNORED,
        doc="The longest time that a batch waits for minOffsetsPerTrigger.",
    ),
    Option(
        name="minRecordsPerTask",
        form=parsers.RECORDS,
        default="10000",
        doc="Small ranges of a batch share a task until it has about this many records, because each task costs some "
        "milliseconds. The topic-partitions of a task are processed one after the other. With 1, each has its own "
        "task, as in Spark's own source: use this if processing one record takes long. With minPartitions or "
        "maxRecordsPerPartition the default is 1.",
    ),
    Option(
        name="minPartitions",
        form=Form("number of tasks", parsers.count),
        doc="The approximate minimum number of tasks in a batch: the source splits large ranges, in proportion to "
        "their size. Ranges share a task (minRecordsPerTask) only if about this many tasks remain.",
    ),
    Option(
        name="maxRecordsPerPartition",
        form=parsers.RECORDS,
        doc="The approximate maximum number of records in one task: the source splits larger ranges.",
    ),
    Option(
        name="commitMode",
        form=parsers.choice(CommitMode, "a commit mode", "transaction or plain"),
        default="transaction",
        batch=Use.NO,
        doc="How the query commits offsets to the group. transaction: in a Kafka transaction, fenced by the generation "
        "of the member. plain: with an OffsetCommit request, for clusters that do not allow transactions. With assign "
        "the commit is always plain, because there is no member.",
    ),
    Option(
        name="drainTimeoutMs",
        form=parsers.POSITIVE_DURATION,
        default="120000",
        batch=Use.IGNORED,
        doc="How long a partition that the group revokes may wait for the running batch and its commit. After that the "
        "partition leaves without a commit, and the next owner repeats the records in flight. Must be below "
        f"kafka.max.poll.interval.ms (default {default_of('max.poll.interval.ms')}). If you set only that property, to "
        f"a short time, the default is {DRAIN_MARGIN_MS} below it, or two thirds of it if that is more.",
    ),
    Option(
        name="kafkaConsumer.pollTimeoutMs",
        form=parsers.POSITIVE_DURATION,
        default="120000",
        doc="How long an executor waits for existing records before the task fails.",
    ),
    Option(
        name="fetchOffset.numRetries",
        form=Form("number", parsers.whole_number),
        batch_default="3",
        doc="How often a batch read requests offsets and metadata before it fails. No effect in a stream, which "
        "repeats these requests until the brokers answer. Partitions of other brokers keep flowing meanwhile.",
    ),
    Option(
        name="fetchOffset.retryIntervalMs",
        form=parsers.DURATION,
        batch_default="1000",
        doc="How long a batch read waits before it repeats such a request. No effect in a stream.",
    ),
    Option(
        name="checkpointLocation",
        form=Form("path on the driver's machine, or file: URI", parsers.local_path),
        batch=Use.NO,
        doc="The checkpoint of the query: the same path as for writeStream. With it, the source learns from Spark's "
        "commit log that a batch is finished, and can hand partitions over before the next trigger. You do not need "
        "it after pyspark_kafka_group.register(spark), or if triggers are close together.",
    ),
    Option(
        name="warmUp",
        form=parsers.BOOLEAN,
        default="true",
        batch=Use.NO,
        doc="Whether the query runs an empty batch before it joins a group whose members read the same topics. "
        "Partitions that it takes over then pause only for the hand-over, and not until its Python workers have "
        "started. The query joins with the trigger after that batch. Set it to false if triggers are minutes apart; "
        "otherwise the first trigger reads nothing, and a WARNING says so. A restart does not warm up if "
        "checkpointLocation shows that the last batches began at least 30 s apart. There is no warm-up with "
        "availableNow, assign or static membership.",
    ),
    Option(
        name="eventLog",
        form=Form("path on the driver's machine, ending in .jsonl", parsers.event_log),
        batch=Use.IGNORED,
        doc="A file to which the source appends one JSON object for each event of this member: assigned, released, "
        "committed, and so on. See [events](events.md).",
    ),
    *_column("value"),
    *_column("key"),
    Option(
        name="malformedRecords",
        form=parsers.choice(OnMalformed, "a policy", "fail, null or deadLetter"),
        default="fail",
        doc="What to do with a record whose key or value does not fit its format. fail: end the query with an error "
        "that names topic, partition, offset and reason. null: the column is null, and the column malformed contains "
        "the reason. deadLetter: the unchanged record goes to deadLetterTopic and makes no row.",
    ),
    Option(
        name="deadLetterTopic",
        doc="The topic for malformed records with malformedRecords=deadLetter. It must exist. It gets a record before "
        "the task has ended, and again each time Spark repeats the task.",
    ),
    _registry("url", "Confluent's schema registry, or one with the same API.", "text: http(s)://host:port,..."),
    _registry("basic.auth.user.info", "User and password for the registry.", "text: user:password"),
    _registry("bearer.auth.token", "A token for the registry, in place of user and password."),
    _registry("ssl.ca.location", "A PEM file with the certificate authorities that the source trusts.", "path"),
    _registry("ssl.certificate.location", "A PEM file with the certificate of the source.", "path"),
    _registry("ssl.key.location", "A PEM file with the key of that certificate.", "path"),
    _registry("ssl.key.password", "The password of the key file."),
    Option(
        name="endingOffsets",
        form=Form("latest, or JSON", parsers.ending_offsets),
        default="latest",
        stream=Use.NO,
        doc="Where a batch read ends: each partition before this offset. In JSON, -1 means latest, and each partition "
        "must be named. latest is the log end when Spark plans the first action of the DataFrame.",
    ),
    Option(
        name="endingTimestamp",
        form=parsers.TIME,
        stream=Use.NO,
        doc="Where a batch read ends: before the first record with this timestamp or a later one. Without such a "
        "record, at the log end. Takes precedence over endingOffsetsByTimestamp.",
    ),
    Option(
        name="endingOffsetsByTimestamp",
        form=Form("JSON", parsers.partition_times),
        stream=Use.NO,
        doc="The same as endingTimestamp, with a time for each partition. Takes precedence over endingOffsets.",
    ),
    Option(
        name="show",
        form=Form("lag, members, history or rewinds", parsers.not_blank),
        stream=Use.NO,
        doc="Read a view of the group kafka.group.id instead of records. The content is that of the command line, and "
        "the columns are the keys of its --json output. Only kafka.* options are allowed besides it.",
    ),
    Option(
        name="startingOffsetsIfNotCommitted",
        form=parsers.choice(NotCommitted, "a policy", "earliest, latest or fail"),
        stream=Use.NO,
        doc="With startingOffsets=committed: where to start a topic for which the group has no committed offset. The "
        "default is earliest. If the group has offsets for other partitions of the topic, a partition that was added "
        "after the last bookmark always starts at its beginning. Any other partition without an offset is an error, "
        "because its offset may have expired. With earliest or latest, it starts at its beginning instead.",
    ),
)


_NO_TABLE = (
    "Spark adds it for CREATE TABLE. But Spark does not pass the options of a table to a Python source when a query "
    "reads the table.",
    "Use CREATE TEMPORARY VIEW ... USING. Or name the columns in CREATE TABLE, and the options in each query, as in "
    "SELECT ... FROM orders WITH ('subscribe' = 'orders', ...).",
)

IMPOSSIBLE: dict[str, tuple[str, str, str]] = {
    "owner": ("owner", *_NO_TABLE),
    "provider": ("provider", *_NO_TABLE),
    "maxbytespertrigger": (
        "maxBytesPerTrigger",
        "there is no limit in bytes. The source decides the end of a batch before it reads the records, so it does not "
        "know their size.",
        "Use maxOffsetsPerTrigger, with the wanted number of bytes divided by the size of your records.",
    ),
}
"""Options of other sources, and options that Spark adds, which this source cannot have: name, reason and remedy."""
