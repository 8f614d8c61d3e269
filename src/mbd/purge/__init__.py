"""Nothing old is left: finding every copy of what must go, removing it, proving it, and keeping it away."""
