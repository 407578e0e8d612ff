"""``python -m pyspark_kafka_group.cli``."""

from pyspark_kafka_group.cli.entry import main

main()
