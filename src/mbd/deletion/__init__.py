"""Deleting a modality: three methods with three kinds of guarantee."""
