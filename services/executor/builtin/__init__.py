"""The tools that ship with the executor."""
