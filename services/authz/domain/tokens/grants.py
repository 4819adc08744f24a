"""What no token may carry, beyond what the contract's own rules see. Shared by everything that mints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from libs.common.auth.claims import MAX_CONSTRAINTS
from libs.common.auth.identity import ArgumentConstraint, Grant
from libs.common.errors import MeshError, Violation
from libs.common.json.canonical import canonical
from libs.common.json.jsonio import parse_object
from libs.common.semver import Constraint
from libs.common.tool_names import ToolName, is_pattern
from services.authz.domain.errors import grant_refused

Compiles = Callable[[bytes], object]
"""Compiles a JSON Schema that will be checked wherever the token is used, or raises ValueError."""
MAX_SCHEMA_BYTES = 8192


def tool_refusals(tools: Sequence[Grant]) -> Iterator[Violation]:
    """Yield what is wrong with grants of tools."""
    for index, grant in enumerate(tools):
        path = f"tools[{index}]"
        yield from _no_tool(grant.tool, path)
        if grant.version_constraint.strip() == "latest":
            # Which version is the latest is not known where the token is used, so the grant would mean any version.
            message = "a token cannot follow the latest version; leave it empty for any, or name a range"
            yield Violation(f"{path}.version_constraint", "grant.version", message)
        elif not _is_constraint(grant.version_constraint):
            yield Violation(f"{path}.version_constraint", "grant.version", "is not a version constraint")


def audience_refusals(audiences: Sequence[str]) -> Iterator[Violation]:
    """Yield what is wrong with audiences."""
    for index, audience in enumerate(audiences):
        if not audience:
            yield Violation(f"audiences[{index}]", "audience.empty", "an audience must have a name")


def lifetime_refusals(lifetime: float | None, most: int) -> Iterator[Violation]:
    """Yield what is wrong with a lifetime."""
    if lifetime is not None and not 1 <= lifetime <= most:
        yield Violation("lifetime", "lifetime.limit", f"must be between 1 and {most} seconds")


def read_constraints(
    asked: Sequence[ArgumentConstraint],
    compiles: Compiles,
    *,
    inherited: Sequence[ArgumentConstraint] = (),
    path: str = "argument_constraints",
) -> tuple[ArgumentConstraint, ...]:
    """Return those of the parent, which come first and stay, and these with their schemas in canonical form. Raises INVALID_REQUEST with
    everything that is wrong."""
    read = dict.fromkeys(inherited)
    violations: list[Violation] = []
    for index, constraint in enumerate(asked):
        violations += _no_tool(constraint.tool, f"{path}[{index}]")
        try:
            read[_read(constraint, compiles)] = None
        except (MeshError, ValueError):
            message = "is not a JSON Schema that can be checked here"
            violations.append(Violation(f"{path}[{index}]", "constraint.schema", message))
    if len(read) > MAX_CONSTRAINTS:
        message = f"a token carries at most {MAX_CONSTRAINTS}, those of its parent included"
        violations.append(Violation(path, "constraint.count", message))
    if violations:
        raise grant_refused(violations)
    return tuple(read)


def names_a_tool(reference: str) -> bool:
    """Say whether a tool can have this name."""
    try:
        ToolName.parse(reference)
    except MeshError:
        return False
    return True


def _no_tool(pattern: str, path: str) -> Iterator[Violation]:
    """Yield what is wrong with a pattern that no tool can match: whoever wrote it believes in a grant or a bound that is none."""
    if not is_pattern(pattern) or ("*" not in pattern and not names_a_tool(pattern)):
        yield Violation(f"{path}.tool", "grant.tool", "no tool can have this name")


def _read(constraint: ArgumentConstraint, compiles: Compiles) -> ArgumentConstraint:
    schema = canonical(parse_object(constraint.schema, max_bytes=MAX_SCHEMA_BYTES))
    if not constraint.schema:
        raise ValueError("no schema")
    compiles(schema)
    return ArgumentConstraint(constraint.tool, schema)


def _is_constraint(text: str) -> bool:
    try:
        Constraint.parse(text)
    except MeshError:
        return False
    return True
