"""Inputs: what a caller sent becomes what policy judges and what the tool gets, and every change is named with who made it.

There are four forms. The *model input* is the caller's bytes; nobody touches them. The *observable* input is those bytes parsed
strictly, with defaults filled in and texts read as their declared types. The *permission* input is what policy judged: the
observable one, unless a hook changed it. The *call* input is what the tool receives: the same, with what only the mesh may set.
As long as nothing changes they are one object, and nothing is copied.
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
# A list may have more entries than anybody wants to be told of one by one.
_MAX_NAMED = 100
# A number that may have been written as a double; only then can one stand where an integer is asked for.
_MAY_HOLD_DOUBLE = re.compile(rb"[0-9][.eE]")
# Who changes arguments here; hooks and decisions have names of their own.
DEFAULT, COERCION = "default", "coercion"
_BY_SCHEMA = "schema"
_BY_MESH = "internal"


class PreparedArguments(NamedTuple):
    """The observable input, every change that led to it, and why it is refused, if it is."""

    arguments: dict[str, Any]
    changes: tuple[Change, ...] = ()
    refusal: MeshError | None = None


def prepare(tool: Tool, payload: bytes, argument_spec: ArgumentSpec | None = None) -> PreparedArguments:
    """Return the observable input of a call. Raises INVALID_JSON or PAYLOAD_TOO_LARGE for what is not the JSON of the contract.

    Refuses with ARGUMENTS_INVALID what breaks the schema or a semantic check, with COERCION_FAILED what could only be read with
    loss, and with INJECTION_DETECTED what breaks the policy of a path, URL or command: with every violation, each with its place.
    """
    arguments = parse_object(payload)
    if argument_spec is not None and (sent := _internal(argument_spec, arguments)):
        return PreparedArguments(arguments, (), errors.arguments_invalid(sent))
    changes = _complete(tool, arguments, argument_spec)
    broken = tool.input.violations(arguments)
    if argument_spec is None:
        return PreparedArguments(arguments, changes, errors.arguments_invalid(broken) if broken else None)
    if argument_spec.coerce is not None and (broken or (argument_spec.whole and _MAY_HOLD_DOUBLE.search(payload))):
        coerced = argument_spec.coerce(arguments)
        if coerced.losses and broken:
            told = {loss.path for loss in coerced.losses}
            rest = [violation for violation in broken if violation.path not in told]
            return PreparedArguments(
                arguments, changes, errors.coercion_failed([*coerced.losses, *rest][:_MAX_VIOLATIONS])
            )
        if coerced.changes and not coerced.losses:
            # What came as text is an object only now: it may hold what the mesh alone sets, and lack what has a default.
            sent = _internal(argument_spec, coerced.value)
            if sent and broken:
                return PreparedArguments(arguments, changes, errors.arguments_invalid(sent))
            filled = _complete_within(coerced.value, argument_spec)
            left = tool.input.violations(coerced.value)
            if broken or not (left or sent):
                # Never from good to bad: arguments that keep the schema are only ever replaced by such that do.
                arguments, changes, broken = coerced.value, (*changes, *coerced.changes, *filled), left
    if broken:
        return PreparedArguments(arguments, changes, errors.arguments_invalid(broken))
    return PreparedArguments(arguments, changes, _refusal(argument_spec, arguments))


def recheck(tool: Tool, arguments: dict[str, Any], argument_spec: ArgumentSpec | None = None) -> MeshError | None:
    """Return why arguments that somebody changed after they were prepared are refused; None if they are not. They are held to all
    that a caller's are, and nothing in them is coerced."""
    if argument_spec is not None and (sent := _internal(argument_spec, arguments)):
        return errors.arguments_invalid(sent)
    if broken := tool.input.violations(arguments):
        return errors.arguments_invalid(broken)
    return None if argument_spec is None else _refusal(argument_spec, arguments)


def call_input(
    argument_spec: ArgumentSpec | None, arguments: dict[str, Any], facts: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[Change, ...]]:
    """Return what the tool receives and what the mesh set in it. The arguments given are not changed. Raises ARGUMENTS_INVALID when it
    breaks the schema that the tool has for it."""
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


def _complete(tool: Tool, arguments: dict[str, Any], argument_spec: ArgumentSpec | None) -> tuple[Change, ...]:
    filled: list[str] = []
    for default in tool.defaults:
        if default.argument not in arguments:
            # A copy, because a runner may change what it receives.
            arguments[default.argument] = copy.deepcopy(default.value)
            filled.append(default.pointer)
    changes = tuple([Change(pointer, DEFAULT, _BY_SCHEMA) for pointer in filled])
    return changes if argument_spec is None else (*changes, *_complete_within(arguments, argument_spec))


def _complete_within(arguments: dict[str, Any], argument_spec: ArgumentSpec) -> tuple[Change, ...]:
    """Fill in the defaults of objects that are there. One that is filled in very often is named once, with `*` for the entries."""
    filled: list[str] = []
    for inner in argument_spec.inner:
        named = [
            f"{at}/{escaped(inner.name)}"
            for at, parent in places(arguments, inner.parent)
            if isinstance(parent, dict) and _filled_in(parent, inner)
        ]
        filled += named if len(named) <= _MAX_NAMED else [pointer_of((*inner.parent, inner.name))]
    return tuple([Change(pointer, DEFAULT, _BY_SCHEMA) for pointer in filled])


def _filled_in(parent: dict[str, Any], inner: InnerDefault) -> bool:
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
    """What the arguments break beyond their schema. A policy comes first: what may be an attack is called one."""
    if argument_spec.policies and (broken := _broken(argument_spec.policies, arguments)):
        return errors.injection_detected(broken)
    if argument_spec.checks and (broken := _broken(argument_spec.checks, arguments)):
        return errors.arguments_invalid(broken)
    return None


def _broken(rules: Iterable[Any], arguments: dict[str, Any]) -> list[Violation]:
    found: list[Violation] = []
    for rule in rules:
        found.extend(rule(arguments))
        if len(found) >= _MAX_VIOLATIONS:
            break
    return found[:_MAX_VIOLATIONS]
