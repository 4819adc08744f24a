"""The Merkle tree of RFC 6962 as a compact range: the roots of its perfect subtrees, largest first.

A range has at most one hash per bit of its size, so it is stored beside the records and grown without reading them.
Proofs are expressed as ranges of leaves; looking up their hashes is left to the caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

EMPTY_ROOT = hashlib.sha256(b"").digest()
# Roots of every eighth level are stored: of 256 leaves, 65,536 leaves and so on.
STORED_LEVELS = 8


class Node(NamedTuple):
    """A perfect subtree: `2 ** level` leaves from leaf `offset * 2 ** level` on."""

    level: int
    offset: int


class LeafRange(NamedTuple):
    """The leaves from `first` to `end` (exclusive)."""

    first: int
    end: int


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf. The prefix separates leaves from inner nodes."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class CompactRange(Struct, frozen=True):
    """An immutable tree of `size` leaves. Growing returns a new tree, so a failed commit needs no undo."""

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.hashes) != self.size.bit_count():
            raise ValueError("a tree has one hash per bit of its size")

    def extend(self, leaves: Iterable[bytes]) -> CompactRange:
        """Return the tree with these leaf hashes appended."""
        return self.grow(leaves)[0]

    def grow(self, leaves: Iterable[bytes]) -> tuple[CompactRange, list[tuple[Node, bytes]]]:
        """Return the tree with these leaf hashes appended, and the nodes of stored levels that this completes."""
        size, hashes, sha256 = self.size, list(self.hashes), hashlib.sha256
        completed = []
        for node in leaves:
            carry, level = size, 0
            while carry & 1:
                # `node_hash` inlined: this runs for every leaf.
                node = sha256(b"\x01" + hashes.pop() + node).digest()
                carry >>= 1
                level += 1
                if not level % STORED_LEVELS:
                    completed.append((Node(level, carry), node))
            hashes.append(node)
            size += 1
        return CompactRange(size, tuple(hashes)), completed

    def root(self) -> bytes:
        """Return the root hash."""
        return fold_hashes(self.hashes) if self.hashes else EMPTY_ROOT


def fold_hashes(hashes: Sequence[bytes]) -> bytes:
    """Return the hash over adjacent perfect subtrees, given largest first."""
    node = hashes[-1]
    for left in reversed(hashes[:-1]):
        node = node_hash(left, node)
    return node


def perfect_subtrees(leaves: LeafRange) -> list[Node]:
    """Return the perfect subtrees of a leaf range from left to right. The range must be a suffix of a tree or a whole
    subtree, as in proofs; the subtrees are then largest first, as `fold_hashes` expects."""
    nodes, first = [], leaves.first
    while first < leaves.end:
        level = (leaves.end - first).bit_length() - 1
        if first:
            level = min(level, (first & -first).bit_length() - 1)
        nodes.append(Node(level, first >> level))
        first += 1 << level
    return nodes


def inclusion_ranges(leaf: int, size: int) -> list[LeafRange]:
    """Return the audit path of RFC 6962, section 2.1.1: the leaf ranges of the siblings from the leaf upwards."""
    if not 0 <= leaf < size:
        raise ValueError("leaf index out of range")
    path, first, end = [], 0, size
    while end - first > 1:
        middle = first + _left_size(end - first)
        sibling = LeafRange(middle, end) if leaf < middle else LeafRange(first, middle)
        first, end = (first, middle) if leaf < middle else (middle, end)
        path.append(sibling)
    return path[::-1]


def consistency_ranges(smaller: int, size: int) -> list[LeafRange]:
    """Return the consistency proof of RFC 6962, section 2.1.2, between the first `smaller` leaves and the tree. It is
    empty for equal sizes and for an empty smaller tree."""
    if not 0 <= smaller <= size:
        raise ValueError("smaller size out of range")
    return list(_subproof(smaller, LeafRange(0, size), known=True))[::-1] if smaller else []


def _subproof(smaller: int, tree: LeafRange, *, known: bool) -> Iterator[LeafRange]:
    # Built top down; the standard lists it bottom up.
    if smaller == tree.end:
        if not known:
            yield tree
        return
    middle = tree.first + _left_size(tree.end - tree.first)
    if smaller <= middle:
        yield LeafRange(middle, tree.end)
        yield from _subproof(smaller, LeafRange(tree.first, middle), known=known)
    else:
        yield LeafRange(tree.first, middle)
        yield from _subproof(smaller, LeafRange(middle, tree.end), known=False)


def _left_size(size: int) -> int:
    """Return the number of leaves in the left subtree: the largest power of two below the size."""
    return 1 << ((size - 1).bit_length() - 1)
