"""Runs the whole mesh on one machine: PostgreSQL, Valkey, Envoy and the six services, as real processes.

`composition.py` lists the parts, `supervisor.py` keeps them alive, `commands.py` is what the command line sees.
"""
