"""Kafka's protocol over sockets: requests and answers, connections, encryption and authentication.

No Arrow schema, no Spark, no group logic.  Other rooms decide about the meaning of answers.
"""
