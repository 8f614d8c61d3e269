"""Deleting a modality: three methods, each with its kind of guarantee."""
