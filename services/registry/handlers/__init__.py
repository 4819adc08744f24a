"""The RPC handlers of the registry, one file per gRPC service."""
