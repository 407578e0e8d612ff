"""The sink: from the rows of a task to records of Kafka."""
