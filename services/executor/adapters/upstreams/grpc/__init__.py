"""gRPC servers: their descriptors, connections to them, and calls of their methods."""
