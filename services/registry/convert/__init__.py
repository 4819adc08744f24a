"""Conversions between proto messages and the domain, one file per gRPC service. Pure."""
