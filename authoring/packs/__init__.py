"""Derives the manifests of a pack from its typed functions."""
