"""The RPCs of the registry, a file for each of its gRPC services."""
