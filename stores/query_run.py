"""Names the run of the query that a batch belongs to."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from pyspark_kafka_group.session.connect import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The local property with the id of the query's run (Spark 4.3.0, `StreamExecution.runStream`).
_RUN_ID = "spark.jobGroup.id"


def run_of(batch: DataFrame) -> object:
    """Return the identity of the run of a query.

    Spark names the run in the job group of the thread that calls the function.  With Spark Connect, or in another
    thread, there is only the session.  A session may serve several batches, but each of them once.
    """
    session = batch.sparkSession
    run = None if is_remote(session) else session.sparkContext.getLocalProperty(_RUN_ID)
    return run or weakref.ref(session)
