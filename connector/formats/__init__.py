"""Formats of keys and values: derives the types of columns from the options, and decodes bytes to values."""
