"""Crypto-shredding: copies out of reach become unreadable by destroying a key.

A FeatureSet's files are encrypted with a key for each modality and lineage, a model's with the keys of all modalities
that it takes together. Destroying the key of one modality makes its feature files unreadable, and every model that
took it, wherever copies are; all else stays readable.
"""
