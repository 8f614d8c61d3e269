"""Training: the loop, its random draws, resuming, and several processes."""
