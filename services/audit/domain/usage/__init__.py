"""What the log adds up to: calls by day, tool version, tenant, caller and task."""
