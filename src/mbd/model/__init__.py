"""The model: two backbones, one checkpoint format, one way to predict."""
