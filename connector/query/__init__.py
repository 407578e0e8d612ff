"""The source process: what a query reads next, and which of its batches are finished."""
