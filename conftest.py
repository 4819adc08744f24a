"""Gives every test in the tree the same fixtures."""

pytest_plugins = ["tests.fixtures"]
