"""Credentials in Vault or OpenBao."""
