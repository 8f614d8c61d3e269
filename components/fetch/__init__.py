"""The component `fetch`."""
