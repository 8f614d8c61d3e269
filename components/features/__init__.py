"""The component `features`."""
