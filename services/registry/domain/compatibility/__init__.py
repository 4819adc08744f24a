"""Whether one contract can stand in for another: proofs about schemas, a table of promises, and the bump they ask for."""
