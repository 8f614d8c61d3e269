"""The component `delete`."""
