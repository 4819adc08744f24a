"""What services need of the audit log to record administrative acts: their form and a transactional outbox."""
