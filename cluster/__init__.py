"""The one door to the cluster, and what goes through it: questions about topics and groups, commits, log ends.

The state machine and the start decision interpret the answers; nothing here decides where a partition starts.

==================  ================================================================================
module              what is in it
==================  ================================================================================
cluster             the door: `connect` returns a `Cluster`
absence             when something that the brokers do not know counts as deleted
channel             its connections, and what their errors mean
topics              questions to leaders and to any broker
groups              questions to coordinators of groups, and plain commits
transactions        questions to transaction coordinators, and ends of transactions
cluster_answers     the values that all of them return
request_errors      what a failed request means
error_remedies      which errors pass by themselves, and what to do about the others
group_offsets       everything that decides where the partitions of a query start
start_answers       those answers put together: pure
range_lookup        everything that decides what a batch read reads
log_ends            where logs end, many times a second
group_description   a group and its members
committer           transactional commits by librdkafka, and what all commits have in common
plain_committer     commits without a transaction
group_identity      member id and generation, from librdkafka's group metadata
dead_letter_topic   whether the topic for dead letters is there
skip_store          skip markers in the companion group
daemon_executor     a thread for calls that may hang
==================  ================================================================================
"""
