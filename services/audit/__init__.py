"""The memory of the mesh: an append-only Merkle log of audit records."""
