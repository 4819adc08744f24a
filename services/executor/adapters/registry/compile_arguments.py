"""Compiles a manifest's argument rules: coercion, nested defaults, internal fields, checks and policies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.json.json_pointer import EVERY, steps_of
from libs.common.json.jsonio import parse
from services.executor.adapters.registry.compile_coercion import Coercer
from services.executor.adapters.registry.json_schema import SchemaError, input_contract, resolve_refs
from services.executor.domain.argument_spec import ArgumentSpec, Fill, InnerDefault
from services.executor.domain.arguments.injection_policies import policies_of
from services.executor.domain.arguments.semantic_checks import check_of
from services.executor.domain.tool import Confinement

FACT = "x-mesh"
"""The keyword of a runtime schema that names the fact with which the mesh fills a property."""
FACTS = frozenset(
    {"tenant", "subject", "agent", "session_id", "task_id", "invocation_id", "idempotency_key", "trace_id"}
)
# Defaults are searched only to this depth, because a recursive schema has no end.
_MAX_DEPTH = 8
_MAX_DEFAULTS = 256
_MAX_VISITED = 10_000
# Types that a string may be coerced to.
_COERCIBLE = frozenset({"integer", "number", "boolean", "array", "object"})
_TARGETS = {mpb.MATCH_TARGET_PATH: "path", mpb.MATCH_TARGET_URL: "url", mpb.MATCH_TARGET_COMMAND: "command"}


def compile_arguments(manifest: mpb.ToolManifest, confinement: Confinement) -> ArgumentSpec | None:
    """Return the argument rules; None if the schema alone suffices.

    Raises SchemaError or ValueError for an unsupported rule, such as an unknown semantic check: the version cannot be
    called then.
    """
    contract = manifest.input
    schema = _parse_schema(contract.schema)
    may_change = contract.mutation_policy in (mpb.INPUT_MUTATION_POLICY_DEFAULTS, mpb.INPUT_MUTATION_POLICY_HOOKS)
    matchers = [
        (_TARGETS[matcher.target], matcher.argument_pointer)
        for matcher in manifest.interface.permission_matchers
        if matcher.target in _TARGETS
    ]
    declared = set(_declared_types(list(schema.values())))
    argument_spec = ArgumentSpec(
        coerce=Coercer(contract.schema).coerce if may_change and declared & _COERCIBLE else None,
        whole=may_change and "integer" in declared,
        inner=tuple(islice(_nested_defaults(schema), _MAX_DEFAULTS)) if may_change else (),
        internal=tuple(steps_of(pointer) for pointer in contract.internal_only_fields),
        checks=tuple(check_of(text) for text in manifest.interface.semantic_checks),
        policies=policies_of(matchers, confinement),
        fills=_fills(contract),
        call=input_contract(contract.runtime_schema, ()).violations if contract.runtime_schema else None,
    )
    return None if argument_spec == ArgumentSpec() else argument_spec


def _parse_schema(schema: bytes) -> dict[str, Any]:
    parsed = parse(schema)
    if not isinstance(parsed, dict):
        raise SchemaError("the schema is not an object")
    return parsed


def _declared_types(schema: Any) -> Iterator[str]:
    """Yield the types that a schema declares anywhere. May yield too many, because values are searched too."""
    if isinstance(schema, list):
        for part in schema:
            yield from _declared_types(part)
    elif isinstance(schema, dict):
        types = schema.get("type", ())
        yield from [types] if isinstance(types, str) else [name for name in types if isinstance(name, str)]
        yield from _declared_types(list(schema.values()))


def _nested_defaults(root: dict[str, Any]) -> Iterator[InnerDefault]:
    """Yield the defaults below the top level, outer ones first.

    Only subschemas that always apply are searched: properties, items and references, not `anyOf` or `if`. The search is
    breadth first and bounded, because a recursive schema unfolds without end and must not block the process.
    """
    visited = 0
    waiting: deque[tuple[dict[str, Any], tuple[str, ...]]] = deque([(resolve_refs(root, root), ())])
    while waiting:
        schema, parent = waiting.popleft()
        for name, part in _children(schema):
            visited += 1
            if visited > _MAX_VISITED:
                return
            child = resolve_refs(root, part)
            if parent and name is not None and "default" in child:
                yield InnerDefault(parent, name, child["default"])
            if name != EVERY and len(parent) < _MAX_DEPTH:
                waiting.append((child, (*parent, EVERY if name is None else name)))


def _children(schema: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """Yield the subschemas one level down by name; None stands for the items of a list."""
    properties, items = schema.get("properties"), schema.get("items")
    yield from properties.items() if isinstance(properties, dict) else ()
    if isinstance(items, dict) and "prefixItems" not in schema:
        yield None, items


def _fills(contract: mpb.InputContract) -> tuple[Fill, ...]:
    """Return the internal top-level arguments for which the runtime schema names a fact or a default."""
    if not contract.runtime_schema:
        return ()
    properties = _parse_schema(contract.runtime_schema).get("properties", {})
    internal = {steps[0] for pointer in contract.internal_only_fields if len(steps := steps_of(pointer)) == 1}
    fills = []
    for name in sorted(internal & properties.keys()):
        part = properties[name] if isinstance(properties[name], dict) else {}
        fact = part.get(FACT, "")
        if fact and fact not in FACTS:
            raise ValueError(f"`{FACT}` names no fact of a call")
        if fact or "default" in part:
            fills.append(Fill(name, fact, part.get("default"), "default" in part))
    return tuple(fills)
