"""Evidence: shards, checkpoints, proofs and retention."""
