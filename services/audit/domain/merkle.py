"""The Merkle tree of RFC 6962, kept as a compact range: the roots of its perfect subtrees, largest first.

A range holds at most one hash per bit of its size, so it can be stored beside the records and grown without reading them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf. The prefix keeps a leaf from ever being taken for a node."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class CompactRange:
    """A tree of `size` leaves. It never changes: growing it makes another, so a commit that fails leaves nothing to undo."""

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.hashes) != self.size.bit_count():
            raise ValueError("a tree has one perfect subtree for each bit of its size")

    def extended(self, leaves: Iterable[bytes]) -> CompactRange:
        """Return the tree with these leaf hashes added at its end."""
        size, hashes = self.size, list(self.hashes)
        for node in leaves:
            carry = size
            while carry & 1:
                node = node_hash(hashes.pop(), node)
                carry >>= 1
            hashes.append(node)
            size += 1
        return CompactRange(size, tuple(hashes))

    def root(self) -> bytes:
        """Return the root hash over all leaves."""
        if not self.hashes:
            return EMPTY_ROOT
        node = self.hashes[-1]
        for left in reversed(self.hashes[:-1]):
            node = node_hash(left, node)
        return node
