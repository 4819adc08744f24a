"""What we are measured beside: each in an environment of its own, from a lock with hashes, tuned as its own documents
say."""
