"""Deleting a modality: three methods, three kinds of guarantee, one outcome."""
