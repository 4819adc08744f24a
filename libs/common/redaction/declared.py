"""The sensitive parts of a payload that its owner declares: JSON Pointers, and `x-sensitivity` in its JSON Schema.

A part of the schema that cannot be followed counts as sensitive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from libs.common.json.json_pointer import escaped, is_whole, steps_of
from libs.common.json.schema_walk import Schemas, SchemaWalk, element_schemas, has_keyword, member_schemas

MARK = "x-sensitivity"
DECLARED = "declared"


class Declaration(NamedTuple):
    """What is declared about one value of a payload and everything below it."""

    schemas: Schemas
    pointers: tuple[tuple[str, ...], ...]


class Declared:
    """The sensitive parts of one kind of payload."""

    __slots__ = ("_pointers", "_walk")

    def __init__(self, schema: Any, pointers: Sequence[str]) -> None:
        self._pointers = tuple(steps_of(pointer) for pointer in pointers)
        self._walk = SchemaWalk(schema if has_keyword(schema, MARK) else True, fallback={MARK: True})

    @classmethod
    def of(cls, schema: Any, pointers: Sequence[str]) -> Declared | None:
        """Return what is declared, or None when that is nothing."""
        return cls(schema, pointers) if pointers or has_keyword(schema, MARK) else None

    def root(self) -> Declaration:
        """Return what is declared about the whole payload."""
        return Declaration(self._walk.root(), self._pointers)

    @staticmethod
    def covers(declaration: Declaration) -> bool:
        """Report whether the value itself is sensitive. A string of JSON is sensitive as soon as any part of it is."""
        return () in declaration.pointers or any(
            MARK in schema or has_keyword(schema.get("contentSchema"), MARK) for schema in declaration.schemas
        )

    def covers_names(self, declaration: Declaration) -> bool:
        """Report whether the names of an object's members are sensitive."""
        named = [schema["propertyNames"] for schema in declaration.schemas if "propertyNames" in schema]
        return any(MARK in schema for schema in self._walk.applicable(named))

    def below_key(self, declaration: Declaration, key: str) -> Declaration:
        """Return what is declared about a member of an object."""
        return Declaration(self._walk.member(declaration.schemas, key), _below(declaration.pointers, key))

    def below_index(self, declaration: Declaration, index: int) -> Declaration:
        """Return what is declared about an element of an array."""
        return Declaration(self._walk.element(declaration.schemas, index), _below(declaration.pointers, str(index)))

    def named(self, pointer: str) -> str:
        """Return a JSON Pointer that ends before its first sensitive name."""
        declaration, shown = self.root(), ""
        for step in steps_of(pointer):
            if self.covers(declaration) or self.covers_names(declaration):
                break
            shown += f"/{escaped(step)}"
            # A number in a pointer may be a member's name or an index.
            below = member_schemas(declaration.schemas, step)
            below += element_schemas(declaration.schemas, int(step)) if is_whole(step) else []
            declaration = Declaration(self._walk.applicable(below), _below(declaration.pointers, step))
        return shown


def _below(pointers: tuple[tuple[str, ...], ...], step: str) -> tuple[tuple[str, ...], ...]:
    # `*` and `-` stand for every element: the length of a list is not known when the pointer is declared.
    return tuple(pointer[1:] for pointer in pointers if pointer and pointer[0] in (step, "*", "-"))
