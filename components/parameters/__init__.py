"""The component `parameters`."""
