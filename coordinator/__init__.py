"""Group membership: the group thread, the assignment, hand-over and events.

The middle layer: it imports the rooms below it, such as :mod:`pyspark_kafka_group.offsets`, and never the connector.
"""
