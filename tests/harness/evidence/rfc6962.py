"""RFC 6962 as a verifier writes it down (sections 2.1 and, for the checks, RFC 9162 2.1.3.2 and 2.1.4.2). It shares
nothing with the
service, so that a mistake there is not repeated here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence


def leaf(content: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\x00" + content).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def roots(leaves: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the root of the tree over no leaf, over the first, over the first two, and so on."""
    peaks: list[tuple[int, bytes]] = []
    yield hashlib.sha256(b"").digest()
    for hashed in leaves:
        peaks.append((1, hashed))
        while len(peaks) > 1 and peaks[-1][0] == peaks[-2][0]:
            (size, right), (_, left) = peaks.pop(), peaks.pop()
            peaks.append((2 * size, node(left, right)))
        root = peaks[-1][1]
        for _, left in reversed(peaks[:-1]):
            root = node(left, root)
        yield root


def included(hashed: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Say whether the path proves that the leaf is at its place in the tree."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, hashed
    for sibling in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node(sibling, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node(found, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def consistent(first: int, second: int, path: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """Say whether the path proves that the larger tree continues the smaller."""
    if first == second:
        return not path and first_root == second_root
    if first == 0:
        return not path
    proof = list(path)
    if first & (first - 1) == 0:
        proof.insert(0, first_root)
    if not proof or first > second:
        return False
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = proof[0]
    for sibling in proof[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old, new = node(sibling, old), node(sibling, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = node(new, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root
