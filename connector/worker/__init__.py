"""Spark's Python workers: what they cost, and whether the JVM still listens to them."""
