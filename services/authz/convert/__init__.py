"""Converts between protobuf messages and the domain model. Pure functions."""
