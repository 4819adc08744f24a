"""What runs inside the sandbox. Nothing here is imported by the executor; it is copied to where a worker can read it."""
