"""What offsets mean: ranges and their JSON, what commits say of themselves, where partitions start, and what may fail.

This room sends no requests: :mod:`pyspark_kafka_group.cluster` does.  It imports :mod:`pyspark_kafka_group.wire` and
no other room.

==================  ================================================================================
module              what is in it
==================  ================================================================================
types               topic-partitions, offsets, ranges, and the epochs
errors              every error that this project raises on purpose
kafka_errors        what Kafka's error codes mean to a member and to a reader, and the remedy
client_log          librdkafka's log lines, on their way to Python's logging
redaction           keeps secrets out of texts
batch_offset        the offset that Spark logs for a batch
commit_metadata     what a commit says of itself, the commit note
skip_markers        ranges of a replayed batch that were left to another owner
start_inputs        what decides where a partition starts: partition info, processed offsets, options
start_position      where it starts
==================  ================================================================================
"""
