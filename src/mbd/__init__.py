"""Missing-by-Design: make a trained multimodal model forget a modality, and prove it."""

__version__ = "0.1.0"
