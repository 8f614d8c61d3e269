"""The model: two backbones and any module of the user, one checkpoint format, one interface to predict."""
