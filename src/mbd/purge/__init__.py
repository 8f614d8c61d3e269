"""Purge: find every copy of the old files, remove it, publish a proof, and prevent the files from reappearing."""
