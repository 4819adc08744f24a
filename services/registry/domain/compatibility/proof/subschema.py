"""A subschema with its document, in which references are resolved, and its JSON Pointer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from libs.common.json.json_pointer import pointer_of
from libs.common.json.schema_shape import Schema, SchemaShape

ANYTHING: Schema = {}
NOTHING: Schema = {"not": {}}
# Every keyword that can reject a value. All others are annotations.
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
        """The number of subschemas."""
        return len(self._shape.subschemas)

    @property
    def circular(self) -> bool:
        """True if a subschema applies itself to the same value, so that its meaning is undefined."""
        return self._shape.circular()

    @property
    def root_subschema(self) -> Subschema:
        """The root of the document."""
        return Subschema(self, self.root, "")

    def target(self, reference: str) -> Subschema | None:
        """Return the target of a reference within the document; None if there is none."""
        schema = self._shape.target(reference)
        if schema is None:
            return None
        fragment = unquote(reference[1:])
        return Subschema(self, schema, fragment if fragment[:1] == "/" else self._pointers.get(id(schema), ""))

    def in_place(self, schema: Schema) -> Iterator[Schema]:
        """Yield a schema and all schemas that apply to the same value, each once."""
        return self._shape.in_place(schema)


@dataclass(frozen=True, slots=True, eq=False)
class Subschema:
    """One subschema. Two subschemas with the same key accept the same values."""

    document: SchemaDocument
    schema: Schema
    pointer: str

    @property
    def key(self) -> tuple[int, int]:
        return (id(self.document), id(self.schema))

    @property
    def trivial(self) -> bool:
        """True if the subschema obviously accepts everything."""
        return not any(keyword in ASSERTIONS for keyword in self.schema)

    @property
    def impossible(self) -> bool:
        """True if the subschema obviously rejects everything."""
        inner = self.schema.get("not", False)
        return inner is True or (isinstance(inner, dict) and not any(keyword in ASSERTIONS for keyword in inner))

    def has(self, keyword: str) -> bool:
        return keyword in self.schema

    def get(self, keyword: str) -> Any:
        return self.schema.get(keyword)

    def child(self, keyword: str, *steps: str | int) -> Subschema:
        """Return the subschema of a keyword, or of one entry where the keyword holds several."""
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
        """Return another schema of the same document. The caller keeps the schema alive."""
        return Subschema(self.document, schema, self.pointer)

    def ref_target(self) -> Subschema | None:
        """Return the target of `$ref`; None without one."""
        reference = self.schema.get("$ref")
        return self.document.target(reference) if isinstance(reference, str) else None


def as_schema(value: Any) -> Schema:
    """Return a schema as an object: `true` accepts everything, `false` rejects everything."""
    if isinstance(value, dict):
        return value
    return ANYTHING if value is True else NOTHING
