"""How calls of external services are retried, and when those services are left alone."""
