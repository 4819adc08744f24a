"""Converts messages to the domain and back, one module per gRPC service. Pure functions."""
