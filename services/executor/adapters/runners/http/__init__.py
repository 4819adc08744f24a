"""Runs tools that are HTTP endpoints, from the executor itself."""
