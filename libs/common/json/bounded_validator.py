"""Compiles JSON Schemas from outside: offline, with linear-time patterns, and without values in messages."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from libs.common.json.schema_guard import SchemaLimits, schema_problems
from libs.common.json.schema_shape import Schema

MASK = "the value"
# The engine without look-around and back-references: no text makes a pattern backtrack.
LINEAR_PATTERNS = jsonschema_rs.RegexOptions(size_limit=10 * 1024 * 1024, dfa_size_limit=2 * 1024 * 1024)


class SchemaCompilationError(ValueError):
    """The schema is not valid, or exceeds its limits."""


def compile_bounded(schema: Schema, limits: SchemaLimits, **options: Any) -> Any:
    """Return the validator of a schema. Raises SchemaCompilationError, without compiling a schema beyond its limits."""
    problem = next(schema_problems(schema, limits), None)
    if problem is not None:
        raise SchemaCompilationError(f"{problem.rule}{problem.fragment}: {problem.message}")
    return compile_linear(dict(schema), **options)


def compile_linear(schema: Any, **options: Any) -> Any:
    """Return the validator of a schema that was found to be bounded. Raises SchemaCompilationError."""
    try:
        # Always this draft: under an older `$schema`, keywords have other meanings.
        return jsonschema_rs.Draft202012Validator(
            schema, validate_formats=True, offline=True, mask=MASK, pattern_options=LINEAR_PATTERNS, **options
        )
    except ValueError as error:
        raise SchemaCompilationError(str(error)[:300]) from error
