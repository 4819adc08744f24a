"""Argument constraints of tokens: bounded when minted, and again when used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libs.common.auth.claims import MAX_CONSTRAINT_BYTES, MAX_CONSTRAINTS_COST
from libs.common.auth.constraints import ConstraintChecker, ConstraintError, constraint_cost
from libs.common.tests.json.test_schema_guard import doubling

ITEMS = {"properties": {"list": {"items": {"allOf": [{"type": "integer"}] * 100}}}}


def schema(value: Any) -> bytes:
    return json.dumps(value).encode()


UNBOUNDED = [
    schema(doubling(40)),
    schema({"properties": {"text": {"pattern": "^(?=(a+)+$)(a+)+b$"}}}),
    schema({"anyOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}),
    schema({"description": "x" * MAX_CONSTRAINT_BYTES}),
    b"",
    b"[]",
    b'{"type":7}',
]


@pytest.mark.parametrize("unbounded", UNBOUNDED)
def test_an_unbounded_constraint_is_refused_without_evaluation(unbounded: bytes) -> None:
    """Evaluating the first would take hours."""
    with pytest.raises(ConstraintError):
        constraint_cost(unbounded)
    assert ConstraintChecker()([unbounded], {"text": "a" * 5_000}) == ""


def test_a_violation_is_located() -> None:
    checker = ConstraintChecker()
    bound = schema({"properties": {"n": {"maximum": 5}}})
    assert checker([bound], {"n": 5}) is None
    assert checker([bound], {"n": 6}) == "/n"
    assert checker([schema({}), bound], {"n": 6}) == "/n"
    assert checker([], {"n": 6}) is None


def test_arguments_that_take_too_much_work_do_not_satisfy_a_constraint() -> None:
    checker = ConstraintChecker()
    assert checker([schema(ITEMS)], {"list": [1] * 100}) is None
    assert checker([schema(ITEMS)], {"list": [1] * 20_000}) is not None
    assert checker([schema({"properties": {"n": {"maximum": 5}}})], {"list": [1] * 20_000}) is None


def test_many_constraints_share_one_bound() -> None:
    checker = ConstraintChecker()
    costly = [schema({**doubling(10), "title": str(n)}) for n in range(10)]
    assert sum(map(constraint_cost, costly)) > MAX_CONSTRAINTS_COST
    assert checker(costly[:1], {}) is None
    assert checker(costly, {}) == ""
