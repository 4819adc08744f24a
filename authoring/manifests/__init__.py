"""Checks manifests without a mesh, with the rules of the registry itself."""
