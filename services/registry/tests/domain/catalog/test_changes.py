"""Positions in the change log and their tokens."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.ids import new_id
from services.registry.domain.catalog.changes import Horizon, Position


def test_a_token_stands_for_its_position() -> None:
    position = Position(new_id(), 2**62)
    assert Position.of_token(position.token()) == position
    assert len(position.token()) <= 256


@pytest.mark.parametrize(
    "text", ["", " ", "epoch", "epoch 1 ", "epoch x", "epoch -1", " 1", "epoch ²", "epoch " + "9" * 30]
)
def test_a_token_that_was_never_made_here_is_no_position(text: str) -> None:
    assert Position.of_token(base64.urlsafe_b64encode(text.encode()).decode()) is None


@settings(deadline=None)
@given(st.text(max_size=256))
def test_no_text_is_an_error(text: str) -> None:
    found = Position.of_token(text)
    assert found is None or found.sequence >= 0


@pytest.mark.parametrize(
    ("sequence", "reached"), [(3, False), (4, True), (5, True), (9, True), (10, False)]
)  # fmt: skip
def test_a_horizon_reaches_what_can_be_continued(sequence: int, reached: bool) -> None:
    assert Horizon("e", 5, 9).reaches(Position("e", sequence)) is reached
    assert not Horizon("other", 5, 9).reaches(Position("e", sequence))


def test_an_empty_log_reaches_its_own_beginning() -> None:
    assert Horizon("e", 1, 0).reaches(Position("e", 0))
