"""The meaning of offsets: ranges and their JSON, the metadata of commits, where partitions start, and the errors.

This room sends no requests: :mod:`pyspark_kafka_group.cluster` does.  It imports :mod:`pyspark_kafka_group.wire` and
no other room.

==================  ================================================================================
module              what is in it
==================  ================================================================================
types               topic-partitions, offsets, ranges, and the epochs
errors              every error that this project raises on purpose
kafka_errors        what Kafka's error codes mean to a member and to a reader, and the remedy
batch_offset        the offset that Spark logs for a batch
spark_commit_log    where Spark says which batch is finished, and the offsets of its sources
commit_metadata     the commit note, which each commit carries
notes               all notes in the metadata of offsets, and the one function that reads them
skip_markers        ranges of a replayed batch that were left to another owner
lasting             how long a fact about a log must last before it counts: deleted, shorter, restored
start_inputs        what decides where a partition starts: partition info, processed offsets, options
start_position      where it starts
range_bounds        where a batch read begins and ends, as its options say
read_range          the range of one partition in a running batch
task_ranges         which task reads which ranges
==================  ================================================================================
"""
