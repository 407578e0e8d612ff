"""What offsets mean: ranges and their JSON, what commits say of themselves, where partitions start, and what may fail.

Nothing here asks anybody, which is what :mod:`pyspark_kafka_group.offsets.cluster` is for.  It imports
:mod:`pyspark_kafka_group.wire`, and neither that nor anything above.

==================  ================================================================================
module              what is in it
==================  ================================================================================
types               topic-partitions, offsets, ranges, and the epochs
errors              every error that this project raises on purpose
kafka_errors        what Kafka's error codes mean to a member and to a reader, and the remedy
kafka_properties    the user's ``kafka.*`` properties: default, who is given them, refusal
client_config       from those properties to what one client is given
own_connections     whether connections of our own reach the cluster with those properties
client_log          librdkafka's log lines, on their way to Python's logging
redaction           keeps secrets out of texts
secret_references   values that are named, and read where a connection is opened
java_security       security properties of Java's client in librdkafka's terms
java_login          of these, how it logs in
java_stores         of these, where its certificates are
jaas                Java's configurations of logins
properties_text     Java's files of properties
batch_offset        the offset that Spark logs for a batch
commit_metadata     what a commit says of itself, the commit note
skip_markers        ranges of a replayed batch that were left to another owner
start_inputs        what decides where a partition starts: partition info, marks, options
start_position      where it starts
==================  ================================================================================
"""
