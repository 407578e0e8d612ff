"""The metrics of a query's groups, with names that operators know, from the reports of its sources.

    from pyspark_kafka_group import metrics

    for report in metrics.from_progress(progress):        # for example in a StreamingQueryListener
        print(report["group"], report["totalLag"])

:func:`from_progress` reads a progress, and :func:`current` asks the running query.  docs/progress.md lists the fields
of a report.  :data:`METRICS` and docs/metrics.md list the names, kinds and meanings of the metrics.  Exporters are in
:mod:`~pyspark_kafka_group.metrics.prometheus` and :mod:`~pyspark_kafka_group.metrics.opentelemetry`.
"""

from pyspark_kafka_group.metrics.metric import Metric
from pyspark_kafka_group.metrics.reports import current, from_progress
from pyspark_kafka_group.metrics.table import METRICS

__all__ = ["METRICS", "Metric", "current", "from_progress"]
