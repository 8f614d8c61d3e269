"""The component `purge`."""
