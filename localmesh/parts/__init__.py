"""How each kind of part is configured, started, probed and stopped."""
