"""How much of an answer fits into one message. What does not fit is left out whole, never cut."""

from __future__ import annotations

from collections.abc import Iterable

# A message of the mesh holds 4 MiB, and a manifest at most one: the budget leaves room for a last one and its frame.
ANSWER_BYTES = 2 * 1024 * 1024
MANIFEST_BYTES = 1024 * 1024


def count_fitting(sizes: Iterable[int], budget: int = ANSWER_BYTES) -> int:
    """Return how many of the first sizes fit into the budget; the first always does."""
    count = used = 0
    for size in sizes:
        used += size
        if count and used > budget:
            break
        count += 1
    return count
