"""What the log says now: every statement in it, verified and in order, and what follows from them."""
