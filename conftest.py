"""Gives every test in the tree the same fixtures."""

import os

# gRPC restarts its threads in every forked child, and a child with threads cannot enter a user namespace, as
# PostgreSQL's does.
# The runner of a mesh never loads gRPC; this process does.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

pytest_plugins = ["tests.fixtures"]
