"""Adversaries that try to find what a model still knows of a deleted modality, and the gate that judges them."""
