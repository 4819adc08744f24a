"""Prepares a cluster for the mesh: certificates, secrets, database roles, and the configuration of Envoy."""
