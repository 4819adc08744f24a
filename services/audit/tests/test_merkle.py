"""The tree, against the recursive definition of RFC 6962."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.audit.domain.merkle import CompactRange, leaf_hash
from services.audit.tests.sample import expected_root


def tree_of(contents: list[bytes]) -> CompactRange:
    return CompactRange().extended(leaf_hash(content) for content in contents)


def test_the_empty_tree_has_the_root_of_the_standard() -> None:
    assert CompactRange().root().hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_an_empty_leaf_has_the_hash_of_the_standard() -> None:
    assert leaf_hash(b"").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"


def test_every_size_has_the_root_of_the_definition() -> None:
    contents: list[bytes] = []
    for size in range(301):
        assert tree_of(contents).root() == expected_root(contents)
        contents.append(size.to_bytes(2, "big"))


@given(st.lists(st.binary(max_size=40), max_size=300))
def test_any_leaves_have_the_root_of_the_definition(contents: list[bytes]) -> None:
    assert tree_of(contents).root() == expected_root(contents)


@given(st.lists(st.binary(max_size=8), max_size=300), st.data())
def test_growing_in_steps_is_growing_at_once(contents: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(contents)))
    stored = tree_of(contents[:cut])
    reloaded = CompactRange(stored.size, stored.hashes)
    assert reloaded.extended(leaf_hash(content) for content in contents[cut:]) == tree_of(contents)


def test_growing_leaves_the_tree_as_it_was() -> None:
    tree = tree_of([b"a", b"b", b"c"])
    before = tree.root()
    tree.extended([leaf_hash(b"d")])
    assert (tree.size, tree.root()) == (3, before)


@pytest.mark.parametrize(("size", "hashes"), [(1, ()), (0, (b"x",)), (3, (b"x",)), (-1, ())])
def test_hashes_that_do_not_fit_the_size_are_refused(size: int, hashes: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError):
        CompactRange(size, hashes)
