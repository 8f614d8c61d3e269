"""The component `evaluate`."""
