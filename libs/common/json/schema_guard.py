"""Bounds what a JSON Schema from outside can cost, before anything compiles or evaluates it.

Used wherever a schema is accepted (tool manifests, argument constraints of tokens) and again where it is compiled,
because what was accepted earlier may be older than a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urljoin

from libs.common.json.pattern_weight import MAX_WEIGHT, weight
from libs.common.json.schema_recursion import visits_of_one_part
from libs.common.json.schema_shape import Schema, SchemaShape, references

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """The most that one schema may have or take."""

    subschemas: int
    evaluations: int
    """Subschemas visited and values compared for one value, with all references followed."""
    visits: int
    """Visits of one part of a value by recursion."""
    pattern_weight: int
    """All regular expressions together; compiling takes about a millisecond per 50."""


TOOL_LIMITS = SchemaLimits(subschemas=5_000, evaluations=100_000, visits=1_000, pattern_weight=20_000)
# Constraints are evaluated on event loops, for every call.
TOKEN_LIMITS = SchemaLimits(subschemas=500, evaluations=5_000, visits=16, pattern_weight=1_000)


class Problem(NamedTuple):
    """Why a schema is refused, and where in it."""

    fragment: str
    """`#` with the JSON Pointer of a subschema; empty for the schema as a whole."""
    rule: str
    message: str


def schema_problems(schema: Schema, limits: SchemaLimits) -> Iterator[Problem]:
    """Yield why a schema is not self-contained with bounded evaluation. It need not be valid."""
    shape = SchemaShape(schema, limits.subschemas + 1)
    if len(shape.subschemas) > limits.subschemas:
        yield Problem("", "schema.size", f"has more than {limits.subschemas} subschemas")
        return
    costly = [*_size_problems(shape, limits), *_pattern_problems(shape, limits)]
    # Further checks of an oversized schema are not worth their cost.
    yield from costly or _reference_problems(shape)


def _size_problems(shape: SchemaShape, limits: SchemaLimits) -> Iterator[Problem]:
    if shape.circular():
        yield Problem("", "schema.circular", "a subschema applies itself to the same value, without end")
    elif shape.evaluations(limits.evaluations, evaluation_cost) >= limits.evaluations:
        yield Problem("", "schema.size", f"takes {limits.evaluations} or more steps to evaluate")
    elif visits_of_one_part(shape, limits.visits) >= limits.visits:
        message = "a recursive subschema applies itself to one part in several branches, so its cost doubles with depth"
        yield Problem("", "schema.recursion", message)


def evaluation_cost(schema: Schema) -> int:
    """Return the steps of one schema object without its subschemas: one, and the parts of the values it lists."""
    cost, waiting = 1, [schema.get("enum"), schema.get("const"), schema.get("required")]
    while waiting:
        value = waiting.pop()
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        cost += len(parts)
        waiting.extend(part for part in parts if isinstance(part, dict | list))
    return cost


def _pattern_problems(shape: SchemaShape, limits: SchemaLimits) -> Iterator[Problem]:
    left = limits.pattern_weight
    patterns = (
        (f"{at}/{keyword}", text) for at, part in shape.subschemas.items() for keyword, text in patterns_of(part)
    )
    for pointer, pattern in patterns:
        cost = weight(pattern)
        if cost is None:
            yield Problem(f"#{pointer}", "schema.pattern", "uses lookaround or backreferences, which are unbounded")
            continue
        left -= cost
        if cost > MAX_WEIGHT:
            yield Problem(f"#{pointer}", "schema.pattern", "is too expensive to match")
        elif left < 0:
            yield Problem(f"#{pointer}", "schema.pattern", "is one of too many expensive patterns")
            return


def _reference_problems(shape: SchemaShape) -> Iterator[Problem]:
    if shape.root.get("$schema", DIALECT) not in (DIALECT, DIALECT + "#"):
        yield Problem("", "schema.dialect", "is not of JSON Schema 2020-12")
    for pointer, schema in shape.subschemas.items():
        if pointer and "$id" in schema:
            yield Problem(f"#{pointer}", "schema.identity", "a subschema may not have `$id`")
        for reference in references(schema):
            if (message := _reference_problem(shape, reference)) is not None:
                yield Problem(f"#{pointer}", "schema.reference", message)


def _reference_problem(shape: SchemaShape, reference: str) -> str | None:
    """Return why a reference is refused, with what to write instead; None if it is not."""
    local = reference if reference.startswith("#") else _local_form(shape.root.get("$id"), reference)
    if local is None:
        return "refers outside the schema; copy the target into `$defs` and refer to it there with `#/$defs/...`"
    if shape.target(local) is None:
        return "refers to no subschema of the schema"
    if local != reference:
        return f"refers to the schema by its `$id`, which is not resolved; write `{local}`"
    return None


def _local_form(identity: object, reference: str) -> str | None:
    """Return a reference as a fragment of the schema if its address is the schema's own `$id`; None otherwise."""
    if not isinstance(identity, str):
        return None
    own = identity.partition("#")[0]
    try:
        document, _, fragment = urljoin(own, reference).partition("#")
    except ValueError:
        return None
    return f"#{fragment}" if own and document == own else None


def patterns_of(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the regular expressions of one schema object, each with its keyword."""
    if isinstance(schema.get("pattern"), str):
        yield "pattern", schema["pattern"]
    named = schema.get("patternProperties")
    for pattern in named if isinstance(named, dict) else ():
        yield "patternProperties", pattern
