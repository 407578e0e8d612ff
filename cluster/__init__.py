"""The requests to the cluster: questions about topics and groups, commits, log ends.

The state machine and the start decision interpret the answers; nothing here decides where a partition starts.

==================  ================================================================================
module              what is in it
==================  ================================================================================
cluster             the door: `connect` returns a `Cluster`
patience            the one loop that asks again until there is an answer, or until a deadline
channel             its connections, and the meaning of their errors
topics              questions to leaders and to any broker
groups              questions to coordinators of groups, and plain commits
transactions        questions to transaction coordinators, and ends of transactions
cluster_answers     the values that all of them return
request_errors      the meaning of a failed request
error_remedies      which errors are temporary, and the remedy for the others
group_offsets       everything that decides where the partitions of a query start
start_answers       those answers put together: pure
range_lookup        everything that decides what a batch read reads
log_ends            where logs end, many times a second
group_description   a group and its members
committer           transactional commits by librdkafka, and the parts that all commits share
plain_committer     commits without a transaction
group_identity      member id and generation, from librdkafka's group metadata
dead_letter_topic   whether the topic for dead letters exists
skip_store          skip markers in the companion group
daemon_executor     a thread for calls that may hang
==================  ================================================================================
"""
