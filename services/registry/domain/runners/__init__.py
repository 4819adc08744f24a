"""What executors can run, and what a tool needs."""
