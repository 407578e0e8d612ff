"""The executors: from a planned range to the records of a broker."""
