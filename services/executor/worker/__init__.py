"""Code that runs inside the sandbox. The executor does not import it; it is mounted into every worker."""
