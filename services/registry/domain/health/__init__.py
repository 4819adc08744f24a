"""Whether versions can do their work at present."""
