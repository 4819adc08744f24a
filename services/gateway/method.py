"""A JSON-RPC method and its parameters, as a caller sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.gateway.domain.rate_limits import Rate

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: its name, what it means, and the JSON Schema of its value."""

    name: str
    description: str
    schema: Schema
    required: bool = False


@dataclass(frozen=True, slots=True)
class Method:
    """One method as a caller sees it."""

    name: str
    summary: str
    result: str
    params: tuple[Param, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """The policy of one method."""

    deadline: float
    """Seconds a call may take when its caller names no deadline."""
    idempotent: bool
    """True if repeating the call has no further effect."""
    rate: Rate | None = None
    """How often a caller may make the call, beside the edge's rate for everything."""
    counted_by: str = ""
    """The parameter whose entries are counted, where a call stands for several."""


def text(highest: int, *, lowest: int = 0, pattern: str = "") -> Schema:
    """Return the schema of a string."""
    schema: dict[str, Any] = {"type": "string", "maxLength": highest}
    if lowest:
        schema["minLength"] = lowest
    if pattern:
        schema["pattern"] = pattern
    return schema
