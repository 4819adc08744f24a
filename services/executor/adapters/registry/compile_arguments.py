"""How arguments are taken in, compiled from a manifest: coercion, inner defaults, internal fields, checks and policies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.json.json_pointer import EVERY, steps_of
from libs.common.json.jsonio import parse
from services.executor.adapters.registry.compile_coercion import Coercer
from services.executor.adapters.registry.json_schema import SchemaError, followed, input_contract
from services.executor.domain.argument_spec import ArgumentSpec, Fill, InnerDefault
from services.executor.domain.arguments.injection_policies import policies_of
from services.executor.domain.arguments.semantic_checks import check_of
from services.executor.domain.tool import Confinement

FACT = "x-mesh"
"""Marks a property of a runtime schema that the mesh sets, with the fact that it sets it to."""
FACTS = frozenset(
    {"tenant", "subject", "agent", "session_id", "task_id", "invocation_id", "idempotency_key", "trace_id"}
)
# Deeper than this a default is not looked for; a schema that refers to itself has no end.
_MAX_DEPTH = 8
_MAX_DEFAULTS = 256
_MAX_LOOKS = 10_000
# What a text could be read as.
_READABLE = frozenset({"integer", "number", "boolean", "array", "object"})
_MATCHED = {mpb.MATCH_TARGET_PATH: "path", mpb.MATCH_TARGET_URL: "url", mpb.MATCH_TARGET_COMMAND: "command"}


def intake_of(manifest: mpb.ToolManifest, confinement: Confinement) -> ArgumentSpec | None:
    """Return how arguments are taken in; None when the schema says it all. Raises SchemaError or ValueError for what cannot be kept, such as a
    semantic check that nobody knows: the version is then not to be called."""
    given = manifest.input
    schema = _parsed(given.schema)
    changes = given.mutation_policy in (mpb.INPUT_MUTATION_POLICY_DEFAULTS, mpb.INPUT_MUTATION_POLICY_HOOKS)
    matchers = [(_MATCHED[each.target], each.argument_pointer) for each in _matched(manifest)]
    declared = set(_declared(list(schema.values())))
    argument_spec = ArgumentSpec(
        coerce=Coercer(given.schema) if changes and declared & _READABLE else None,
        whole=changes and "integer" in declared,
        inner=tuple(islice(_inner(schema), _MAX_DEFAULTS)) if changes else (),
        internal=tuple(steps_of(pointer) for pointer in given.internal_only_fields),
        checks=tuple(check_of(text) for text in manifest.interface.semantic_checks),
        policies=policies_of(matchers, confinement),
        fills=_fills(given),
        call=input_contract(given.runtime_schema, ()).violations if given.runtime_schema else None,
    )
    return None if argument_spec == ArgumentSpec() else argument_spec


def _matched(manifest: mpb.ToolManifest) -> Iterator[mpb.PermissionMatcher]:
    return (each for each in manifest.interface.permission_matchers if each.target in _MATCHED)


def _parsed(schema: bytes) -> dict[str, Any]:
    parsed = parse(schema)
    if not isinstance(parsed, dict):
        raise SchemaError("the schema is not an object")
    return parsed


def _declared(schema: Any) -> Iterator[str]:
    """The types that a schema names anywhere; more rather than fewer, for a name in a value looks like one in a schema."""
    if isinstance(schema, list):
        for part in schema:
            yield from _declared(part)
    elif isinstance(schema, dict):
        types = schema.get("type", ())
        yield from [types] if isinstance(types, str) else [each for each in types if isinstance(each, str)]
        yield from _declared(list(schema.values()))


def _inner(root: dict[str, Any]) -> Iterator[InnerDefault]:
    """The defaults below the top level, outer ones first. Followed through properties, items and references: what always applies. What
    applies only sometimes (`anyOf`, `if`) fills nothing in. Level by level and only so far: a schema whose parts refer to itself unfolds
    to more places than anybody could ever look at, and whoever registers it must not keep everybody else waiting."""
    looks = 0
    waiting: deque[tuple[dict[str, Any], tuple[str, ...]]] = deque([(followed(root, root), ())])
    while waiting:
        schema, parent = waiting.popleft()
        for name, part in _below(schema):
            looks += 1
            if looks > _MAX_LOOKS:
                return
            found = followed(root, part)
            if parent and name is not None and "default" in found:
                yield InnerDefault(parent, name, found["default"])
            if name != EVERY and len(parent) < _MAX_DEPTH:
                waiting.append((found, (*parent, EVERY if name is None else name)))


def _below(schema: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """The parts of a schema one level down, by name; None stands for every entry of a list."""
    properties, items = schema.get("properties"), schema.get("items")
    yield from properties.items() if isinstance(properties, dict) else ()
    if isinstance(items, dict) and "prefixItems" not in schema:
        yield None, items


def _fills(given: mpb.InputContract) -> tuple[Fill, ...]:
    """What the mesh sets: internal-only arguments at the top level that the runtime schema gives a fact or a default."""
    if not given.runtime_schema:
        return ()
    properties = _parsed(given.runtime_schema).get("properties", {})
    internal = {steps[0] for pointer in given.internal_only_fields if len(steps := steps_of(pointer)) == 1}
    found = []
    for name in sorted(internal & properties.keys()):
        part = properties[name] if isinstance(properties[name], dict) else {}
        fact = part.get(FACT, "")
        if fact and fact not in FACTS:
            raise ValueError(f"`{FACT}` names no fact of a call")
        if fact or "default" in part:
            found.append(Fill(name, fact, part.get("default"), "default" in part))
    return tuple(found)
