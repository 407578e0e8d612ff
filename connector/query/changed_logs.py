"""Tells the membership which logs are others than they were."""

from __future__ import annotations

from pyspark_kafka_group.coordinator.handover.inputs import LogChange
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.query.log_inspection import Changes


def change_logs(group: Membership, changes: Changes) -> set[TopicPartition]:
    """Have it decided anew where changed logs start; return their partitions."""
    owned = group.state.owned
    of_change = {
        LogChange.RECREATED: {tp for tp in owned if tp.topic in changes.recreated},
        LogChange.DELETED: {tp for tp in owned if tp.topic in changes.deleted},
        LogChange.TRUNCATED: changes.truncated,
    }
    for change, partitions in of_change.items():
        if partitions:
            group.change_logs(partitions, change)
    return set().union(*of_change.values())
