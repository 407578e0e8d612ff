"""A query in its source process: plans batches and tracks which ones are finished."""
