"""Adapters of the domain's ports: PostgreSQL, Redis, Kafka, signing key, metrics."""
