"""Analyses a group: its state, its lag, the history of its offsets, and the plan of a reset.

It does not know Spark, and changes nothing in the cluster.
"""
