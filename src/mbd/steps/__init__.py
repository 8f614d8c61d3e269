"""The steps: each a plain function, folders in, folders out, reached through four faces."""
