"""A plug-in for Missing-by-Design: one object for each extension point."""
