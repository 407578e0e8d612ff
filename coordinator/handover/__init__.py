"""The assignment and hand-over of partitions, as one pure state machine.

No Kafka, no Spark, no threads and no clocks: :func:`step` takes a state and an input, and returns the next state and
the outputs.  The shell around it (:mod:`pyspark_kafka_group.coordinator.group_thread`) feeds it callbacks, answers
and deadlines, and carries out its commands.

============  ======================================================================================
module        what is in it
============  ======================================================================================
transitions   the life of one partition: a table, and the code runs on it
lifecycle     the life of the membership: another table
state         the knowledge of a member, never changed in place
inputs        everything that may happen
outputs       commands for the shell, and events
events        everything that a member reports
step          which module handles which input, and what follows from every new state
ownership     partitions are assigned, revoked and lost
starting      where they start
batches       planned, finished, committed
reading_back  committed offsets are read back and compared
replay        a batch of Spark's log runs again
============  ======================================================================================

The tables do not contain everything.  A state also holds offsets.  An input that the tables allow is ignored if its
ownership epoch shows that it belongs to an earlier assignment.

Three rules carry the guarantees:

* The member commits only what Spark has finished.  It commits a partition only while it owns it under the ownership
  epoch under which it was planned.
* A revoked partition leaves when no batch reads it and all its finished offsets are committed.
* A partition that comes back while its old batch still runs waits for that batch, because the batch decides where it
  starts.
"""
