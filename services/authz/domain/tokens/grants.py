"""Checks of requested claims that the rules of the contract cannot express. Shared by all use cases that mint
tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from libs.common.auth.claims import (
    MAX_ALL_CONSTRAINTS_BYTES,
    MAX_CONSTRAINT_BYTES,
    MAX_CONSTRAINTS,
    MAX_CONSTRAINTS_COST,
)
from libs.common.auth.identity import ArgumentConstraint, Grant
from libs.common.errors import MeshError, Violation
from libs.common.json.canonical import canonical
from libs.common.json.jsonio import parse_object
from libs.common.semver import Constraint
from libs.common.tool_names import ToolName, is_pattern
from services.authz.domain.errors import grant_refused

ConstraintCost = Callable[[bytes], int]
"""Returns the cost of checking a JSON Schema. Raises ValueError for one that verifiers refuse: invalid or unbounded."""


def tool_violations(tools: Sequence[Grant]) -> Iterator[Violation]:
    """Yield the problems of tool grants."""
    for index, grant in enumerate(tools):
        path = f"tools[{index}]"
        yield from _pattern_violations(grant.tool, path)
        if grant.version_constraint.strip() == "latest":
            # Verifiers do not know the latest version, so the grant would mean any version.
            message = "a token cannot follow the latest version; leave it empty for any version, or name a range"
            yield Violation(f"{path}.version_constraint", "grant.version", message)
        elif not _is_constraint(grant.version_constraint):
            yield Violation(f"{path}.version_constraint", "grant.version", "is not a version constraint")


def audience_violations(audiences: Sequence[str]) -> Iterator[Violation]:
    """Yield the problems of audiences."""
    for index, audience in enumerate(audiences):
        if not audience:
            yield Violation(f"audiences[{index}]", "audience.empty", "an audience must have a name")


def lifetime_violations(lifetime: float | None, maximum: int) -> Iterator[Violation]:
    """Yield the problems of a lifetime."""
    if lifetime is not None and not 1 <= lifetime <= maximum:
        yield Violation("lifetime", "lifetime.limit", f"must be between 1 and {maximum} seconds")


def parse_constraints(
    requested: Sequence[ArgumentConstraint],
    cost_of: ConstraintCost,
    *,
    inherited: Sequence[ArgumentConstraint] = (),
    path: str = "argument_constraints",
) -> tuple[ArgumentConstraint, ...]:
    """Return the inherited constraints followed by the requested ones with canonical schemas, without duplicates.
    Raises INVALID_REQUEST with all problems."""
    parsed = dict.fromkeys(inherited, path)
    violations: list[Violation] = []
    for index, constraint in enumerate(requested):
        violations += _pattern_violations(constraint.tool, f"{path}[{index}]")
        try:
            parsed.setdefault(_parse(constraint), f"{path}[{index}]")
        except (MeshError, ValueError):
            violations.append(_not_checkable(f"{path}[{index}]"))
    if len(parsed) > MAX_CONSTRAINTS:
        message = f"a token has at most {MAX_CONSTRAINTS} constraints, including those of its parent"
        violations.append(Violation(path, "constraint.count", message))
    if violations:
        raise grant_refused(violations)
    _refuse_costly(parsed, cost_of, path)
    return tuple(parsed)


def is_tool_name(reference: str) -> bool:
    """Return whether a tool can have this name."""
    try:
        ToolName.parse(reference)
    except MeshError:
        return False
    return True


def _pattern_violations(pattern: str, path: str) -> Iterator[Violation]:
    """Yield a violation for a pattern that no tool can match: such a grant or bound would have no effect."""
    if not is_pattern(pattern) or ("*" not in pattern and not is_tool_name(pattern)):
        yield Violation(f"{path}.tool", "grant.tool", "no tool can have this name")


def _parse(constraint: ArgumentConstraint) -> ArgumentConstraint:
    if not constraint.schema:
        raise ValueError("no schema")
    return ArgumentConstraint(
        constraint.tool, canonical(parse_object(constraint.schema, max_bytes=MAX_CONSTRAINT_BYTES))
    )


def _refuse_costly(constraints: Mapping[ArgumentConstraint, str], cost_of: ConstraintCost, path: str) -> None:
    """Refuse constraints that verifiers would refuse, without measuring more than is needed to know it."""
    left, size = MAX_CONSTRAINTS_COST, sum(len(constraint.schema) for constraint in constraints)
    if size > MAX_ALL_CONSTRAINTS_BYTES:
        message = f"the constraints of a token have at most {MAX_ALL_CONSTRAINTS_BYTES} bytes"
        raise grant_refused([Violation(path, "constraint.size", message)])
    for constraint, place in constraints.items():
        try:
            left -= cost_of(constraint.schema)
        except ValueError:
            raise grant_refused([_not_checkable(place)]) from None
        if left < 0:
            message = "the constraints of a token take too many steps to evaluate"
            raise grant_refused([Violation(path, "constraint.cost", message)])


def _not_checkable(path: str) -> Violation:
    message = "is not a self-contained JSON Schema 2020-12 with bounded evaluation and linear-time patterns"
    return Violation(path, "constraint.schema", message)


def _is_constraint(text: str) -> bool:
    try:
        Constraint.parse(text)
    except MeshError:
        return False
    return True
