"""The sink: writes the rows of a task to Kafka."""
