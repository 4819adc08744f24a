"""PostgreSQL, the signing key and the metrics behind the domain's ports."""
