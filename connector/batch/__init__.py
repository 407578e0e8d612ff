"""Batch reads: plans the ranges and tasks of ``spark.read``, and bookmarks for scheduled jobs.

Runs in the planning process, and for a bookmark in the user's Python.
"""
