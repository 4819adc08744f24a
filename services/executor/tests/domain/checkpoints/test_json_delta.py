"""Differences of JSON values restore every value exactly."""

from __future__ import annotations

import random
from typing import Any

import pytest

from libs.common.json.jsonio import dump
from services.executor.domain.checkpoints.json_delta import DeltaError, apply, difference

SCALARS = [None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, 2**63, 1e20, "", "a", "é"]


def value_of(chance: random.Random, depth: int) -> Any:
    pick = chance.random()
    if depth == 0 or pick < 0.4:
        return chance.choice(SCALARS)
    if pick < 0.7:
        return [value_of(chance, depth - 1) for _ in range(chance.randrange(5))]
    return {chance.choice("abcde"): value_of(chance, depth - 1) for _ in range(chance.randrange(5))}


def changed(chance: random.Random, value: Any, depth: int) -> Any:
    """Return a value with a few changes."""
    if type(value) is dict and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        return {**value, key: changed(chance, value[key], depth)} | ({"new": 1} if chance.random() < 0.3 else {})
    if type(value) is list and chance.random() < 0.8:
        index = chance.randrange(len(value) + 1)
        return [*value[:index], value_of(chance, depth), *value[index + chance.randrange(2) :]]
    return value_of(chance, depth)


def test_a_difference_restores_the_new_value_whatever_changed() -> None:
    chance = random.Random(28)
    for _ in range(3_000):
        old = value_of(chance, 4)
        new = changed(chance, old, 3) if chance.random() < 0.8 else value_of(chance, 4)
        before = dump(old)
        restored = apply(old, difference(old, new))
        # The order of keys may differ; the encoding compares texts and stores the state in full then.
        assert difference(restored, new) is None
        assert dump(old) == before


def test_a_growing_list_costs_what_was_added() -> None:
    old = {"done": [{"step": n, "result": "x" * 50} for n in range(500)], "next": 500}
    new = {"done": [*old["done"], {"step": 500, "result": "y"}], "next": 501}  # type: ignore[misc]
    assert len(dump(difference(old, new))) < 200
    assert difference({"a": None}, {"a": None}) is None
    assert difference({"a": None}, {}) is not None


@pytest.mark.parametrize(
    ("old", "delta"),
    [
        ([1], [2, 3, 0, []]),
        ({}, [1, {"a": [0, 1]}, [], {}]),
        ([], [3, 0, [0, 1]]),
        (1, [1, {}, [], {}]),
        (1, [9]),
        (1, 7),
    ],
)
def test_a_difference_that_does_not_fit_is_refused(old: Any, delta: Any) -> None:
    with pytest.raises(DeltaError):
        apply(old, delta)
