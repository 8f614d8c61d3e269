"""The routes, by what they are about. Each module has one `router`."""
