"""The table of options: what each is called, what it means, and what parses it.

``docs/options.md`` is rendered from it (a test compares).
"""

from __future__ import annotations

from pyspark_kafka_group.columns.schema import DEFAULT_COLUMNS
from pyspark_kafka_group.offsets.kafka_properties import usual
from pyspark_kafka_group.options import parsers
from pyspark_kafka_group.options.batch_table import BATCH_ONLY
from pyspark_kafka_group.options.format_table import FORMATS
from pyspark_kafka_group.options.option import Option, Use
from pyspark_kafka_group.options.property_checks import DRAIN_MARGIN_MS

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
        f"that are created later are found within {usual('topic.metadata.refresh.interval.ms')} ms "
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
        parse=parsers.no_match,
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
        parse=parsers.rewind_policy,
        batch=Use.NO,
        doc="What to do when the group's committed offset is lower than this query has seen it, or gone: somebody has "
        "reset or deleted the group's offsets. fail: end the query with the exact range. checkpoint: go on at what the "
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
        parse=parsers.commit_mode,
        batch=Use.NO,
        doc="How offsets are committed to the group. transaction: in a Kafka transaction, fenced by the generation of "
        "the member. plain: with one OffsetCommit request, for clusters where transactions are not allowed; always so "
        "with assign, where there is no member. plain is refused where only librdkafka can connect, as with Kerberos.",
    ),
    Option(
        name="drainTimeoutMs",
        kind="milliseconds",
        default="120000",
        parse=parsers.count,
        batch=Use.IGNORED,
        doc="How long a partition that the group asks for may stay until the running batch is finished and committed. "
        "When it is over the partition leaves uncommitted, and the next owner repeats what was in flight. Must be "
        f"below kafka.max.poll.interval.ms ({usual('max.poll.interval.ms')} unless set); if only that is set, and is "
        f"short, the default is {DRAIN_MARGIN_MS} below it, or two thirds of it where that is more.",
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
    *FORMATS,
    *BATCH_ONLY,
)
