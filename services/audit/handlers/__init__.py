"""gRPC handlers of the audit service, one module per gRPC service."""
