"""Offset ranges, their JSON, where partitions start, and how offsets are committed.

The lowest layer: it imports neither :mod:`pyspark_kafka_group.coordinator` nor the connector.
"""
