"""What has happened to a group's offsets, and what its lag means, read from what Kafka itself has written down.

Nothing here knows Spark.  Nothing here changes anything in the cluster.
"""
