"""Compares JSON values as JSON Schema does: 1 equals 1.0, and 1 does not equal true."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

KINDS = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})
"""The JSON types with `number` split into integers and fractions, so that no two overlap."""


def kinds_of(types: Any) -> frozenset[str]:
    """Return the kinds that a `type` keyword allows."""
    named = [types] if isinstance(types, str) else types
    kinds = {kind for kind in named if kind != "number"}
    return frozenset(kinds | ({"integer", "fraction"} if "number" in named else set()))


def kind_of(value: Any) -> str:
    """Return the kind of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    return {float: "fraction", str: "string", list: "array"}.get(type(value), "object")


def identity(value: Any) -> Hashable:
    """Return a hashable key that is equal for equal values only."""
    if isinstance(value, list):
        return ("array", tuple(identity(item) for item in value))
    if isinstance(value, dict):
        return ("object", frozenset((key, identity(item)) for key, item in value.items()))
    if value is None or isinstance(value, bool):
        return ("word", value)
    return ("text" if isinstance(value, str) else "number", value)
