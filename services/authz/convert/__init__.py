"""From messages to the domain and back, a file for each gRPC service. Pure."""
