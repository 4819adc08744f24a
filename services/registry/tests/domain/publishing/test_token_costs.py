"""The costs that properties state."""

from __future__ import annotations

from typing import Any

from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.token_costs import COST_KEYWORD, MAX_TOKEN_COST, stated_token_cost


def cost_of(schema: Any) -> int:
    return stated_token_cost(Manifest({"input": {"schema": schema}}))


def test_the_costs_of_all_properties_are_added() -> None:
    inner = {"type": "object", "properties": {"b": {COST_KEYWORD: 5}}, COST_KEYWORD: 20}
    assert cost_of({"type": "object", "properties": {"a": inner, "c": {}}, "$defs": {"d": {COST_KEYWORD: 1}}}) == 26
    # The name of an argument is no statement about it.
    assert cost_of({"properties": {COST_KEYWORD: {"type": "integer"}}}) == 0


def test_the_sum_is_bounded_and_what_states_no_cost_counts_nothing() -> None:
    assert cost_of({"allOf": [{COST_KEYWORD: MAX_TOKEN_COST}, {COST_KEYWORD: MAX_TOKEN_COST}]}) == MAX_TOKEN_COST
    for value in (-1, True, "5", 1.5, None, MAX_TOKEN_COST + 1):
        assert cost_of({COST_KEYWORD: value}) == 0
    assert cost_of(None) == cost_of(True) == 0
