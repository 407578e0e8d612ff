"""Kafka's protocol over sockets: requests, answers and connections.

No Arrow schema, no Spark, no group logic.  Other rooms decide about the meaning of answers.
"""
