"""The user's ``kafka.*`` properties: their meaning, the clients that get them, and their names in Java.

kafka_properties     the table: which clients get a property, its default, its refusal, its meaning for own connections
client_config        the check of the user's properties, and the configuration of each client and of own connections
java_security        Java's security properties in librdkafka's terms, with java_login
permissions          what an option may do only if the owner of the process allows it
clients              opens clients of librdkafka: their tokens, and their log lines on the way to Python's logging
redaction            keeps secrets out of texts
durations            durations as users write them
secret_references    references to values in files and variables, and files of properties
"""
