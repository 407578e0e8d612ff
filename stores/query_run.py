"""Remembers which batch this process has written to which table, and in which run of the query.

A table that skips what it has would skip all rows of a second write of one batch.  So the second write is an error, and
a batch that runs again after a restart of the query is not.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_kafka_group.session.connect import is_remote
from pyspark_kafka_group.session.running_batch import run_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The local property with the id of the query's run (Spark 4.3.0, `StreamExecution.runStream`).
_RUN_ID = "spark.jobGroup.id"

# The run and the id of the last batch of each target.  Deliberate: of the module.  A program may make two objects for
# one table, or a new one for each batch (`test_a_second_object_cannot_write_the_batch_either`).
_written: dict[Hashable, tuple[object, int]] = {}
_lock = threading.Lock()  # guards _written


def run_of(batch: DataFrame) -> object:
    """Return the identity of the run of a query.

    Spark also names it in the job group of the thread that calls the function, which users may set.  With Spark
    Connect, or outside of a stream, there is only the session.  It may serve several batches, but each of them once.
    """
    session = batch.sparkSession
    if is_remote(session):
        return weakref.ref(session)
    return run_id(batch) or session.sparkContext.getLocalProperty(_RUN_ID) or weakref.ref(session)


@contextmanager
def one_write(target: Hashable, batch: DataFrame, batch_id: int) -> Iterator[bool]:
    """Note meanwhile, and after a success, that this run writes a batch to a target.

    Yields
    ------
    bool
        Whether this run has written the batch to the target before, or does so at this moment.
    """
    this = (run_of(batch), batch_id)
    with _lock:
        before = _written.get(target)
        _written[target] = this
    try:
        yield before == this
    except BaseException:
        with _lock:
            if before != this and _written.get(target) == this:
                del _written[target]  # the program may try again
        raise
