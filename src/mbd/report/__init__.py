"""What people look at: text for the terminal, figures, pages."""
