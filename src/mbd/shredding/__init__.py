"""Crypto-shredding: copies out of reach become unreadable by destroying a key.

The files of a FeatureSet are encrypted with one key per modality and lineage, the files of a model with the keys of all
modalities that it takes. Destroying the key of one modality makes its feature files, and every model that takes it,
unreadable wherever copies are. Everything else stays readable.
"""
