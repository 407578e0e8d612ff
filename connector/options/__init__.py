"""What users may write: the options, the Kafka properties, and what they become.

Read in the user's Python, when a query starts, and in the source process.
"""
