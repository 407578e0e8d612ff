"""The options of the source: their definition, parsing and checks.

Used in the user's Python, when a query starts, and in the source process.
"""
