"""The component `reference`."""
