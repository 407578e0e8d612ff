"""Encryption and authentication of connections: TLS, SASL, and tokens of OAuth and of clouds."""
