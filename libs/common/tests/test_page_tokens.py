"""A page token continues its own query and no other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common import page_tokens
from libs.common.errors import MeshError, Reason


def test_the_cursor_comes_back() -> None:
    assert page_tokens.decode({"q": 1}, page_tokens.encode({"q": 1}, ["name", 2**63])) == ["name", 2**63]
    assert page_tokens.decode({"q": 1}, "") is None


@pytest.mark.parametrize("token", ["x", "%%%", "AAAA", "W10", page_tokens.encode({"q": 2}, [1])])
def test_a_foreign_or_broken_token_is_refused(token: str) -> None:
    with pytest.raises(MeshError) as caught:
        page_tokens.decode({"q": 1}, token)
    assert caught.value.reason is Reason.PAGE_TOKEN_INVALID


def test_a_place_is_a_number_that_a_row_can_have() -> None:
    assert page_tokens.decode_cursor("q", page_tokens.encode("q", [7])) == 7
    assert page_tokens.decode_cursor("q", "") is None


@pytest.mark.parametrize("cursor", [[], [1, 2], ["1"], [True], [-1], [2**63], [None]])
def test_what_is_no_place_is_refused(cursor: list[Any]) -> None:
    with pytest.raises(MeshError) as caught:
        page_tokens.decode_cursor("q", page_tokens.encode("q", cursor))
    assert caught.value.reason is Reason.PAGE_TOKEN_INVALID


def test_a_time_and_an_id_come_back() -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    assert page_tokens.decode_time_cursor("q", page_tokens.encode("q", [time.isoformat(), "a"])) == (time, "a")
    assert page_tokens.decode_time_cursor("q", "") is None


@pytest.mark.parametrize(
    "cursor",
    [
        [],
        ["2026-01-01T00:00:00+00:00"],
        ["2026-01-01T00:00:00+00:00", "a", "b"],
        ["2026-01-01T00:00:00", "a"],
        ["2026-01-01T00:00:00+00:00", 1],
        ["2026-01-01T00:00:00+00:00", "a\0"],
        ["soon", "a"],
        [1, "a"],
    ],
)
def test_what_is_no_time_and_id_is_refused(cursor: list[Any]) -> None:
    with pytest.raises(MeshError) as caught:
        page_tokens.decode_time_cursor("q", page_tokens.encode("q", cursor))
    assert caught.value.reason is Reason.PAGE_TOKEN_INVALID
