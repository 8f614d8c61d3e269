"""Requests to forget, kept in the store: who asked for what until when, and what became of it."""
