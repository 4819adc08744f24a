"""Compares two manifests: all differences and the smallest legal version bump."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from libs.common.json.schema_shape import Schema
from services.registry.domain.compatibility import contract_diff as contract
from services.registry.domain.compatibility.differences import ChangeKind, Difference, Side
from services.registry.domain.compatibility.schema_diff import SchemaDiff, close_schema, with_defaults_applied
from services.registry.domain.compatibility.version_bumps import Bump, smallest_bump
from services.registry.domain.ports import SchemaChecker
from services.registry.domain.publishing.manifest import Document, Manifest

_ORDER = {ChangeKind.BREAKING: 0, ChangeKind.ADDITIVE: 1, ChangeKind.NEUTRAL: 2}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two manifests, breaking ones first."""

    differences: tuple[Difference, ...]

    @property
    def bump(self) -> Bump:
        return smallest_bump(self.differences)


def compare(old: Manifest, new: Manifest, checker: SchemaChecker) -> Comparison:
    """Compare two manifests with valid schemas. The work is bounded for any input."""
    differences = dict.fromkeys([*_schemas(old, new, checker), *contract.differences(old, new)])
    return Comparison(tuple(sorted(differences, key=lambda difference: _ORDER[difference.kind])))


def _schemas(old: Manifest, new: Manifest, checker: SchemaChecker) -> Iterator[Difference]:
    diff = SchemaDiff(checker)
    before, after = caller_schema(old, checker), caller_schema(new, checker)
    yield from diff.differences("manifest.input.schema", Side.INPUT, before, after)
    if "runtime_schema" in old.input or "runtime_schema" in new.input:
        before, after = close_schema(_runtime(old.input)), close_schema(_runtime(new.input))
        yield from diff.differences("manifest.input.runtime_schema", Side.INPUT, before, after)
    yield from diff.differences("manifest.output.schema", Side.OUTPUT, old.output["schema"], new.output["schema"])
    if "error_schema" in old.output or "error_schema" in new.output:
        errors = (old.output.get("error_schema", {}), new.output.get("error_schema", {}))
        yield from diff.differences("manifest.output.error_schema", Side.OUTPUT, *errors)


def caller_schema(manifest: Manifest, checker: SchemaChecker) -> Schema:
    """Return the schema of the arguments that callers send: closed, and without fields that have applied defaults."""
    schema = close_schema(manifest.input["schema"])
    return (
        with_defaults_applied(schema, checker) if manifest.input.get("mutation_policy") in contract.FILLING else schema
    )


def _runtime(part: Document) -> Any:
    """Return the schema of the arguments that the runner receives, without requiring fields that the mesh adds."""
    schema = part.get("runtime_schema", part["schema"])
    internal = {pointer[1:] for pointer in part.get("internal_only_fields", ())}
    return {**schema, "required": [name for name in schema.get("required", ()) if name not in internal]}
