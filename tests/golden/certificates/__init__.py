"""Frozen certificates of every released format version, good ones and bad ones."""
