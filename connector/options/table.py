"""The table of options: the name, meaning and parser of each.

``docs/options.md`` is rendered from it (a test compares).
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
from pyspark_kafka_group.options.property_checks import DRAIN_MARGIN_MS


def _column(column: str) -> tuple[Option, ...]:
    return (
        Option(
            name=f"{column}Format",
            kind="binary, string, json, avro or protobuf",
            default="binary",
            parse=parsers.choice(Format, "a format", "binary, string, json, avro or protobuf"),
            doc=f"What a {column} is, and so the type of the column {column}. See [formats](formats.md).",
        ),
        Option(
            name=f"{column}Schema",
            kind="Spark's DDL or JSON; Avro's JSON",
            default=None,
            parse=parsers.not_blank,
            doc=f"With {column}Format=json, which requires it, the fields, as in id BIGINT, name STRING. With avro "
            "what records are read as, whatever they were written with; without a registry also what they were written "
            "with, and then they have no schema ids.",
        ),
        Option(
            name=f"{column}SchemaId",
            kind="number",
            default=None,
            parse=parsers.count,
            doc=f"With {column}Format=avro or protobuf the id of the schema that records are read as, in the registry. "
            f"Without it, and without {column}Schema, the newest version of the subject when the query is loaded.",
        ),
        Option(
            name=f"{column}Subject",
            kind="text",
            default=None,
            parse=parsers.not_blank,
            doc=f"The subject whose newest version that is; the topic and -{column} unless set. Required where several "
            f"topics are read and neither {column}Schema nor {column}SchemaId is given.",
        ),
        Option(
            name=f"{column}Message",
            kind="text: full name",
            default=None,
            parse=parsers.not_blank,
            doc=f"With {column}Format=protobuf the message that records are, as in shop.Order; the first of the schema "
            "unless set.",
        ),
    )


def _registry(name: str, doc: str, kind: str = "text") -> Option:
    return Option(name=REGISTRY + name, kind=kind, default=None, parse=parsers.not_blank, doc=doc)


OPTIONS: tuple[Option, ...] = (
    Option(
        name="kafka.bootstrap.servers",
        kind="text: host:port,...",
        default=None,
        parse=parsers.not_blank,
        required=True,
        doc="Where the cluster is.",
    ),
    Option(
        name="kafka.group.id",
        kind="text",
        default=None,
        parse=parsers.not_blank,
        doc="The consumer group; required in a stream, except with groupIdPrefix or assign. All queries with the same "
        "group share the partitions of their topics. Two sources of one query that have the same group and topics read "
        "the same batches.",
    ),
    Option(
        name="groupIdPrefix",
        kind="text",
        default=None,
        parse=parsers.not_blank,
        doc="In place of kafka.group.id: the query has a group of its own, whose name is this, a dash, and the id of "
        "the query, the same after each restart. Ignored if kafka.group.id is set. In a batch read only what its "
        "clients call themselves.",
    ),
    Option(
        name="subscribe",
        kind="text: topic,...",
        default=None,
        parse=parsers.topics,
        doc="The topics to read. Exactly one of subscribe, subscribePattern and assign is required. Members of one "
        "group may subscribe to different topics.",
    ),
    Option(
        name="subscribePattern",
        kind="regular expression",
        default=None,
        parse=parsers.pattern,
        doc="In place of subscribe: what the whole names of the topics match, as Python's re.fullmatch has it. Topics "
        f"that are created later are found within {default_of('topic.metadata.refresh.interval.ms')} ms "
        "(kafka.topic.metadata.refresh.interval.ms) and read from their beginning. Kafka's own topics, "
        "whose names begin with two underscores, never match.",
    ),
    Option(
        name="assign",
        kind="JSON",
        default=None,
        parse=parsers.partitions,
        doc='In place of subscribe: the partitions to read, as in {"orders": [0, 1]}. The query is no member of a '
        "group, and nobody takes them away. With kafka.group.id or groupIdPrefix it goes on at the group's offsets and "
        "commits there; the group must have no members. Without, its checkpoint alone keeps the offsets, and nothing "
        "is committed.",
    ),
    Option(
        name="startingOffsets",
        kind="earliest, latest, or JSON",
        default="latest",
        parse=parsers.starting_offsets,
        batch_parse=parsers.batch_starting_offsets,
        batch_default="earliest",
        doc="Where to start a partition that the group has never committed; -2 is earliest and -1 latest in JSON, "
        "a topic may have one word for all its partitions, "
        "and partitions that the JSON does not name start at their beginning. Wherever the group has a committed "
        "offset, that is where it goes on. Partitions that are added to a topic later start at their beginning, and so "
        "does a topic that is added to subscribe later, unless the JSON names it. A "
        "batch read starts there whatever is committed; its JSON names each partition, latest is refused, and "
        "committed is the group's committed offset.",
    ),
    Option(
        name="startingTimestamp",
        kind="milliseconds since 1970",
        default=None,
        parse=parsers.milliseconds_since_1970,
        doc="In place of startingOffsets, and before startingOffsetsByTimestamp: start each partition at its first "
        "record of this time or later, as Kafka's index of timestamps has it.",
    ),
    Option(
        name="startingOffsetsByTimestamp",
        kind="JSON",
        default=None,
        parse=parsers.partition_times,
        doc="In place of startingOffsets: the same with a time for each partition, as in "
        '{"orders": {"0": 1577836800000}}. Partitions that it does not name start at their beginning; '
        "a batch read has to name them all.",
    ),
    Option(
        name="startingOffsetsByTimestampStrategy",
        kind="error or latest",
        default="error",
        parse=parsers.choice(NoMatch, "a strategy", "error or latest"),
        doc="What to do where a partition has no record of that time or later. error: end the query. latest: start "
        "the partition at its end.",
    ),
    Option(
        name="failOnDataLoss",
        kind="true or false",
        default="true",
        parse=parsers.boolean,
        doc="Whether to end the query when records were deleted before they were read. If false, the exact range is "
        "logged and the query goes on at the nearest offset that exists.",
    ),
    Option(
        name="onOffsetRewind",
        kind="fail, checkpoint or group",
        default="fail",
        parse=parsers.choice(RewindPolicy, "a policy", "fail, checkpoint or group"),
        batch=Use.NO,
        doc="What to do when somebody has reset or deleted the group's offsets: the committed offset is gone, or lower "
        "than what this query has finished. fail: end the query with the exact range. checkpoint: go on at what the "
        "query has finished, and put the group's offset back there. group: follow the group and process the range "
        "again; where the offset is gone, start as startingOffsets says.",
    ),
    Option(
        name="includeHeaders",
        kind="true or false",
        default="false",
        parse=parsers.boolean,
        doc="Whether rows have the column headers.",
    ),
    Option(
        name="columns",
        kind="text: column,...",
        default=",".join(DEFAULT_COLUMNS),
        parse=parsers.columns,
        doc="Which columns rows have, in the order of Spark's own source. Spark does not tell a Python source "
        "which columns a query uses: leaving out what it does not use saves time.",
    ),
    Option(
        name="maxOffsetsPerTrigger",
        kind="number of records",
        default=None,
        parse=parsers.count,
        batch=Use.IGNORED,
        doc="About how many offsets one batch reads at most, shared among the partitions by their backlog; every "
        "partition with a backlog gets at least one. Off: everything there is.",
    ),
    Option(
        name="minOffsetsPerTrigger",
        kind="number of records",
        default=None,
        parse=parsers.count,
        batch=Use.IGNORED,
        doc="Wait with a batch until there are so many offsets to read, or maxTriggerDelay is over. At most "
        "maxOffsetsPerTrigger. What is finished is committed meanwhile, and partitions are handed over. The first "
        "batch after a start does not wait, and availableNow reads everything.",
    ),
    Option(
        name="maxTriggerDelay",
        kind="duration, as 30s, 15m or 5 minutes",
        default="15m",
        parse=parsers.duration_ms,
        batch=Use.IGNORED,
        doc="How long a batch waits for minOffsetsPerTrigger at most.",
    ),
    Option(
        name="minRecordsPerTask",
        kind="number of records",
        default="10000",
        parse=parsers.count,
        doc="Ranges of a batch with fewer records share a task until it has about this many: a task costs some "
        "milliseconds, however little it reads. With 1, each topic-partition has a task of its own, as in Spark's own "
        "source: better where processing one record takes long. With minPartitions or maxRecordsPerPartition the "
        "default is 1.",
    ),
    Option(
        name="minPartitions",
        kind="number of tasks",
        default=None,
        parse=parsers.count,
        doc="About how many tasks a batch has at least: large ranges are split, in proportion to their size. Ranges "
        "share a task (minRecordsPerTask) only as long as there are so many.",
    ),
    Option(
        name="maxRecordsPerPartition",
        kind="number of records",
        default=None,
        parse=parsers.count,
        doc="About how many records one task reads at most: larger ranges are split.",
    ),
    Option(
        name="commitMode",
        kind="transaction or plain",
        default="transaction",
        parse=parsers.choice(CommitMode, "a commit mode", "transaction or plain"),
        batch=Use.NO,
        doc="How offsets are committed to the group. transaction: in a Kafka transaction, fenced by the generation of "
        "the member. plain: with one OffsetCommit request, for clusters where transactions are not allowed; always so "
        "with assign, where there is no member.",
    ),
    Option(
        name="drainTimeoutMs",
        kind="milliseconds",
        default="120000",
        parse=parsers.count,
        batch=Use.IGNORED,
        doc="How long a partition that the group asks for may stay until the running batch is finished and committed. "
        "When it is over the partition leaves uncommitted, and the next owner repeats what was in flight. Must be "
        f"below kafka.max.poll.interval.ms ({default_of('max.poll.interval.ms')} unless set); if only that is set, and "
        f"is short, the default is {DRAIN_MARGIN_MS} below it, or two thirds of it where that is more.",
    ),
    Option(
        name="kafkaConsumer.pollTimeoutMs",
        kind="milliseconds",
        default="120000",
        parse=parsers.count,
        doc="How long an executor waits for records that should be there.",
    ),
    Option(
        name="fetchOffset.numRetries",
        kind="number",
        default=None,
        parse=parsers.whole_number,
        batch_default="3",
        doc="How often a batch read asks for offsets, and for what a topic has, until it gives up. Without effect in a "
        "stream: brokers that do not answer are asked until they do, while the partitions of others go on.",
    ),
    Option(
        name="fetchOffset.retryIntervalMs",
        kind="milliseconds",
        default=None,
        parse=parsers.whole_number,
        batch_default="1000",
        doc="How long a batch read waits before it asks again.",
    ),
    Option(
        name="checkpointLocation",
        kind="path on the driver's machine, or file: URI",
        default=None,
        parse=parsers.local_path,
        batch=Use.NO,
        doc="The checkpoint of the query, the same that writeStream has. With it the source sees in Spark's commit log "
        "that a batch is finished, and need not wait for the next trigger to hand partitions over. Not needed after "
        "pyspark_kafka_group.register(spark), and not with triggers that are close together.",
    ),
    Option(
        name="warmUp",
        kind="true or false",
        default="true",
        parse=parsers.boolean,
        batch=Use.NO,
        doc="Whether the query runs an empty batch before it joins a group in which others read its topics: the "
        "partitions that it takes over then stand still for a hand-over only, and not until its Python workers have "
        "started. It joins with the trigger after that batch. Set it to false where triggers are minutes apart and the "
        "query shall read with the first one. There is no such batch with availableNow and once, with assign and with "
        "static membership.",
    ),
    Option(
        name="eventLog",
        kind="path on the driver's machine",
        default=None,
        parse=parsers.not_blank,
        batch=Use.IGNORED,
        doc="A file that gets one JSON object per event of this member: assigned, released, committed, and so on.",
    ),
    *_column("value"),
    *_column("key"),
    Option(
        name="malformedRecords",
        kind="fail, null or deadLetter",
        default="fail",
        parse=parsers.choice(OnMalformed, "a policy", "fail, null or deadLetter"),
        doc="What to do about a record whose key or value is not what its format says. fail: end the query; the error "
        "has topic, partition, offset and reason. null: the column is null, and the column malformed says why. "
        "deadLetter: the record goes to deadLetterTopic as it is, and makes no row.",
    ),
    Option(
        name="deadLetterTopic",
        kind="text",
        default=None,
        parse=parsers.not_blank,
        doc="Where malformed records go with malformedRecords=deadLetter; it has to exist. It gets a record before the "
        "task is finished, and again whenever the task runs again.",
    ),
    _registry("url", "Confluent's schema registry, or one that speaks like it.", "text: http(s)://host:port,..."),
    _registry("basic.auth.user.info", "User and password of the registry.", "text: user:password"),
    _registry("bearer.auth.token", "A token for the registry, in place of user and password."),
    _registry("ssl.ca.location", "A file with the authorities of the registry, in PEM.", "path"),
    _registry("ssl.certificate.location", "A file with a certificate to show to the registry, in PEM.", "path"),
    _registry("ssl.key.location", "The file with its key, in PEM.", "path"),
    _registry("ssl.key.password", "The password of that file."),
    Option(
        name="endingOffsets",
        kind="latest, or JSON",
        default="latest",
        parse=parsers.starting_offsets,
        stream=Use.NO,
        doc="Where a batch read ends, each partition before this offset; -1 is latest in JSON, which names each "
        "partition that is read. latest is the end of the log when the first action of the DataFrame is planned.",
    ),
    Option(
        name="endingTimestamp",
        kind="milliseconds since 1970",
        default=None,
        parse=parsers.milliseconds_since_1970,
        stream=Use.NO,
        doc="Where a batch read ends: before the first record of this time or later, or with the log where there is "
        "none. Takes precedence over endingOffsetsByTimestamp.",
    ),
    Option(
        name="endingOffsetsByTimestamp",
        kind="JSON",
        default=None,
        parse=parsers.partition_times,
        stream=Use.NO,
        doc="The same with a time for each partition that is read. Takes precedence over endingOffsets.",
    ),
    Option(
        name="show",
        kind="lag, members, history or rewinds",
        default=None,
        parse=parsers.not_blank,
        stream=Use.NO,
        doc="In place of records: what the command line shows of the group kafka.group.id, with the keys of its --json "
        "as columns. Nothing but kafka.* may be given beside it.",
    ),
    Option(
        name="startingOffsetsIfNotCommitted",
        kind="earliest, latest or fail",
        default=None,
        parse=parsers.choice(NotCommitted, "a policy", "earliest, latest or fail"),
        stream=Use.NO,
        doc="With startingOffsets=committed: where to start a topic of which the group has no committed offset; "
        "earliest if it is not given. If the group has offsets of other partitions of the topic, a partition that was "
        "added since the last bookmark starts at its beginning, whatever the option says. Any other partition without "
        "an offset is an error, because its offset may have expired; with earliest or latest it starts at its "
        "beginning.",
    ),
)


_NO_TABLE = (
    "Spark adds it for CREATE TABLE. It keeps the options of a table, and gives a source written in Python none of "
    "them when the table is read.",
    "Use CREATE TEMPORARY VIEW ... USING; or name the columns in CREATE TABLE, and the options in each query, as in "
    "SELECT ... FROM orders WITH ('subscribe' = 'orders', ...).",
)

IMPOSSIBLE: dict[str, tuple[str, str, str]] = {
    "owner": ("owner", *_NO_TABLE),
    "provider": ("provider", *_NO_TABLE),
    "maxbytespertrigger": (
        "maxBytesPerTrigger",
        "there is no limit in bytes. Where a batch ends is decided before it is read, and an offset does not tell how "
        "large its record is.",
        "Use maxOffsetsPerTrigger, with the bytes that you want divided by the size of your records.",
    ),
}
"""What other sources of Spark have, and Spark adds, that this one cannot have: name, reason and remedy."""
