"""Reports: pages, text for the terminal, and figures, all from one content."""
