"""Calls of JSON-RPC whose progress is sent as events."""
