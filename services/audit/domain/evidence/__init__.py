"""The log as evidence: its shards, checkpoints and proofs, and the rules for how long it is kept."""
