"""A model in production: its releases, the requests about it, and the worker that carries them out."""
