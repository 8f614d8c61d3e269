"""Formats: every record that is stored or published, each declared once. Start at the module named after the file."""
