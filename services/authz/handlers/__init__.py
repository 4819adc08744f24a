"""The RPCs of the authz service, a file for each of its gRPC services."""
