"""The Merkle tree of RFC 6962, implemented independently of the audit service.

All functions work on leaf hashes and keep at most one hash per bit of the tree size, so that memory is bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf's content (section 2.1)."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node over its two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Frontier:
    """The state of a growing tree: the roots of its perfect subtrees, largest first."""

    __slots__ = ("nodes", "size")

    def __init__(self, size: int = 0, nodes: Sequence[bytes] = ()) -> None:
        if size < 0 or len(nodes) != size.bit_count():
            raise ValueError("a tree has one perfect subtree for each bit of its size")
        self.size, self.nodes = size, list(nodes)

    def append(self, leaf: bytes) -> None:
        """Add one leaf hash."""
        carry, nodes, sha256 = self.size, self.nodes, hashlib.sha256
        while carry & 1:
            leaf = sha256(b"\x01" + nodes.pop() + leaf).digest()
            carry >>= 1
        nodes.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """Return the root hash of the tree so far."""
        if not self.nodes:
            return EMPTY_ROOT
        root = self.nodes[-1]
        for left in reversed(self.nodes[:-1]):
            root = node_hash(left, root)
        return root

    def copy(self) -> Frontier:
        """Return an independent copy."""
        return Frontier(self.size, self.nodes)


def root_of_inclusion(index: int, size: int, leaf: bytes, path: Sequence[bytes]) -> bytes | None:
    """Return the root that a path leads to from a leaf (RFC 9162, 2.1.3.2); None if the path does not fit the tree."""
    if not 0 <= index < size:
        return None
    node, last, root = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return None
        if node & 1 or node == last:
            root = node_hash(sibling, root)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        node, last = node >> 1, last >> 1
    return root if last == 0 else None


def inclusion_holds(index: int, size: int, leaf: bytes, path: Sequence[bytes], root: bytes) -> bool:
    """Return whether the path proves that the leaf is at this index of the tree with this root."""
    return root_of_inclusion(index, size, leaf, path) == root


def frontier_before(index: int, size: int, path: Sequence[bytes]) -> Frontier | None:
    """Return the tree of all leaves before a leaf, from its inclusion path; None if the path does not fit.

    The left siblings of the path are the perfect subtrees of the frontier at this index.
    """
    node, last, nodes = index, size - 1, []
    for sibling in path:
        if node & 1 or node == last:
            nodes.append(sibling)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        node, last = node >> 1, last >> 1
    if len(nodes) != index.bit_count():
        return None
    return Frontier(index, nodes[::-1])


def consistency_holds(first: int, second: int, path: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """Return whether the path proves that the first tree is a prefix of the second (RFC 9162, 2.1.4.2)."""
    if first == second:
        return not path and first_root == second_root
    if first == 0:
        return not path and first_root == EMPTY_ROOT
    if not 0 < first < second or (not path and first & (first - 1)):
        return False
    nodes = list(path) if first & (first - 1) else [first_root, *path]
    node, last = first - 1, second - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old = new = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root
