"""Usage: calls counted from the log by day, tool version, tenant, caller and task."""
