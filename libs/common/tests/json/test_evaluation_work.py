"""Estimates of the work that a schema takes on a value."""

from __future__ import annotations

from libs.common.json.evaluation_work import EvaluationWork
from libs.common.json.schema_guard import TOKEN_LIMITS


def test_named_parts_are_evaluated_once_whatever_the_size() -> None:
    work = EvaluationWork.of({"properties": {"a": {"type": "string"}, "b": {"enum": [1, 2]}}}, TOKEN_LIMITS)
    assert work.units(10) == work.units(10_000_000) == 5


def test_items_are_evaluated_once_for_every_part() -> None:
    work = EvaluationWork.of({"items": {"allOf": [{"type": "object"}] * 50}}, TOKEN_LIMITS)
    assert work.units(27_000) > 50 * 9_000


def test_patterns_count_by_weight_and_text() -> None:
    light = EvaluationWork.of({"pattern": "^ab$"}, TOKEN_LIMITS)
    heavy = EvaluationWork.of({"pattern": "^[a-z]{500}$"}, TOKEN_LIMITS)
    assert light.units(100_000) < heavy.units(100_000) / 100


def test_a_pattern_counts_as_often_as_it_is_referred_to() -> None:
    pattern = {"$defs": {"p": {"pattern": "^[a-z]{100}$"}}}
    once = EvaluationWork.of({**pattern, "allOf": [{"$ref": "#/$defs/p"}]}, TOKEN_LIMITS)
    often = EvaluationWork.of({**pattern, "allOf": [{"$ref": "#/$defs/p"}] * 20}, TOKEN_LIMITS)
    assert often.pattern_steps == 20 * once.pattern_steps
