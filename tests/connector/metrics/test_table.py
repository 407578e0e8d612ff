"""The names of the metrics never change, and their values are those of the progress."""

from __future__ import annotations

from pyspark_kafka_group import metrics
from pyspark_kafka_group.metrics.reports import sources_of
from pyspark_kafka_group.metrics.table import chosen, samples
from tests.connector.metrics.progresses import REPORT, progress, source

NAMES = """
assigned-partitions kafka_group_assigned_partitions gauge topic
draining-partitions kafka_group_draining_partitions gauge topic
held-back-partitions kafka_group_held_back_partitions gauge topic
group-lag kafka_group_lag gauge topic
group-lag-min kafka_group_lag_min gauge topic
group-lag-max kafka_group_lag_max gauge topic
group-lag-avg kafka_group_lag_avg gauge topic
expired-records kafka_group_expired_records gauge topic
pending-records kafka_group_pending_records gauge topic
records-lag-min kafka_group_records_lag_min gauge topic
records-lag-max kafka_group_records_lag_max gauge topic
records-lag-avg kafka_group_records_lag_avg gauge topic
log-end-seconds-ago kafka_group_log_end_seconds_ago gauge
last-commit-seconds-ago kafka_group_last_commit_seconds_ago gauge
last-rebalance-seconds-ago kafka_group_last_rebalance_seconds_ago gauge
generation kafka_group_generation gauge
ownership-epoch kafka_group_ownership_epoch gauge
records-consumed-total kafka_group_records_consumed_total counter
last-batch-records-rate kafka_group_last_batch_records_rate gauge
rebalance-total kafka_group_rebalance_total counter
hand-over-total kafka_group_hand_over_total counter
moved-partitions-total kafka_group_moved_partitions_total counter reason
commit-total kafka_group_commit_total counter
commit-failed-total kafka_group_commit_failed_total counter
batch-total kafka_group_batch_total counter
replay-total kafka_group_replay_total counter
rewind-total kafka_group_rewind_total counter
records-lost-total kafka_group_records_lost_total counter
time-total kafka_group_time_seconds_total counter phase
partition-current-offset kafka_group_partition_current_offset gauge topic partition
partition-committed-offset kafka_group_partition_committed_offset gauge topic partition
partition-log-end-offset kafka_group_partition_log_end_offset gauge topic partition
partition-lag kafka_group_partition_lag gauge topic partition
"""
"""Golden: add lines, but never change one."""


def test_names_kinds_and_labels_stay_as_they_are() -> None:
    rows = [
        " ".join([metric.name, metric.prometheus_name, metric.kind.value, *metric.labels[3:]])
        for metric in metrics.METRICS
    ]
    assert rows == NAMES.strip().splitlines()
    assert {metric.labels[:3] for metric in metrics.METRICS} == {("query", "group", "client_id")}
    assert len({metric.opentelemetry_name for metric in metrics.METRICS}) == len(metrics.METRICS)


def test_values_are_those_of_the_progress() -> None:
    (found,) = sources_of(progress(source(REPORT)), lambda report: report)
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for sample in samples(found, 1000.0, metrics.METRICS):
        assert sample.labels[:3] == ("orders-etl", "etl", "spark-1a2b3c4d")
        assert len(sample.labels) == len(sample.metric.labels)
        values.setdefault(sample.metric.name, {})[sample.labels[3:]] = sample.value
    assert values.keys() == {metric.name for metric in metrics.METRICS}, "each has a value here"
    assert values["assigned-partitions"] == {("orders",): 2, ("other",): 1}
    assert values["draining-partitions"] == {("orders",): 1, ("other",): 0}
    assert values["held-back-partitions"] == {("orders",): 1, ("other",): 0}
    assert values["group-lag"] == {("orders",): 77}, "unknown is not 0"
    assert [values[f"group-lag-{which}"]["orders",] for which in ("min", "max", "avg")] == [2, 60, 77 / 3]
    assert values["expired-records"] == {("orders",): 5, ("other",): 0}
    assert values["pending-records"] == {("orders",): 62}
    assert [values[f"records-lag-{which}"]["orders",] for which in ("min", "max", "avg")] == [2, 50, 62 / 3]
    ages = [values[f"{what}-seconds-ago"][()] for what in ("log-end", "last-commit", "last-rebalance")]
    assert ages == [10, 19.5, 50]
    assert values["moved-partitions-total"] == {("assigned",): 5, ("released",): 1, ("expired",): 0, ("lost",): 0}
    assert values["time-total"]["running",] == 60.0
    counts = ("rebalance", "hand-over", "commit", "commit-failed", "batch", "replay", "rewind", "records-lost")
    assert [values[f"{name}-total"][()] for name in counts] == [2, 1, 5, 1, 5, 0, 0, 0]
    assert values["partition-committed-offset"]["orders", "10"] == 40
    assert values["partition-committed-offset"]["orders", "3"] == 10, "the log starts at 15"
    assert values["partition-lag"] == {("orders", "2"): 2, ("orders", "3"): 15, ("orders", "10"): 60}
    assert [values[name][()] for name in ("generation", "ownership-epoch", "last-batch-records-rate")] == [4, 2, 25.5]
    assert values["records-consumed-total"][()] == 500


def test_what_there_is_for_each_partition_is_left_out_unless_asked_for() -> None:
    (found,) = sources_of(progress(source(REPORT)), lambda report: report)
    kept = {sample.metric.name for sample in samples(found, 1000.0, chosen(per_partition=False))}
    assert kept == {metric.name for metric in metrics.METRICS if "partition" not in metric.labels}
    assert len(chosen(per_partition=False)) == len(kept)
