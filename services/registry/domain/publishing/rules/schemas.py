"""Admission rules for schemas: valid, strict and bounded schemas, and examples that match them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice

from libs.common.errors import Violation
from libs.common.json.jsonio import JsonValue
from libs.common.json.schema_guard import TOOL_LIMITS, schema_problems
from libs.common.json.schema_shape import SchemaShape
from services.registry.domain.compatibility.comparison import caller_schema
from services.registry.domain.ports import Finding, SchemaChecker
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.nested_objects import closing_keyword, open_objects
from services.registry.domain.publishing.token_costs import COST_KEYWORD, MAX_TOKEN_COST, is_token_cost

# One more than is admitted: enough to know that a schema is too large.
_MOST = TOOL_LIMITS.subschemas + 1
# More say nothing more.
_MOST_OBJECTS = 20
_OR_ANY = ', or "additionalProperties": true if any name is meant'
_INPUT, _RUNTIME = "manifest.input.schema", "manifest.input.runtime_schema"
_OUTPUT, _ERROR = "manifest.output.schema", "manifest.output.error_schema"


def check_schemas(manifest: Manifest, checker: SchemaChecker) -> Iterator[Violation]:
    """Require every schema to be a self-contained JSON Schema 2020-12 with bounded evaluation."""
    for path, schema in _schemas(manifest).items():
        yield from schema_violations(path, schema, checker)


def schema_violations(path: str, schema: JsonValue, checker: SchemaChecker) -> Iterator[Violation]:
    """Yield why a value is not a self-contained schema with bounded evaluation."""
    if isinstance(schema, dict):
        problems = [*schema_problems(schema, TOOL_LIMITS)]
        yield from (Violation(path + fragment, rule, message) for fragment, rule, message in problems)
        if problems:
            # Validating or compiling an unbounded schema may never end.
            return
    elif isinstance(schema, bool):
        yield Violation(path, "schema.object", "must be a JSON object")
    for finding in checker.schema_findings(schema):
        yield _inside(path, "schema", finding)


def require_object_input(manifest: Manifest) -> Iterator[Violation]:
    """Require input schemas of type object, because arguments are named."""
    for path in (_INPUT, _RUNTIME):
        schema = _schemas(manifest).get(path, {"type": "object"})
        if isinstance(schema, dict) and schema.get("type") != "object":
            yield Violation(path, "schema.type", 'must say "type": "object"')


def require_strict_input(manifest: Manifest) -> Iterator[Violation]:
    """Refuse schemas that explicitly allow undeclared arguments, which the mesh rejects. Unset keywords are fine."""
    for path in (_INPUT, _RUNTIME):
        schema = _schemas(manifest).get(path)
        for part in SchemaShape(schema, _MOST).in_place() if isinstance(schema, dict) else ():
            for keyword in ("additionalProperties", "unevaluatedProperties"):
                if part.get(keyword) in (True, {}):
                    yield Violation(path, "schema.strict", f"{keyword} allows undeclared arguments")


def require_strict_objects(manifest: Manifest, checker: SchemaChecker) -> Iterator[Violation]:
    """Require objects inside of arguments to say which names they take: JSON Schema would take any."""
    for path in (_INPUT, _RUNTIME):
        schema = _schemas(manifest).get(path)
        if schema is None or any(schema_violations(path, schema, checker)):
            continue
        for pointer, part in islice(open_objects(schema), _MOST_OBJECTS):
            [(keyword, value)] = closing_keyword(part).items()
            message = f'takes names that it does not list; write "{keyword}": {json.dumps(value)} into it'
            yield Violation(f"{path}#{pointer}", "schema.open_object", f"{message}{_OR_ANY if not value else ''}")


def check_internal_fields(manifest: Manifest) -> Iterator[Violation]:
    """Refuse internal fields in the schema that models see."""
    schema, pointers = manifest.input.get("schema"), manifest.input.get("internal_only_fields", ())
    shape = SchemaShape(schema if isinstance(schema, dict) else {}, _MOST)
    for index, pointer in enumerate(pointers if len(shape.subschemas) <= TOOL_LIMITS.subschemas else ()):
        if shape.declares(pointer):
            path = f"manifest.input.internal_only_fields[{index}]"
            yield Violation(path, "input.internal", "appears in the model-facing schema")


def check_token_costs(manifest: Manifest) -> Iterator[Violation]:
    """Require whole numbers as stated costs of properties."""
    schema = manifest.input.get("schema")
    shape = SchemaShape(schema if isinstance(schema, dict) else {}, _MOST)
    for pointer, part in shape.subschemas.items():
        if COST_KEYWORD in part and not is_token_cost(part[COST_KEYWORD]):
            message = f"is no whole number from 0 to {MAX_TOKEN_COST}"
            yield Violation(f"{_INPUT}#{pointer}/{COST_KEYWORD}", "schema.token_cost", message)


def check_pagination(manifest: Manifest) -> Iterator[Violation]:
    """Require a paginated result to declare its cursor fields."""
    schema = manifest.output.get("schema")
    if not manifest.output.get("paginated") or not isinstance(schema, dict):
        return
    for field in ("cursor", "has_more"):
        if not SchemaShape(schema, _MOST).declares(f"/{field}"):
            yield Violation(_OUTPUT, "output.pages", f"a paginated result declares `{field}`")


def check_examples(manifest: Manifest, checker: SchemaChecker) -> Iterator[Violation]:
    """Check every example against the contract, as strictly as a call. Skipped while the schemas are invalid."""
    if any(check_schemas(manifest, checker)):
        return
    strict = caller_schema(manifest, checker)
    for index, example in enumerate(manifest.examples):
        path = f"manifest.input.examples[{index}]"
        for finding in checker.value_findings(strict, example.arguments):
            yield _inside(f"{path}.arguments", "example", finding)
        if example.has_result:
            for finding in checker.value_findings(manifest.output["schema"], example.result):
                yield _inside(f"{path}.result", "example", finding)


def _schemas(manifest: Manifest) -> Mapping[str, JsonValue]:
    places = {
        _INPUT: (manifest.input, "schema"),
        _RUNTIME: (manifest.input, "runtime_schema"),
        _OUTPUT: (manifest.output, "schema"),
        _ERROR: (manifest.output, "error_schema"),
    }
    return {path: part[field] for path, (part, field) in places.items() if field in part}


def _inside(path: str, kind: str, finding: Finding) -> Violation:
    place = f"{path}#{finding.pointer}" if finding.pointer else path
    return Violation(place, f"{kind}.{finding.keyword}", finding.message)
