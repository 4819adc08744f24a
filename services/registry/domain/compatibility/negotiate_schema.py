"""NegotiateSchema: checks whether a tool accepts an agent's arguments and returns the results that the agent reads.

An expectation is a schema. Its required properties must be met; the other properties are optional, and a tool that
lacks one of them is a partial match. An expectation that is not a plain object schema is required as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import JsonValue
from libs.common.json.schema_shape import Schema, SchemaShape
from libs.common.runtime.clock import Clock
from services.registry.domain.catalog.resolve_tool import resolve_tool
from services.registry.domain.compatibility.comparison import caller_schema
from services.registry.domain.compatibility.differences import (
    UNPROVEN,
    ChangeKind,
    Difference,
)
from services.registry.domain.compatibility.proof.budget import OverBudgetError
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword
from services.registry.domain.compatibility.schema_diff import SchemaDiff, close_schema
from services.registry.domain.model import VersionHead
from services.registry.domain.ports import Catalogue, SchemaChecker
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.rules.schemas import schema_violations

MOST_MISSING = 200
# Keywords of a plain object schema, whose properties can be checked one by one.
_PLAIN = frozenset({"type", "properties", "required", "additionalProperties", "unevaluatedProperties"})
_SPOKEN = frozenset(
    {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "examples", "default"}
)


class SchemaMatch(StrEnum):
    """How far a tool meets the expectations."""

    FULL = "full"
    PARTIAL = "partial"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class Expectations:
    """The schemas of the arguments and results that an agent expects. The flags tell an unset schema from `null`."""

    input: JsonValue
    output: JsonValue
    asks_input: bool
    asks_output: bool


@dataclass(frozen=True, slots=True)
class Negotiation:
    """The match, the version that was checked, and the differences."""

    match: SchemaMatch
    head: VersionHead
    missing: tuple[Difference, ...]


async def negotiate_schema(
    tool: str,
    constraint: str,
    expectations: Expectations,
    *,
    catalogue: Catalogue,
    schemas: SchemaChecker,
    clock: Clock,
) -> Negotiation:
    """Resolve the version, then compare. FULL and PARTIAL are proven; anything unproven is reported as missing."""
    version = await resolve_tool(tool, constraint, catalogue=catalogue, clock=clock)
    if version.manifest is None:
        raise ValueError("a version was resolved without its manifest")
    await asyncio.to_thread(_refuse_invalid, expectations, schemas)
    missing = await asyncio.to_thread(_missing, version.manifest, expectations, schemas)
    required = tuple(difference for difference in missing if difference.kind is ChangeKind.BREAKING)
    if required:
        return Negotiation(SchemaMatch.INCOMPATIBLE, version.head, required[:MOST_MISSING])
    match = SchemaMatch.PARTIAL if missing else SchemaMatch.FULL
    return Negotiation(match, version.head, tuple(missing[:MOST_MISSING]))


def _refuse_invalid(expectations: Expectations, schemas: SchemaChecker) -> None:
    violations: list[Violation] = []
    if expectations.asks_input:
        violations += schema_violations("input_schema", expectations.input, schemas)
    if expectations.asks_output:
        violations += schema_violations("output_schema", expectations.output, schemas)
    if violations:
        raise MeshError(Reason.INVALID_REQUEST, violations=violations)


def _missing(manifest: Manifest, expectations: Expectations, schemas: SchemaChecker) -> list[Difference]:
    diff = SchemaDiff(schemas)
    differences: list[Difference] = []
    if isinstance(expectations.input, dict) and expectations.asks_input:
        differences += _not_accepted(diff, expectations.input, caller_schema(manifest, schemas))
    if isinstance(expectations.output, dict) and expectations.asks_output:
        differences += _not_returned(diff, expectations.output, manifest.output["schema"])
    return differences


def _not_accepted(diff: SchemaDiff, expected: Schema, offered: Schema) -> Iterator[Difference]:
    """Yield arguments of the agent that the tool does not accept."""
    optional = _optional(expected)
    required_properties = {name: part for name, part in expected.get("properties", {}).items() if name not in optional}
    minimum = {**close_schema(expected), "properties": required_properties} if optional else close_schema(expected)
    for gap in _gaps(diff, minimum, offered):
        yield _difference("input", gap, ChangeKind.BREAKING, "the tool does not accept what the agent always sends")
    for name in optional:
        more = {**minimum, "properties": {**required_properties, name: expected["properties"][name]}}
        if _gaps(diff, more, offered):
            gap = UnprovenKeyword("/properties", "gone", name)
            yield _difference("input", gap, ChangeKind.ADDITIVE, "the tool does not accept this optional field")


def _not_returned(diff: SchemaDiff, expected: Schema, offered: Schema) -> Iterator[Difference]:
    """Yield fields that the agent reads and the tool does not return."""
    optional = _optional(expected)
    required_properties = {name: part for name, part in expected.get("properties", {}).items() if name not in optional}
    minimum = {**expected, "properties": required_properties} if optional else expected
    if optional:
        # A closed expectation would reject the optional fields as well as the unknown ones.
        minimum = {
            key: part for key, part in minimum.items() if key not in ("additionalProperties", "unevaluatedProperties")
        }
    for gap in _gaps(diff, offered, minimum):
        yield _difference("output", gap, ChangeKind.BREAKING, "the tool does not promise what the agent needs")
    declared = SchemaShape(offered).below()
    for name in optional:
        field = {**_definitions(expected), "properties": {name: expected["properties"][name]}}
        if ("properties", name) not in declared or _gaps(diff, offered, field):
            gap = UnprovenKeyword("/properties", "gone", name)
            yield _difference("output", gap, ChangeKind.ADDITIVE, "the tool does not return this optional field")


def _optional(expected: Schema) -> list[str]:
    """Return the optional properties; none where the expectation is not a plain object schema."""
    if any(keyword not in _PLAIN | _SPOKEN for keyword in expected) or expected.get("type") != "object":
        return []
    required = set(expected.get("required", ()))
    return [name for name in expected.get("properties", {}) if name not in required]


def _definitions(schema: Schema) -> dict[str, Any]:
    return {word: schema[word] for word in ("$defs", "definitions") if word in schema}


def _gaps(diff: SchemaDiff, narrower: Schema, wider: Schema) -> tuple[UnprovenKeyword, ...]:
    try:
        return diff.gaps(narrower, wider)
    except OverBudgetError:
        return (UnprovenKeyword("", "budget"),)


def _difference(side: str, gap: UnprovenKeyword, kind: ChangeKind, words: str) -> Difference:
    pointer = gap.pointer + pointer_of([gap.name]) if gap.name else gap.pointer
    message = f"{words}, or it {UNPROVEN}" if gap.keyword == "budget" else words
    return Difference(f"{side}#{pointer}", gap.keyword, kind, message)
