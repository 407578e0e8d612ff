"""Offset ranges, their JSON, where partitions start, and how offsets are committed.

It imports :mod:`pyspark_kafka_group.wire`, and neither :mod:`pyspark_kafka_group.coordinator` nor the connector.
"""
