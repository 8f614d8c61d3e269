"""The component `registered_reference`."""
