"""Locates the first change of a log whose records no longer hash to the signed root.

A consistency proof from a smaller size to a signed checkpoint shows whether the records up to that size are
authentic. A binary search finds the first block that is not. Within the block, possible changes are undone on trial:
the right one hashes to the signed root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolmesh_sdk.audit.format.merkle import Frontier, consistency_holds, node_hash
from toolmesh_sdk.audit.format.notes import Note
from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.report import Kind
from toolmesh_sdk.errors import ToolmeshError

BLOCK = 256
# The size up to which all pairs are swapped on trial, in a second or two.
MAX_GUESSED = 300


@dataclass(frozen=True, slots=True)
class SuspectRange:
    """The range of leaves, from `first` to before `end`, with the first change; the tree of size `end` has `root`."""

    first: int
    end: int
    root: bytes


def narrow_suspect(log: RemoteLog, shard: int, roots: Mapping[int, bytes], signed: Sequence[Note]) -> SuspectRange:
    """Return the smallest range that holds the first change. `roots` are roots of the current records at some sizes;
    `signed` are trusted checkpoints of the shard, the last of which does not match."""
    suspect = pinned = bound_by_checkpoints(roots, signed)
    sizes = [size for size in sorted(roots) if pinned.first < size < pinned.end and size % BLOCK == 0]
    while sizes:
        middle = sizes[len(sizes) // 2]
        authentic = _authentic_root(log, shard, middle, pinned)
        if authentic is None:
            # The log can no longer prove this size; try smaller ones.
            sizes = sizes[: len(sizes) // 2]
        elif authentic == roots[middle]:
            suspect = SuspectRange(middle, suspect.end, suspect.root)
            sizes = [size for size in sizes if size > middle]
        else:
            suspect = SuspectRange(suspect.first, middle, authentic)
            sizes = [size for size in sizes if size < middle]
    return suspect


def bound_by_checkpoints(roots: Mapping[int, bytes], signed: Sequence[Note]) -> SuspectRange:
    """Return the range between the last checkpoint that matches the records and the first that does not."""
    good, bad = 0, signed[-1]
    for note in signed:
        if note.size not in roots or roots[note.size] != note.root:
            bad = note
            break
        good = max(good, note.size)
    return SuspectRange(good, bad.size, bad.root)


def guess_change(before: Frontier, leaves: Sequence[bytes], suspect: SuspectRange) -> tuple[Kind, int] | None:
    """Undo possible changes in a suspect range; return the kind and the index of the one that fits, else None.

    `before` is the tree up to the range; `leaves` are its current leaves, and one more if there is one.
    """
    size = suspect.end - suspect.first
    if size > MAX_GUESSED or len(leaves) < size:
        return None
    if len(leaves) > size:
        for index in range(size):
            if _root(before, [*leaves[:index], *leaves[index + 1 :]]) == suspect.root:
                return Kind.INSERTION, suspect.first + index
    tree = PartialTree(before, leaves[:size])
    for one in range(size):
        for other in range(one + 1, size):
            if tree.root({one: leaves[other], other: leaves[one]}) == suspect.root:
                return Kind.REORDERING, suspect.first + one
    return None


class PartialTree:
    """The leaves after a frontier, as perfect subtrees with all nodes, so that replacing a leaf costs few hashes."""

    def __init__(self, before: Frontier, leaves: Sequence[bytes]) -> None:
        self._before = before
        self._subtrees: list[tuple[int, list[list[bytes]]]] = []
        index, end = before.size, before.size + len(leaves)
        while index < end:
            level = (end - index).bit_length() - 1
            if index:
                level = min(level, (index & -index).bit_length() - 1)
            start = index - before.size
            self._subtrees.append((start, _levels(leaves[start : start + (1 << level)])))
            index += 1 << level

    def root(self, changes: Mapping[int, bytes]) -> bytes:
        """Return the root of the whole tree with some leaves replaced, by their index in the range."""
        size, nodes = self._before.size, list(self._before.nodes)
        for start, levels in self._subtrees:
            width = len(levels[0])
            within = {index - start: leaf for index, leaf in changes.items() if start <= index < start + width}
            node = _top(levels, within) if within else levels[-1][0]
            carry = size >> (len(levels) - 1)
            while carry & 1:
                node = node_hash(nodes.pop(), node)
                carry >>= 1
            nodes.append(node)
            size += width
        return Frontier(size, nodes).root()


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([node_hash(below[index], below[index + 1]) for index in range(0, len(below), 2)])
    return levels


def _top(levels: list[list[bytes]], changed: dict[int, bytes]) -> bytes:
    for level in levels[:-1]:
        above = {}
        for index in {index >> 1 for index in changed}:
            left, right = 2 * index, 2 * index + 1
            above[index] = node_hash(changed.get(left, level[left]), changed.get(right, level[right]))
        changed = above
    return changed[0]


def _root(start: Frontier, leaves: Sequence[bytes]) -> bytes:
    tree = start.copy()
    for leaf in leaves:
        tree.append(leaf)
    return tree.root()


def _authentic_root(log: RemoteLog, shard: int, size: int, signed: SuspectRange) -> bytes | None:
    """Return the root of the shard at a size, if the log can prove it against the signed root at the end of a range."""
    try:
        proof = log.consistency(shard, size, signed.end)
    except ToolmeshError:
        return None
    holds = consistency_holds(size, signed.end, list(proof.hashes), proof.first_root, signed.root)
    return proof.first_root if holds else None
