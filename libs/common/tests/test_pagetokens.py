"""A page token continues its own query and no other."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common import pagetokens
from libs.common.errors import MeshError, Reason


def test_the_cursor_comes_back() -> None:
    assert pagetokens.decode({"q": 1}, pagetokens.encode({"q": 1}, ["name", 2**63])) == ["name", 2**63]
    assert pagetokens.decode({"q": 1}, "") is None


@pytest.mark.parametrize("token", ["x", "%%%", "AAAA", "W10", pagetokens.encode({"q": 2}, [1])])
def test_a_foreign_or_broken_token_is_refused(token: str) -> None:
    with pytest.raises(MeshError) as caught:
        pagetokens.decode({"q": 1}, token)
    assert caught.value.reason is Reason.PAGE_TOKEN_INVALID


def test_a_place_is_a_number_that_a_row_can_have() -> None:
    assert pagetokens.decode_place("q", pagetokens.encode("q", [7])) == 7
    assert pagetokens.decode_place("q", "") is None


@pytest.mark.parametrize("cursor", [[], [1, 2], ["1"], [True], [-1], [2**63], [None]])
def test_what_is_no_place_is_refused(cursor: list[Any]) -> None:
    with pytest.raises(MeshError) as caught:
        pagetokens.decode_place("q", pagetokens.encode("q", cursor))
    assert caught.value.reason is Reason.PAGE_TOKEN_INVALID
