"""Checks the argument constraints of tokens: JSON Schemas, compiled once. They fetch nothing and quote no value.

The deriver of a token chooses its constraints, and every call with it evaluates them on an event loop. So a schema is
bounded before it is compiled, when the token is minted and again when it is used, and so is its work on the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import orjson

from libs.common.auth.claims import MAX_CONSTRAINT_BYTES, MAX_CONSTRAINTS_COST
from libs.common.errors import MeshError
from libs.common.json.bounded_validator import SchemaCompilationError, compile_linear
from libs.common.json.evaluation_work import EvaluationWork
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import parse_object
from libs.common.json.schema_guard import TOKEN_LIMITS, schema_problems
from libs.common.runtime.bounded_cache import BoundedCache

# About 50 ms. Explaining a violation is up to a hundred times as much work as finding it.
MAX_UNITS, MAX_EXPLAINED_UNITS = 1_000_000, 10_000
_MAX_KNOWN = 1024


class ConstraintError(ValueError):
    """The constraint is not a JSON Schema, refers to another document, or is not bounded."""


class Constraint:
    """A bounded schema of a token, compiled when it is first needed."""

    def __init__(self, schema: bytes) -> None:
        """Raises ConstraintError."""
        try:
            self._schema = parse_object(schema, max_bytes=MAX_CONSTRAINT_BYTES) if schema else {}
        except MeshError:
            raise ConstraintError("is not a JSON object, or too large") from None
        problem = next(schema_problems(self._schema, TOKEN_LIMITS), None)
        if problem is not None or not schema:
            raise ConstraintError(problem.message if problem else "is empty")
        self.work = EvaluationWork.of(self._schema, TOKEN_LIMITS)
        self.cost = self.work.evaluations + self.work.pattern_steps

    @cached_property
    def validator(self) -> Any:
        """The validator. Raises ConstraintError for a schema that is not valid."""
        try:
            return compile_linear(self._schema)
        except SchemaCompilationError as error:
            raise ConstraintError("is not a JSON Schema") from error


class ConstraintChecker:
    """Checks arguments against constraints; an instance is a `Satisfies`."""

    def __init__(self) -> None:
        self._known: BoundedCache[bytes, Constraint] = BoundedCache(_MAX_KNOWN)

    def __call__(self, schemas: Sequence[bytes], arguments: Any) -> str | None:
        """Return None if the arguments satisfy all schemas, else the JSON pointer of the first part that does not.

        The work of all schemas together is bounded; arguments that are too large for it do not satisfy them.
        """
        try:
            return self._first_violation(schemas, arguments)
        except ConstraintError:
            # An earlier issuer may have minted it. What cannot be checked is not satisfied.
            return ""

    def _first_violation(self, schemas: Sequence[bytes], arguments: Any) -> str | None:
        constraints = [self._constraint(schema) for schema in schemas]
        size = len(orjson.dumps(arguments))
        units = sum(constraint.work.units(size) for constraint in constraints)
        if units > MAX_UNITS or sum(constraint.cost for constraint in constraints) > MAX_CONSTRAINTS_COST:
            return ""
        for constraint in constraints:
            if not constraint.validator.is_valid(arguments):
                return _pointer_of_violation(constraint.validator, arguments) if units <= MAX_EXPLAINED_UNITS else ""
        return None

    def _constraint(self, schema: bytes) -> Constraint:
        return self._known.get(schema) or self._known.put(schema, Constraint(schema))


def constraint_cost(schema: bytes) -> int:
    """Return the cost of a constraint that can be checked, for a sum of at most `MAX_CONSTRAINTS_COST`. Raises
    ConstraintError."""
    constraint = Constraint(schema)
    assert constraint.validator is not None
    return constraint.cost


def _pointer_of_violation(validator: Any, arguments: Any) -> str:
    error = next(iter(validator.iter_errors(arguments)), None)
    return pointer_of(error.instance_path) if error is not None else ""
