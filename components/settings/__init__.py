"""The component `settings`."""
