"""The verifier's tree: the published vectors, the recursive definition, and another implementation."""

from __future__ import annotations

import metamorphic_log
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolmesh_sdk.audit.format.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_holds,
    consistency_path_length,
    frontier_before,
    inclusion_holds,
    inclusion_path_length,
    leaf_hash,
    root_of_inclusion,
)

from sdk.tests.audit_sample import consistency_of, path_of, root_of

# The inputs and roots that the reference implementations of RFC 6962 publish: a tree of eight leaves, size by size.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [leaf_hash(bytes.fromhex(text)) for text in INPUTS]


def grown(leaves: list[bytes]) -> Frontier:
    tree = Frontier()
    for leaf in leaves:
        tree.append(leaf)
    return tree


@pytest.mark.parametrize("size", range(1, 9))
def test_the_published_roots(size: int) -> None:
    assert grown(LEAVES[:size]).root().hex() == ROOTS[size - 1]
    assert root_of(LEAVES[:size]).hex() == ROOTS[size - 1]


def test_an_empty_tree_has_the_hash_of_nothing() -> None:
    assert (
        Frontier().root()
        == EMPTY_ROOT
        == bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 33])
def test_every_leaf_is_proved_in_every_tree_and_nothing_else_is(size: int) -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(size)]
    root = root_of(leaves)
    for index in range(size):
        path = path_of(index, leaves)
        assert inclusion_holds(index, size, leaves[index], path, root)
        metamorphic_log.verify_inclusion(index, size, leaves[index], path, root)
        left = frontier_before(index, size, path)
        assert left is not None
        assert left.nodes == grown(leaves[:index]).nodes
        assert not inclusion_holds(index, size, leaf_hash(b"other"), path, root)
        assert not inclusion_holds(index, size, leaves[index], [*path, root], root)
        assert not any(
            inclusion_holds(other, size, leaves[index], path, root) for other in range(size + 1) if other != index
        )
        if path:
            assert root_of_inclusion(index, size, leaves[index], path[:-1]) != root


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 33])
def test_every_smaller_tree_is_proved_to_be_the_beginning_and_no_other_is(size: int) -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(size)]
    root = root_of(leaves)
    for smaller in range(1, size + 1):
        proof, old = consistency_of(smaller, leaves), root_of(leaves[:smaller])
        assert consistency_holds(smaller, size, proof, old, root)
        metamorphic_log.verify_consistency(smaller, size, proof, old, root)
        assert not consistency_holds(smaller, size, proof, leaf_hash(b"other"), root)
        assert not consistency_holds(smaller, size, proof, old, leaf_hash(b"other"))
        assert not consistency_holds(smaller, size, [*proof, old], old, root)
        for other in range(1, size + 1):
            assert other == smaller or not consistency_holds(other, size, proof, old, root)


def test_the_empty_tree_is_the_beginning_of_every_tree() -> None:
    assert consistency_holds(0, 8, [], EMPTY_ROOT, bytes.fromhex(ROOTS[7]))
    assert not consistency_holds(0, 8, [], LEAVES[0], bytes.fromhex(ROOTS[7]))
    assert not consistency_holds(8, 7, [], bytes.fromhex(ROOTS[7]), bytes.fromhex(ROOTS[6]))


def test_a_path_has_as_many_hashes_as_the_tree_has_for_it() -> None:
    for size in range(1, 70):
        leaves = [leaf_hash(bytes([number])) for number in range(size)]
        assert [len(path_of(index, leaves)) for index in range(size)] == [
            inclusion_path_length(index, size) for index in range(size)
        ]
        for first in range(1, size):
            assert len(consistency_of(first, leaves)) == consistency_path_length(first, size)


def test_degenerate_inclusion_proofs_are_refused() -> None:
    root, path = bytes.fromhex(ROOTS[7]), path_of(3, LEAVES)
    degenerate: list[tuple[int, int, bytes, list[bytes]]] = [
        (0, 0, LEAVES[3], []),
        (0, 0, LEAVES[3], list(path)),
        (8, 8, LEAVES[3], list(path)),
        (-1, 8, LEAVES[3], list(path)),
        (3, 8, LEAVES[3], []),
        (3, 8, root, []),
        (3, 8, LEAVES[3], [*path, *path]),
        (3, 8, LEAVES[3], list(path) * 1000),
        (3, 2**70, LEAVES[3], [*path, *[root] * 67]),
        (0, 1, b"", []),
        (0, 1, root + root, []),
    ]
    for index, size, leaf, hashes in degenerate:
        assert root_of_inclusion(index, size, leaf, hashes) is None
        assert not inclusion_holds(index, size, leaf, hashes, root)
        if hashes != [] or size != 1:
            assert frontier_before(index, size, hashes) is None


def test_hashes_of_another_length_do_not_pass_for_a_different_pair() -> None:
    left, right = LEAVES[0], LEAVES[1]
    root = root_of([left, right])
    assert inclusion_holds(0, 2, left, [right], root)
    for cut in (0, 1, 31, 33, 63, 64):
        both = left + right
        assert not inclusion_holds(0, 2, both[:cut], [both[cut:]], root)
        assert not inclusion_holds(1, 2, both[cut:], [both[:cut]], root)
        assert frontier_before(1, 2, [both[:cut]]) is None
        assert not consistency_holds(1, 2, [both[cut:]], both[:cut], root)


def test_degenerate_consistency_proofs_are_refused() -> None:
    root, old, proof = bytes.fromhex(ROOTS[7]), bytes.fromhex(ROOTS[2]), consistency_of(3, LEAVES)
    assert consistency_holds(3, 8, proof, old, root)
    degenerate: list[tuple[int, int, list[bytes], bytes, bytes]] = [
        (0, 0, [], root, root),
        (0, 0, [], b"", b""),
        (0, 8, list(proof), EMPTY_ROOT, root),
        (0, 8, [], old, root),
        (0, 8, [], EMPTY_ROOT, b""),
        (3, 8, [], old, root),
        (3, 8, [*proof, *proof], old, root),
        (8, 3, list(proof), root, old),
        (-1, 8, list(proof), old, root),
        (8, 8, list(proof), root, root),
        (8, 8, [], b"", b""),
        (4, 2**70, [root] * 68, old, root),
    ]
    for first, second, hashes, first_root, second_root in degenerate:
        assert not consistency_holds(first, second, hashes, first_root, second_root)


def test_a_frontier_has_one_node_for_each_bit_of_its_size() -> None:
    with pytest.raises(ValueError):
        Frontier(3, [LEAVES[0]])


@given(st.integers(1, 300), st.data())
def test_both_verifiers_agree_about_bent_proofs(size: int, data: st.DataObject) -> None:
    leaves = [leaf_hash(number.to_bytes(2, "big")) for number in range(size)]
    index, root = data.draw(st.integers(0, size - 1)), root_of(leaves)
    path = list(path_of(index, leaves))
    if path:
        place = data.draw(st.integers(0, len(path) - 1))
        bend = data.draw(st.sampled_from(["drop", "repeat", "flip", "none"]))
        if bend == "drop":
            del path[place]
        elif bend == "repeat":
            path.insert(place, path[place])
        elif bend == "flip":
            path[place] = leaf_hash(path[place])
    other = data.draw(st.integers(0, size - 1))
    try:
        metamorphic_log.verify_inclusion(other, size, leaves[index], path, root)
        theirs = True
    except metamorphic_log.VerifyError:
        theirs = False
    assert inclusion_holds(other, size, leaves[index], path, root) is theirs
