"""The rows of the table of options that only a batch read has."""

from __future__ import annotations

from pyspark_kafka_group.options import batch_parsers, parsers
from pyspark_kafka_group.options.option import Option, Use

BATCH_ONLY: tuple[Option, ...] = (
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
        "none. Counts more than endingOffsetsByTimestamp.",
    ),
    Option(
        name="endingOffsetsByTimestamp",
        kind="JSON",
        default=None,
        parse=parsers.partition_times,
        stream=Use.NO,
        doc="The same with a time for each partition that is read. Counts more than endingOffsets.",
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
        parse=batch_parsers.not_committed,
        stream=Use.NO,
        doc="With startingOffsets=committed: where to start a topic of which the group has no committed offset; "
        "earliest if it is not given. If the group has offsets of other partitions of the topic, a partition that was "
        "added since the last bookmark starts at its beginning, whatever the option says. Any other partition without "
        "an offset is an error, because its offset may have expired; with earliest or latest it starts at its "
        "beginning.",
    ),
)
