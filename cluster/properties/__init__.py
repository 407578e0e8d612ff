"""The user's ``kafka.*`` properties: what each says, who gets it, and what Java's names for it are.

kafka_properties     the table: who gets a property, its default, its refusal, what it is to own connections
client_config        from the user's properties to the configuration of each client and of own connections
java_security        Java's security properties in librdkafka's terms, with java_login and java_stores
secret_references    values that are named and not written, and files of properties
"""
