"""The component `published`."""
