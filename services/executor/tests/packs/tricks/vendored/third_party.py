"""A package that comes with the pack."""

ANSWER = 42
