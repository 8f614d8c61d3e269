"""The component `reaudit`."""
