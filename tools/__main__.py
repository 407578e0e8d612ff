"""``python -m pyspark_kafka_group.tools``."""

from pyspark_kafka_group.tools.entry import main

main()
