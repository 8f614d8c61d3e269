"""The kinds of places that may hold copies of purged files. Each can be searched, and copies can be removed from it."""
