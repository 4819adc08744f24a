"""Argument constraints of tokens: JSON Schemas, compiled once, that fetch nothing and never repeat a value."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import orjson

# More constraints than this in use at once are compiled again now and then.
_REMEMBERED = 1024


class ConstraintError(ValueError):
    """A constraint that is no JSON Schema, or one that would need another document."""


class ConstraintChecker:
    """Holds arguments against constraints; an instance is a `Satisfies`."""

    def __init__(self) -> None:
        self._compiled: dict[bytes, Any] = {}

    def __call__(self, schema: bytes, arguments: Any) -> str | None:
        """Return None if the arguments satisfy the schema, else the JSON pointer of the first part that does not."""
        try:
            validator = self._validator(schema)
        except ConstraintError:
            # Nobody minted it like this. What cannot be checked is not satisfied.
            return ""
        if validator.is_valid(arguments):
            return None
        error = next(iter(validator.iter_errors(arguments)), None)
        return _pointer(error.instance_path) if error is not None else ""

    def _validator(self, schema: bytes) -> Any:
        found = self._compiled.get(schema)
        if found is None:
            found = compiled(schema)
            if len(self._compiled) >= _REMEMBERED:
                self._compiled.clear()
            self._compiled[schema] = found
        return found


def compiled(schema: bytes) -> Any:
    """Return the validator of a constraint, or raise ConstraintError."""
    try:
        return jsonschema_rs.Draft202012Validator(
            orjson.loads(schema), validate_formats=True, offline=True, mask="the value"
        )
    except ValueError as error:
        # The library's text quotes the schema, so it is not passed on.
        raise ConstraintError("is not a JSON Schema that can be checked here") from error


def _pointer(path: Any) -> str:
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in path)
