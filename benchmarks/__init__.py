"""Performance claims, each a ratio measured in one run."""
