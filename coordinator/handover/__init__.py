"""The assignment and hand-over of partitions, as one pure state machine.

No Kafka, no Spark, no threads and no clocks: :func:`step` takes a state and an input, and returns the next
state and what is to be done.  The shell around it (:mod:`pyspark_kafka_group.coordinator.group_thread`) feeds
it callbacks, answers and deadlines, and carries out its commands.

============  ======================================================================================
module        what is in it
============  ======================================================================================
transitions   the life of one partition: a table, and the code runs on it
lifecycle     the life of the membership: another table
state         all that a member knows, never changed in place
inputs        what may happen
outputs       what is to be done
step          which module handles which input, and what every new state calls for
ownership     partitions come and go
starting      where they start
batches       planned, finished, committed
replay        a batch of Spark's log runs again
============  ======================================================================================

What the tables leave out: a state also holds offsets, and an input that the tables allow may still be ignored because
it speaks of an earlier assignment.  The ownership epoch tells.

Three rules carry the guarantees:

* Only what Spark has finished is committed, and only for partitions that are still owned under the ownership
  epoch under which they were planned.
* A revoked partition leaves when nothing of it is in flight and nothing of it is uncommitted.
* A partition that comes back while its old batch still runs waits for that batch: where it starts depends on
  what the batch has finished.
"""
