"""The Merkle tree against the recursive definition of RFC 6962 and its published test vectors."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.audit.domain.merkle.merkle import (
    CompactRange,
    LeafRange,
    Node,
    consistency_ranges,
    fold_hashes,
    inclusion_ranges,
    leaf_hash,
    perfect_subtrees,
)
from services.audit.tests.proofs import is_consistent, root_of_inclusion
from services.audit.tests.sample import expected_root

NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def tree_of(contents: list[bytes]) -> CompactRange:
    return CompactRange().extend(leaf_hash(content) for content in contents)


def test_the_empty_tree_has_the_root_of_the_standard() -> None:
    assert CompactRange().root().hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_an_empty_leaf_has_the_hash_of_the_standard() -> None:
    assert leaf_hash(b"").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"


def test_every_size_has_the_root_of_the_definition() -> None:
    contents: list[bytes] = []
    for size in range(301):
        assert tree_of(contents).root() == expected_root(contents)
        contents.append(size.to_bytes(2, "big"))


@NO_DEADLINE
@given(st.lists(st.binary(max_size=40), max_size=300))
def test_any_leaves_have_the_root_of_the_definition(contents: list[bytes]) -> None:
    assert tree_of(contents).root() == expected_root(contents)


@NO_DEADLINE
@given(st.lists(st.binary(max_size=8), max_size=300), st.data())
def test_growing_in_steps_is_growing_at_once(contents: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(contents)))
    stored = tree_of(contents[:cut])
    reloaded = CompactRange(stored.size, stored.hashes)
    assert reloaded.extend(leaf_hash(content) for content in contents[cut:]) == tree_of(contents)


def test_growing_leaves_the_tree_as_it_was() -> None:
    tree = tree_of([b"a", b"b", b"c"])
    before = tree.root()
    tree.extend([leaf_hash(b"d")])
    assert (tree.size, tree.root()) == (3, before)


@pytest.mark.parametrize(("size", "hashes"), [(1, ()), (0, (b"x",)), (3, (b"x",)), (-1, ())])
def test_hashes_that_do_not_fit_the_size_are_refused(size: int, hashes: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError):
        CompactRange(size, hashes)


# The test vectors of the reference implementations of RFC 6962.
EXAMPLE = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAF_1 = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
NODE_2_3 = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
LEAF_4 = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
NODE_4_7 = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
NODE_4_5 = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
NODE_6_7 = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"


def hashes_of(spans: list[LeafRange], contents: list[bytes]) -> list[bytes]:
    """Return the hash of each range by the recursive definition."""
    return [expected_root(contents[first:end]) for first, end in spans]


def nodes_hash(span: LeafRange, contents: list[bytes]) -> bytes:
    """Return the hash of a range from its perfect subtrees."""
    parts = [contents[place << level : (place + 1) << level] for level, place in perfect_subtrees(span)]
    return fold_hashes([expected_root(part) for part in parts])


@pytest.mark.parametrize("size", range(9))
def test_the_example_tree_has_the_roots_of_the_standard(size: int) -> None:
    assert tree_of(EXAMPLE[:size]).root().hex() == ROOTS[size]


@pytest.mark.parametrize(
    ("leaf", "size", "path"),
    [
        (0, 1, []),
        (0, 8, [LEAF_1, NODE_2_3, NODE_4_7]),
        (5, 8, [LEAF_4, NODE_6_7, ROOTS[4]]),
        (2, 3, [ROOTS[2]]),
        (1, 5, [ROOTS[1], NODE_2_3, LEAF_4]),
    ],
)
def test_the_example_tree_has_the_audit_paths_of_the_standard(leaf: int, size: int, path: list[str]) -> None:
    assert [each.hex() for each in hashes_of(inclusion_ranges(leaf, size), EXAMPLE)] == path


@pytest.mark.parametrize(
    ("smaller", "size", "path"),
    [
        (1, 1, []),
        (1, 8, [LEAF_1, NODE_2_3, NODE_4_7]),
        (6, 8, [NODE_4_5, NODE_6_7, ROOTS[4]]),
        (2, 5, [NODE_2_3, LEAF_4]),
    ],
)
def test_the_example_tree_has_the_consistency_proofs_of_the_standard(smaller: int, size: int, path: list[str]) -> None:
    assert [each.hex() for each in hashes_of(consistency_ranges(smaller, size), EXAMPLE)] == path


contents_of_any_size = st.integers(1, 600).map(lambda size: [place.to_bytes(2, "big") for place in range(size)])


@NO_DEADLINE
@given(contents_of_any_size, st.data())
def test_any_audit_path_leads_to_the_root(contents: list[bytes], data: st.DataObject) -> None:
    leaf = data.draw(st.integers(0, len(contents) - 1))
    spans = inclusion_ranges(leaf, len(contents))
    path = [nodes_hash(span, contents) for span in spans]
    assert path == hashes_of(spans, contents)
    assert root_of_inclusion(leaf, len(contents), leaf_hash(contents[leaf]), path) == expected_root(contents)


@NO_DEADLINE
@given(contents_of_any_size, st.data())
def test_any_consistency_proof_holds_and_none_holds_for_another_history(
    contents: list[bytes], data: st.DataObject
) -> None:
    size, smaller = len(contents), data.draw(st.integers(0, len(contents)))
    path = [nodes_hash(span, contents) for span in consistency_ranges(smaller, size)]
    first_root, root = expected_root(contents[:smaller]), expected_root(contents)
    assert is_consistent(smaller, size, first_root, root, path)
    if smaller > 0:
        forked = expected_root([*contents[: smaller - 1], b"another"])
        assert not is_consistent(smaller, size, forked, root, path)


@NO_DEADLINE
@given(st.integers(0, 1500), st.integers(1, 1500))
def test_growing_names_the_stored_subtrees_that_it_completes(before: int, count: int) -> None:
    leaves = [leaf_hash(place.to_bytes(2, "big")) for place in range(before + count)]
    tree, completed = CompactRange().extend(leaves[:before]).grow(leaves[before:])
    assert tree == CompactRange().extend(leaves)
    expected = [Node(8, place) for place in range(before // 256, (before + count) // 256)]
    assert [node for node, _ in completed] == expected
    for node, found in completed:
        assert found == CompactRange().extend(leaves[node.offset * 256 : (node.offset + 1) * 256]).root()


@pytest.mark.parametrize(("leaf", "size"), [(0, 0), (3, 3), (-1, 3)])
def test_a_leaf_outside_the_tree_has_no_path(leaf: int, size: int) -> None:
    with pytest.raises(ValueError):
        inclusion_ranges(leaf, size)


@pytest.mark.parametrize(("smaller", "size"), [(4, 3), (-1, 3)])
def test_a_tree_that_is_not_smaller_has_no_proof(smaller: int, size: int) -> None:
    with pytest.raises(ValueError):
        consistency_ranges(smaller, size)
