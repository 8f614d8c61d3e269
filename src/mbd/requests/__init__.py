"""Deletion requests in the store: their deadlines, their state, and the batches that carry them out."""
