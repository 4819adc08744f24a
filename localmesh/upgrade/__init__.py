"""`toolmesh deploy upgrade`: rolls a version out service by service, and undoes the one that fails calls."""
