"""Verifies proofs as RFC 9162 describes it (sections 2.1.3.2 and 2.1.4.2), independent of the code under test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of_inclusion(leaf: int, size: int, leaf_hash: bytes, path: Sequence[bytes]) -> bytes | None:
    """Return the root that an audit path leads to; None if it does not fit the tree."""
    if leaf >= size:
        return None
    place, last, node = leaf, size - 1, leaf_hash
    for beside in path:
        if last == 0:
            return None
        if place & 1 or place == last:
            node = _node(beside, node)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            node = _node(node, beside)
        place, last = place >> 1, last >> 1
    return node if last == 0 else None


def is_consistent(first: int, second: int, first_root: bytes, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Return whether a consistency proof is valid between two sizes and their roots."""
    if first in (0, second):
        return not path and (first == 0 or first_root == second_root)
    if not path:
        return False
    steps = list(path) if first & (first - 1) else [first_root, *path]
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    smaller = larger = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            smaller, larger = _node(step, smaller), _node(step, larger)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            larger = _node(larger, step)
        place, last = place >> 1, last >> 1
    return (smaller, larger, last) == (first_root, second_root, 0)
