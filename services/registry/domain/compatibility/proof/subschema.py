"""Schemas at their places: a subschema, the document that its references mean, and its JSON Pointer in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from libs.common.json.json_pointer import pointer_of
from services.registry.domain.publishing.schema_shape import Schema, SchemaShape

ANYTHING: Schema = {}
NOTHING: Schema = {"not": {}}
# Every keyword that can refuse a value. All others are annotations, and change nothing about what is valid.
ASSERTIONS = frozenset(
    {
        "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
        "maxLength", "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems", "maxContains",
        "minContains", "maxProperties", "minProperties", "required", "dependentRequired", "prefixItems", "items",
        "contains", "additionalProperties", "properties", "patternProperties", "dependentSchemas", "propertyNames",
        "if", "then", "else", "allOf", "anyOf", "oneOf", "not", "unevaluatedItems", "unevaluatedProperties",
        "$ref", "$dynamicRef", "dependencies",
    }
)  # fmt: skip


class SchemaDocument:
    """A whole schema, in which references are resolved."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._shape = SchemaShape(root)
        self._pointers = {id(schema): pointer for pointer, schema in self._shape.subschemas.items()}

    @property
    def size(self) -> int:
        """How many subschemas there are."""
        return len(self._shape.subschemas)

    @property
    def circular(self) -> bool:
        """True if what the schema means is anyone's guess."""
        return self._shape.circular()

    @property
    def root_subschema(self) -> Subschema:
        """The root."""
        return Subschema(self, self.root, "")

    def target(self, reference: str) -> Subschema | None:
        """Return what a reference within the document means."""
        found = self._shape.target(reference)
        if found is None:
            return None
        fragment = unquote(reference[1:])
        return Subschema(self, found, fragment if fragment[:1] == "/" else self._pointers.get(id(found), ""))

    def in_place(self, schema: Schema) -> Iterator[Schema]:
        """Yield a schema and all that apply to the same value, each once."""
        return self._shape.in_place(schema)


@dataclass(frozen=True, slots=True, eq=False)
class Subschema:
    """One subschema. The key stands for it: two places of the same key accept the same values."""

    document: SchemaDocument
    schema: Schema
    pointer: str

    @property
    def key(self) -> tuple[int, int]:
        return (id(self.document), id(self.schema))

    @property
    def trivial(self) -> bool:
        """True if nothing is refused, as far as can be seen at a glance."""
        return not any(keyword in ASSERTIONS for keyword in self.schema)

    @property
    def impossible(self) -> bool:
        """True if everything is refused, as far as can be seen at a glance."""
        inner = self.schema.get("not", False)
        return inner is True or (isinstance(inner, dict) and not any(keyword in ASSERTIONS for keyword in inner))

    def has(self, keyword: str) -> bool:
        return keyword in self.schema

    def get(self, keyword: str) -> Any:
        return self.schema.get(keyword)

    def child(self, keyword: str, *steps: str | int) -> Subschema:
        """Return the subschema below a keyword, one step further where the keyword holds several."""
        value: Any = self.schema[keyword]
        for step in steps:
            value = value[step]
        return Subschema(self.document, as_schema(value), self.pointer + pointer_of((keyword, *steps)))

    def children(self, keyword: str) -> tuple[Subschema, ...]:
        """Return the subschemas of a keyword that holds a list."""
        return tuple(self.child(keyword, index) for index in range(len(self.schema.get(keyword, ()))))

    def children_by_name(self, keyword: str) -> Mapping[str, Subschema]:
        """Return the subschemas of a keyword that holds them by name."""
        return {name: self.child(keyword, name) for name in self.schema.get(keyword, {})}

    def sibling(self, schema: Schema) -> Subschema:
        """Return another schema whose references mean this document. The caller keeps the schema alive."""
        return Subschema(self.document, schema, self.pointer)

    def ref_target(self) -> Subschema | None:
        """Return what `$ref` means; None without one."""
        reference = self.schema.get("$ref")
        return self.document.target(reference) if isinstance(reference, str) else None


def as_schema(value: Any) -> Schema:
    """Return a schema as an object: `true` refuses nothing, `false` everything."""
    if isinstance(value, dict):
        return value
    return ANYTHING if value is True else NOTHING
