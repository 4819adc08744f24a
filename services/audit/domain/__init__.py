"""Domain of the audit log: no transport, no SQL, no stubs."""
