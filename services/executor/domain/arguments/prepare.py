"""Prepares arguments: parses, completes, converts and validates them, and names every change with its source.

There are four forms. The *model input* is the bytes of the caller, unchanged. The *observable* input is those bytes
parsed strictly, with defaults set and texts converted to their declared types. The *permission* input is the one that
policy judges: the observable one, unless a hook changed it. The *call* input is the one that the tool receives: the
same, with internal arguments. Without changes all of them are one object, and nothing is copied.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from libs.common.errors import MeshError, Violation
from libs.common.json.json_pointer import escaped, places, pointer_of
from libs.common.json.jsonio import parse_object
from services.executor.domain import errors
from services.executor.domain.argument_spec import ArgumentSpec, Change, InnerDefault
from services.executor.domain.tool import Tool

_MAX_VIOLATIONS = 100
# Beyond this many, the changed entries of a list are named once, with a wildcard.
_MAX_NAMED = 100
# A number that may be a double; only then can a double stand in the place of an integer.
_MAY_HOLD_DOUBLE = re.compile(rb"[0-9][.eE]")
# The sources of changes made here.
DEFAULT, COERCION = "default", "coercion"
_BY_SCHEMA = "schema"
_BY_MESH = "internal"


class PreparedArguments(NamedTuple):
    """The observable input, its changes, and the refusal, if any."""

    arguments: dict[str, Any]
    changes: tuple[Change, ...] = ()
    refusal: MeshError | None = None


def prepare(tool: Tool, payload: bytes, argument_spec: ArgumentSpec | None = None) -> PreparedArguments:
    """Return the observable input of a call. Raises INVALID_JSON or PAYLOAD_TOO_LARGE.

    The refusal is ARGUMENTS_INVALID for the schema or a semantic check, COERCION_FAILED for a lossy conversion, and
    INJECTION_DETECTED for a path, URL or command: with every violation and its JSON Pointer.
    """
    arguments = parse_object(payload)
    if argument_spec is not None and (sent := _internal(argument_spec, arguments)):
        return PreparedArguments(arguments, (), errors.arguments_invalid(sent))
    changes = _set_defaults(tool, arguments, argument_spec)
    broken = tool.input.violations(arguments)
    if argument_spec is None:
        return PreparedArguments(arguments, changes, errors.arguments_invalid(broken) if broken else None)
    if argument_spec.coerce is not None and (broken or (argument_spec.whole and _MAY_HOLD_DOUBLE.search(payload))):
        coerced = argument_spec.coerce(arguments)
        if coerced.losses and broken:
            lossy = {loss.path for loss in coerced.losses}
            rest = [violation for violation in broken if violation.path not in lossy]
            return PreparedArguments(
                arguments, changes, errors.coercion_failed([*coerced.losses, *rest][:_MAX_VIOLATIONS])
            )
        if coerced.changes and not coerced.losses:
            # A text that became an object may now contain internal arguments, or lack defaults.
            sent = _internal(argument_spec, coerced.value)
            if sent and broken:
                return PreparedArguments(arguments, changes, errors.arguments_invalid(sent))
            filled = _set_inner_defaults(coerced.value, argument_spec)
            left = tool.input.violations(coerced.value)
            if broken or not (left or sent):
                # Valid arguments are only ever replaced by valid ones.
                arguments, changes, broken = coerced.value, (*changes, *coerced.changes, *filled), left
    if broken:
        return PreparedArguments(arguments, changes, errors.arguments_invalid(broken))
    return PreparedArguments(arguments, changes, _refusal(argument_spec, arguments))


def recheck(tool: Tool, arguments: dict[str, Any], argument_spec: ArgumentSpec | None = None) -> MeshError | None:
    """Return why arguments that a hook changed are refused; None if they are valid. Nothing in them is converted."""
    if argument_spec is not None and (sent := _internal(argument_spec, arguments)):
        return errors.arguments_invalid(sent)
    if broken := tool.input.violations(arguments):
        return errors.arguments_invalid(broken)
    return None if argument_spec is None else _refusal(argument_spec, arguments)


def call_input(
    argument_spec: ArgumentSpec | None, arguments: dict[str, Any], facts: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[Change, ...]]:
    """Return the arguments with internal ones added, and the changes. The given arguments are not modified.

    Raises ARGUMENTS_INVALID when they violate the tool's schema of the call input.
    """
    if argument_spec is None or (not argument_spec.fills and argument_spec.call is None):
        return arguments, ()
    filled: dict[str, Any] = {}
    for fill in argument_spec.fills:
        if facts.get(fill.fact):
            filled[fill.name] = facts[fill.fact]
        elif fill.fixed:
            filled[fill.name] = copy.deepcopy(fill.value)
    received = {**arguments, **filled} if filled else arguments
    if argument_spec.call is not None and (broken := argument_spec.call(received)):
        raise errors.arguments_invalid(broken)
    return received, tuple(Change(pointer_of([name]), DEFAULT, _BY_MESH) for name in filled)


def _set_defaults(tool: Tool, arguments: dict[str, Any], argument_spec: ArgumentSpec | None) -> tuple[Change, ...]:
    filled: list[str] = []
    for default in tool.defaults:
        if default.argument not in arguments:
            # A copy, because a runner may change what it receives.
            arguments[default.argument] = copy.deepcopy(default.value)
            filled.append(default.pointer)
    changes = tuple([Change(pointer, DEFAULT, _BY_SCHEMA) for pointer in filled])
    return changes if argument_spec is None else (*changes, *_set_inner_defaults(arguments, argument_spec))


def _set_inner_defaults(arguments: dict[str, Any], argument_spec: ArgumentSpec) -> tuple[Change, ...]:
    """Set the defaults of nested objects. Many changes of one default are named once, with `*` for the entries."""
    filled: list[str] = []
    for inner in argument_spec.inner:
        named = [
            f"{at}/{escaped(inner.name)}"
            for at, parent in places(arguments, inner.parent)
            if isinstance(parent, dict) and _set_inner_default(parent, inner)
        ]
        filled += named if len(named) <= _MAX_NAMED else [pointer_of((*inner.parent, inner.name))]
    return tuple([Change(pointer, DEFAULT, _BY_SCHEMA) for pointer in filled])


def _set_inner_default(parent: dict[str, Any], inner: InnerDefault) -> bool:
    if inner.name in parent:
        return False
    parent[inner.name] = copy.deepcopy(inner.value)
    return True


def _internal(argument_spec: ArgumentSpec, arguments: dict[str, Any]) -> list[Violation]:
    if not argument_spec.internal:
        return []
    return [
        Violation(at, "internal_only", "is set by the mesh alone")
        for steps in argument_spec.internal
        for at, _ in places(arguments, steps)
    ][:_MAX_VIOLATIONS]


def _refusal(argument_spec: ArgumentSpec, arguments: dict[str, Any]) -> MeshError | None:
    """Return what the arguments violate beyond their schema. Injection policies come first."""
    if argument_spec.policies and (broken := _broken(argument_spec.policies, arguments)):
        return errors.injection_detected(broken)
    if argument_spec.checks and (broken := _broken(argument_spec.checks, arguments)):
        return errors.arguments_invalid(broken)
    return None


def _broken(rules: Iterable[Any], arguments: dict[str, Any]) -> list[Violation]:
    violations: list[Violation] = []
    for rule in rules:
        violations.extend(rule(arguments))
        if len(violations) >= _MAX_VIOLATIONS:
            break
    return violations[:_MAX_VIOLATIONS]
