"""Raw media to feature vectors: the table that names them, decoding, frozen encoders, and a cache of what they gave."""
