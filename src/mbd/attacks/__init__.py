"""Attacks that measure what a model still reveals of a deleted modality, and the gate that judges them."""
