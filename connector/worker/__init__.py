"""Code for Spark's Python workers: it removes two of their costs, and checks that the JVM still listens."""
