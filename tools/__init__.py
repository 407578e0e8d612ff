"""The command line ``kafka-group``.  Spark does not need it."""
