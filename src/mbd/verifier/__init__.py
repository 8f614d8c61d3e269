"""What can be checked of one statement by itself, by anyone and without torch: signatures, files, budget, evidence."""
