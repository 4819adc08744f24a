"""The circuit breakers of external services, shared by all executors."""
