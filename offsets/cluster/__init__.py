"""What the cluster is asked and told about offsets, topics and groups: clients, connections, and threads that wait.

What the answers mean to a partition is decided in :mod:`pyspark_kafka_group.offsets`, below, and in the coordinator.

==================  ================================================================================
module              what is in it
==================  ================================================================================
group_offsets       all that decides where partitions start, by whichever way can be had
start_answers         those answers put together: pure
cluster_requests    what coordinators are asked, over connections of our own; with topic_requests the first way
topic_requests      what leaders are asked, over the same connections
cluster_answers     what both answer
request_errors      what their failures mean
unjoined_consumer   librdkafka in the group's name, never a member: the second way
topic_consumer      what it tells of topics
log_ends            where logs end, by librdkafka
describe_process    who is in the group, where only librdkafka can ask; in a process that may die
group_description   the group and its members, as they were asked for
error_remedies      which errors pass by themselves, and what to do about those that do not
committer           transactional commits, and what all commits have in common
plain_committer     commits without a transaction
group_identity      member id and generation, from librdkafka's group metadata
missing_topics      which topics of a commit are gone
dead_letter_topic   whether the topic for dead letters is there
skip_store          skip markers in the companion group
topic_ids           topic ids as text
daemon_executor     a thread for calls that may hang, which nobody has to wait for
==================  ================================================================================
"""
