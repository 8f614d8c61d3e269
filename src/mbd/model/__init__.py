"""The model: two backbones, one checkpoint format, one interface to predict."""
