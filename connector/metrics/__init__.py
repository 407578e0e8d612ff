"""The metrics of a query's groups, typed, with names that operators know, from the query's progress.

    from pyspark_kafka_group import metrics

    for source in metrics.from_progress(progress):        # for example in a StreamingQueryListener
        print(source.group, source.group_lag.total)

:func:`from_progress` reads a progress, and :func:`current` asks the running query.  :data:`METRICS` and docs/metrics.md
list the names, kinds and meanings.  Exporters are in :mod:`~pyspark_kafka_group.metrics.prometheus` and
:mod:`~pyspark_kafka_group.metrics.opentelemetry`.
"""

from pyspark_kafka_group.metrics.metric import Metric
from pyspark_kafka_group.metrics.progress import current, from_progress
from pyspark_kafka_group.metrics.source_metrics import (
    LagSummary,
    PartitionMetrics,
    SourceMetrics,
    TimeSpent,
    TopicMetrics,
)
from pyspark_kafka_group.metrics.table import METRICS

__all__ = [
    "METRICS",
    "LagSummary",
    "Metric",
    "PartitionMetrics",
    "SourceMetrics",
    "TimeSpent",
    "TopicMetrics",
    "current",
    "from_progress",
]
