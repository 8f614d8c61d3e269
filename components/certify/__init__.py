"""The component `certify`."""
