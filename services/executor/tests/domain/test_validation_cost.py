"""The work of a validation is bounded by the schema's cost and the value's size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.domain.validation_cost import (
    INLINE_BYTES,
    INLINE_VALUES,
    Size,
    ValidationCost,
    size_of_json,
    size_of_value,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4),
)


@pytest.mark.parametrize(
    ("value", "levels", "text"),
    [(1, (1,), 0), ("abc", (1,), 3), ({}, (1,), 0), ({"a": [1, "bc"]}, (1, 1, 2), 3), ([[], [[1]]], (1, 2, 1, 1), 0)],
)
def test_a_value_is_counted_level_by_level(value: Any, levels: tuple[int, ...], text: int) -> None:
    assert size_of_value(value) == Size(levels, text)


@given(JSON)
def test_the_size_of_the_text_is_never_too_low(value: Any) -> None:
    guess, exact = size_of_json(json.dumps(value, ensure_ascii=False).encode()), size_of_value(value)
    assert len(guess.levels) >= len(exact.levels)
    assert all(upper >= count for upper, count in zip(guess.levels, exact.levels, strict=False))
    assert guess.text_bytes >= exact.text_bytes


def test_a_value_that_contains_itself_is_counted_too() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert size_of_value(endless).levels


def test_units_are_visits_times_values_and_patterns_times_bytes() -> None:
    cost = ValidationCost((3, 10), (0, 2))
    assert cost.units(Size((1,), 400)) == 3
    assert cost.units(Size((1, 5, 7), 400)) == 3 + 50 + 70 + 200


@pytest.mark.parametrize(
    ("size", "inline"),
    [
        (Size((1, 10), 10), True),
        (Size((1, 21_000), 10), False),
        (Size((1, INLINE_VALUES + 1), 0), False),
        (Size((1, 1), INLINE_BYTES + 1), False),
    ],
)
def test_only_small_work_runs_on_the_event_loop(size: Size, inline: bool) -> None:
    assert ValidationCost((1,)).runs_inline(size) is inline


def test_a_costly_schema_makes_a_small_value_heavy() -> None:
    assert not ValidationCost((1, 80_000)).runs_inline(Size((1, 1), 2))
