"""The component `notify`."""
