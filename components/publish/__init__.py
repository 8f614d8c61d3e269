"""The component `publish`."""
