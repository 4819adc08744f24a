"""The Merkle tree of RFC 6962, kept as a compact range: the roots of its perfect subtrees, largest first.

A range holds at most one hash per bit of its size, so it can be stored beside the records and grown without reading them.
Proofs are named here as the spans of leaves whose hashes they consist of; where those hashes come from is not known here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

EMPTY_ROOT = hashlib.sha256(b"").digest()
# The roots of every eighth level are stored: those of 256 leaves, of 65,536 and so on.
STORED_LEVELS = 8


class Node(NamedTuple):
    """A perfect subtree: `2 ** level` leaves from leaf `place * 2 ** level` on."""

    level: int
    place: int


class Leaves(NamedTuple):
    """The leaves from `first` to just before `end`."""

    first: int
    end: int


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf. The prefix keeps a leaf from ever being taken for a node."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class CompactRange(Struct, frozen=True):
    """A tree of `size` leaves. It never changes: growing it makes another, so a commit that fails leaves nothing to undo."""

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.hashes) != self.size.bit_count():
            raise ValueError("a tree has one perfect subtree for each bit of its size")

    def extended(self, leaves: Iterable[bytes]) -> CompactRange:
        """Return the tree with these leaf hashes added at its end."""
        return self.grown(leaves)[0]

    def grown(self, leaves: Iterable[bytes]) -> tuple[CompactRange, list[tuple[Node, bytes]]]:
        """Return the tree with these leaf hashes added at its end, and the nodes of stored levels that this completes."""
        size, hashes, sha256 = self.size, list(self.hashes), hashlib.sha256
        completed = []
        for node in leaves:
            carry, level = size, 0
            while carry & 1:
                # What `node_hash` does, written out: this is done once for every leaf.
                node = sha256(b"\x01" + hashes.pop() + node).digest()
                carry >>= 1
                level += 1
                if not level % STORED_LEVELS:
                    completed.append((Node(level, carry), node))
            hashes.append(node)
            size += 1
        return CompactRange(size, tuple(hashes)), completed

    def root(self) -> bytes:
        """Return the root hash over all leaves."""
        return folded(self.hashes) if self.hashes else EMPTY_ROOT


def folded(hashes: Sequence[bytes]) -> bytes:
    """Return the hash over the perfect subtrees of adjacent leaves, largest first."""
    node = hashes[-1]
    for left in reversed(hashes[:-1]):
        node = node_hash(left, node)
    return node


def perfect(leaves: Leaves) -> list[Node]:
    """Return the perfect subtrees that leaves consist of, from left to right. The leaves must be a tree's right side or the
    whole of a subtree, as those of a proof are: largest first, so that `folded` gives their hash."""
    nodes, first = [], leaves.first
    while first < leaves.end:
        level = (leaves.end - first).bit_length() - 1
        if first:
            level = min(level, (first & -first).bit_length() - 1)
        nodes.append(Node(level, first >> level))
        first += 1 << level
    return nodes


def inclusion(leaf: int, size: int) -> list[Leaves]:
    """Return the audit path of RFC 6962, section 2.1.1: what stands beside the leaf on its way up."""
    if not 0 <= leaf < size:
        raise ValueError("the leaf is not in the tree")
    path, first, end = [], 0, size
    while end - first > 1:
        middle = first + _left(end - first)
        beside = Leaves(middle, end) if leaf < middle else Leaves(first, middle)
        first, end = (first, middle) if leaf < middle else (middle, end)
        path.append(beside)
    return path[::-1]


def consistency(smaller: int, size: int) -> list[Leaves]:
    """Return the proof of RFC 6962, section 2.1.2, that the first `smaller` leaves are the beginning of the tree. It is
    empty when the two are the same, and when the smaller one is empty, about which there is nothing to prove."""
    if not 0 <= smaller <= size:
        raise ValueError("the smaller tree is not the smaller one")
    return list(_subproof(smaller, Leaves(0, size), known=True))[::-1] if smaller else []


def _subproof(smaller: int, tree: Leaves, *, known: bool) -> Iterator[Leaves]:
    # From the top down; the standard lists it from the bottom up.
    if smaller == tree.end:
        if not known:
            yield tree
        return
    middle = tree.first + _left(tree.end - tree.first)
    if smaller <= middle:
        yield Leaves(middle, tree.end)
        yield from _subproof(smaller, Leaves(tree.first, middle), known=known)
    else:
        yield Leaves(tree.first, middle)
        yield from _subproof(smaller, Leaves(middle, tree.end), known=False)


def _left(size: int) -> int:
    """Return how many leaves are in the left subtree: the largest power of two below the size."""
    return 1 << ((size - 1).bit_length() - 1)
