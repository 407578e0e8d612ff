"""The command line ``kafka-group``: looks at groups, and says what it sees.  Nothing here is needed by Spark."""
