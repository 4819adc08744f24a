"""The Merkle tree of RFC 6962, implemented independently of the audit service.

All functions work on leaf hashes and keep at most one hash per bit of the tree size, so that memory is bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

HASH_BYTES = 32
# Sequences of the log are positive 64-bit integers; a larger tree is not one of this log.
MAX_SIZE = 2**63
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


def inclusion_path_length(index: int, size: int) -> int:
    """Return the number of hashes in the path of a leaf: the levels up to the last common node with the rightmost leaf,
    and the left siblings above it."""
    inner = (index ^ (size - 1)).bit_length()
    return inner + (index >> inner).bit_count()


def consistency_path_length(first: int, second: int) -> int:
    """Return the number of hashes in the path between two sizes, 0 < first < second."""
    zeros = (first & -first).bit_length() - 1
    # A first tree that is perfect is a node of the second one; the verifier has its root already.
    return inclusion_path_length(first - 1, second) - zeros + (first.bit_count() != 1)


def root_of_inclusion(index: int, size: int, leaf: bytes, path: Sequence[bytes]) -> bytes | None:
    """Return the root that a path leads to from a leaf (RFC 9162, 2.1.3.2); None if the path does not fit the tree."""
    if not _path_fits(index, size, path) or len(leaf) != HASH_BYTES:
        return None
    node, last, root = index, size - 1, leaf
    for sibling in path:
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
    if not _path_fits(index, size, path):
        return None
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
    """Return whether the path proves that the first tree is a prefix of the second (RFC 9162, 2.1.4.2).

    Of an empty tree nothing is proved but its root: it is the beginning of every tree, with an empty path.
    """
    if not 0 <= first <= second < MAX_SIZE or not _are_hashes([*path, first_root, second_root]):
        return False
    if first == 0 or first == second:
        roots_hold = first_root == second_root if first == second else True
        return not path and roots_hold and (first > 0 or first_root == EMPTY_ROOT)
    if len(path) != consistency_path_length(first, second):
        return False
    nodes = list(path) if first & (first - 1) else [first_root, *path]
    node, last = first - 1, second - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old = new = nodes[0]
    for sibling in nodes[1:]:
        if node & 1 or node == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root


def _path_fits(index: int, size: int, path: Sequence[bytes]) -> bool:
    """Return whether a path has as many hashes as the tree has for this leaf. A node is hashed over two hashes
    without a
    separator, so a hash of another length could pass for a different pair."""
    return 0 <= index < size < MAX_SIZE and len(path) == inclusion_path_length(index, size) and _are_hashes(path)


def _are_hashes(values: Sequence[bytes]) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
