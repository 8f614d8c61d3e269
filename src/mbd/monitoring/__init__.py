"""What Prometheus is told: every metric in one place, and the ways it gets there."""
