"""How each kind of part is configured, started, with_readiness and stopped."""
