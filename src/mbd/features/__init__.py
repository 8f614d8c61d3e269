"""Feature data: the FeatureSet contract, the sources that fill it, splits, masks and corruption."""
