"""The stated costs of properties in a model's context, `x-token-cost`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from libs.common.json.schema_shape import SchemaShape
from services.registry.domain.publishing.manifest import Manifest

COST_KEYWORD = "x-token-cost"
MAX_TOKEN_COST = 1_000_000


def is_token_cost(value: Any) -> bool:
    """Return whether a value is a cost that a property may state."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_COST


def stated_token_cost(manifest: Manifest) -> int:
    """Return the sum of the costs that the input schema states, at most the greatest that one property may state."""
    schema = manifest.input.get("schema")
    if not isinstance(schema, dict):
        return 0
    costs: Iterator[int] = (
        part[COST_KEYWORD] for part in SchemaShape(schema).subschemas.values() if COST_KEYWORD in part
    )
    return min(sum(cost for cost in costs if is_token_cost(cost)), MAX_TOKEN_COST)
