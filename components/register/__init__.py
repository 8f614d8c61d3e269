"""The component `register`."""
