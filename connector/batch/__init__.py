"""What ``spark.read`` reads: which ranges, in which tasks; and a group's offsets as the bookmark of scheduled jobs.

Runs in the planning process, in executors before they read, and in the user's Python where it keeps a bookmark.
"""
