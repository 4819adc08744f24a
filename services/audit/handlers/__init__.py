"""The RPCs of the audit service, a file for each of its gRPC services."""
