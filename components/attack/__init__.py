"""The component `attack`."""
