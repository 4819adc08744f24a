"""Audit service: an append-only Merkle log of records, with proofs, retention, relay and usage counts."""
