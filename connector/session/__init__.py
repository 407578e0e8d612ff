"""What runs in the user's Python: the listener that Spark calls, and the end of a query between two batches."""
