"""Limits the size of a response. Items that do not fit are left out, never truncated."""

from __future__ import annotations

from collections.abc import Iterable

# A gRPC message holds 4 MiB and a manifest at most 1 MiB, so one more manifest and the framing still fit.
ANSWER_BYTES = 2 * 1024 * 1024
MANIFEST_BYTES = 1024 * 1024


def count_fitting(sizes: Iterable[int], budget: int = ANSWER_BYTES) -> int:
    """Return how many of the first sizes fit into the budget; at least one."""
    count = used = 0
    for size in sizes:
        used += size
        if count and used > budget:
            break
        count += 1
    return count
