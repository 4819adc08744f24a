"""The RPC handlers of the authz service, one file for each gRPC service."""
