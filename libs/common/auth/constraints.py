"""Checks the argument constraints of tokens: JSON Schemas, compiled once. They fetch nothing and quote no value."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import orjson

from libs.common.json.json_pointer import pointer_of
from libs.common.runtime.bounded_cache import BoundedCache

_MAX_COMPILED = 1024


class ConstraintError(ValueError):
    """The constraint is not a JSON Schema, or refers to another document."""


class ConstraintChecker:
    """Checks arguments against constraints; an instance is a `Satisfies`."""

    def __init__(self) -> None:
        self._compiled: BoundedCache[bytes, Any] = BoundedCache(_MAX_COMPILED)

    def __call__(self, schema: bytes, arguments: Any) -> str | None:
        """Return None if the arguments satisfy the schema, else the JSON pointer of the first part that does not."""
        try:
            validator = self._validator(schema)
        except ConstraintError:
            # The issuer mints no such constraint. What cannot be checked is not satisfied.
            return ""
        if validator.is_valid(arguments):
            return None
        error = next(iter(validator.iter_errors(arguments)), None)
        return pointer_of(error.instance_path) if error is not None else ""

    def _validator(self, schema: bytes) -> Any:
        validator = self._compiled.get(schema)
        return validator if validator is not None else self._compiled.put(schema, compiled(schema))


def compiled(schema: bytes) -> Any:
    """Return the validator of a constraint, or raise ConstraintError."""
    try:
        return jsonschema_rs.Draft202012Validator(
            orjson.loads(schema), validate_formats=True, offline=True, mask="the value"
        )
    except ValueError as error:
        # The library's text quotes the schema, so it is not passed on.
        raise ConstraintError("is not a JSON Schema that can be checked here") from error
