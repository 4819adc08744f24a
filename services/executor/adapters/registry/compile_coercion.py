"""Coercion, compiled from a schema: arguments that break it are read as the declared types where that is exact and unambiguous.

It is led by what the validator finds wrong, so `$ref`, nested objects, lists and conditions need no second reading of JSON Schema here: a value
is only touched where it has another type than its own schema declares. Where several schemas may apply (`anyOf`, `oneOf`), it is
touched if exactly one reading of it satisfies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jsonschema_rs

from libs.common.errors import Violation
from libs.common.json.canonical import canonical
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import MAX_DEPTH, parse_object
from services.executor.adapters.registry.json_schema import has_many_parts
from services.executor.domain.argument_spec import Change, CoercionResult
from services.executor.domain.arguments.coerce import Unread, reading
from services.executor.domain.arguments.prepare import COERCION

_ROOT = "urn:toolmesh:arguments"
_EXACT = "x-toolmesh-exact"
# Keywords whose value is no schema.
_VALUES = frozenset({"const", "enum", "default", "examples", "required", "dependentRequired"})
# Keywords that name schemas with words of their own.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
# A text may hold JSON that holds texts that hold JSON.
_MAX_ROUNDS = 4
_MAX_BRANCHES = 16
_MAX_CHANGES = 1000
# How often one call may be looked over; schemas that need more are no contract for a model.
_MAX_LOOKS = 100

Path = tuple[str | int, ...]


class Edit(NamedTuple):
    """One value in the place of another."""

    path: Path
    value: Any
    reason: str


class Coercer:
    """Reads arguments of one schema. Makes no change that it does not name, and leaves the arguments it is given alone."""

    def __init__(self, schema: bytes) -> None:
        # Compiled when somebody first needs it: most versions are only ever called with what they declare.
        self._source = schema
        self._parts: dict[str, Any] = {}

    def __call__(self, arguments: dict[str, Any]) -> CoercionResult:
        """Return the arguments as their schema declares them, as far as that is exact; what would be lost where it is not."""
        value, edits, losses = self._settled(self._whole, arguments, (), _Budget(_MAX_LOOKS))
        if len(edits) > _MAX_CHANGES:
            return CoercionResult(arguments)
        changes = tuple(Change(pointer_of(edit.path), COERCION, edit.reason) for edit in edits)
        return CoercionResult(value, changes, tuple(dict.fromkeys(losses)))

    @cached_property
    def _schema(self) -> dict[str, Any]:
        # Always this draft, as everywhere; and a name of its own, so that its parts can be referred to from outside of it.
        parsed = parse_object(self._source)
        named = {key: part for key, part in parsed.items() if key != "$schema"} | {"$id": _ROOT}
        marked: dict[str, Any] = exact_integers(named)
        return marked

    @cached_property
    def _whole(self) -> Any:
        return self._compiled(self._schema)

    def _settled(
        self, validator: Any, value: Any, base: Path, budget: _Budget
    ) -> tuple[Any, list[Edit], list[Violation]]:
        """A value read again and again until there is nothing more to read, every edit, and what would be lost. `base` is where it stands."""
        made: dict[Path, Edit] = {}
        for _ in range(_MAX_ROUNDS):
            if not budget.take() or has_many_parts(value):
                break
            edits, losses = self._edits(validator.iter_errors(value), value, base, budget)
            if losses:
                return value, list(made.values()), losses
            if not edits:
                break
            value = applied(value, edits)
            made |= {edit.path: edit._replace(path=(*base, *edit.path)) for edit in edits}
        return value, list(made.values()), []

    def _edits(
        self, errors: Iterable[Any], value: Any, base: Path, budget: _Budget
    ) -> tuple[list[Edit], list[Violation]]:
        edits: list[Edit] = []
        losses: list[Violation] = []
        taken, above = set[Path](), set[Path]()
        for error in errors:
            path = tuple(error.instance_path)
            upward = [path[:length] for length in range(len(path) + 1)]
            if path in above or not taken.isdisjoint(upward):
                # One edit at a time for what lies within another; the next round sees what is left.
                continue
            if found := self._found(error, path, _at(value, path), base, losses, budget):
                edits += found
                taken.add(path)
                above.update(upward)
            if len(edits) > _MAX_CHANGES:
                break
        return edits, losses

    def _found(
        self, error: Any, path: Path, present: Any, base: Path, losses: list[Violation], budget: _Budget
    ) -> Sequence[Edit]:
        kind = error.kind
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.Type):
            return self._of_type(kind.types, path, present, base, losses)
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.Custom):
            return self._of_type(["integer"], path, present, base, losses)
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.AnyOf | jsonschema_rs.ValidationErrorKind.OneOfNotValid):
            return self._of_choice(error, path, present, base, losses, budget)
        return ()

    def _of_type(
        self, types: Sequence[str], path: Path, present: Any, base: Path, losses: list[Violation]
    ) -> Sequence[Edit]:
        room = MAX_DEPTH - len(base) - len(path)
        readings = {declared: reading(present, declared, room) for declared in sorted(types)}
        read = {declared: found for declared, found in readings.items() if not isinstance(found, Unread)}
        if len({canonical(found) for found in read.values()}) == 1:
            declared, found = next(iter(read.items()))
            return [Edit(path, found, f"{_name(present)} to {declared}")]
        if Unread.LOSSY in readings.values() and not read:
            wanted = " or ".join(each for each, found in readings.items() if found is Unread.LOSSY)
            losses.append(Violation(pointer_of((*base, *path)), "coercion", f"cannot become {wanted} without loss"))
        return ()

    def _of_choice(
        self, error: Any, path: Path, present: Any, base: Path, losses: list[Violation], budget: _Budget
    ) -> Sequence[Edit]:
        """The edits of the one branch that a value can be read for. None when there are several such readings: who can tell which was meant?"""
        branches = [self._part([*error.schema_path, n]) for n in range(len(error.kind.context))][:_MAX_BRANCHES]
        readings: dict[bytes, list[Edit]] = {}
        lost: list[Violation] = []
        for branch in branches:
            value, edits, lossy = self._settled(branch, present, (*base, *path), budget)
            lost += lossy
            if edits and not lossy and branch.is_valid(value) and self._satisfies(error, value):
                # Within this value: where it stands is added when the edit is taken over.
                readings.setdefault(canonical(value), [edit._replace(path=edit.path[len(base) :]) for edit in edits])
        if not readings:
            losses += lost
        return next(iter(readings.values())) if len(readings) == 1 else ()

    def _satisfies(self, error: Any, value: Any) -> bool:
        """Say whether a value satisfies the choice as a whole: `oneOf` wants one branch and no more."""
        keyword, count = error.schema_path[-1], len(error.kind.context)
        valid = sum(self._part([*error.schema_path, n]).is_valid(value) for n in range(count))
        return bool(valid == 1 if keyword == "oneOf" else valid)

    def _part(self, place: Sequence[str | int]) -> Any:
        pointer = pointer_of(place)
        if pointer not in self._parts:
            self._parts[pointer] = self._compiled(
                {"$ref": f"{_ROOT}#{_in_uri(pointer)}", "$defs": {"arguments": self._schema}}
            )
        return self._parts[pointer]

    def _compiled(self, schema: dict[str, Any]) -> Any:
        return jsonschema_rs.Draft202012Validator(
            schema, validate_formats=True, offline=True, mask="the value", keywords={_EXACT: _ExactInteger}
        )


class _ExactInteger:
    """Finds a double where an integer is declared. JSON Schema takes `42.0` for one; a tool that was promised an integer may not."""

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        """Nothing about the place matters."""

    def validate(self, instance: Any) -> None:
        if type(instance) is float and not isinstance(reading(instance, "integer"), Unread):
            raise ValueError("not written as an integer")


class _Budget:
    """So many looks, for all that one call needs."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0


def applied(value: Any, edits: Iterable[Edit]) -> Any:
    """Return a value with its edits, in their order. Only what lies on the way to one is copied. No edit lies above one before it."""
    copied: dict[Path, Any] = {}

    def own(path: Path) -> Any:
        if path not in copied:
            present = value if not path else own(path[:-1])[path[-1]]
            mine = dict(present) if isinstance(present, dict) else list(present)
            copied[path] = mine
            if path:
                copied[path[:-1]][path[-1]] = mine
        return copied[path]

    for edit in edits:
        if not edit.path:
            return edit.value
        own(edit.path[:-1])[edit.path[-1]] = edit.value
    return copied.get((), value)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _name(value: Any) -> str:
    return "string" if isinstance(value, str) else "number"


def _in_uri(pointer: str) -> str:
    safe = "/~-._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join(each if each in safe else "".join(f"%{byte:02X}" for byte in each.encode()) for each in pointer)


def exact_integers(schema: Any) -> Any:
    """A copy in which every schema that admits integers and no other numbers also says that they are written as such."""
    if isinstance(schema, list):
        return [exact_integers(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copied: dict[str, Any] = {}
    for key, part in schema.items():
        if key in _NAMED and isinstance(part, dict):
            copied[key] = {name: exact_integers(each) for name, each in part.items()}
        else:
            copied[key] = part if key in _VALUES else exact_integers(part)
    types = schema.get("type")
    if types == "integer" or (isinstance(types, list) and "integer" in types and "number" not in types):
        copied[_EXACT] = True
    return copied
