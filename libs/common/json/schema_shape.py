"""The structure of a JSON Schema 2020-12: subschemas, references and declared values.

Only local references are resolved, because only those are admitted. The schema need not be valid: values that are not
subschemas are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import unquote

from libs.common.json.json_pointer import pointer_of, steps_of

Schema: TypeAlias = Mapping[str, Any]

# Keywords that apply their subschemas to the same value as the schema itself.
# `dependencies` is of older drafts, but validators still evaluate it.
_IN_PLACE = ("if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_ONE = (
    "if", "then", "else", "not", "additionalProperties", "unevaluatedProperties", "propertyNames", "items",
    "unevaluatedItems", "contains", "contentSchema",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
DEFINITIONS = ("$defs", "definitions")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "dependencies", *DEFINITIONS)
_REFERENCES = ("$ref", "$dynamicRef")
_DEEPEST_CHAIN = 200
# The schemas `true` and `false` as objects.
_ANYTHING: Schema = {}
_NOTHING: Schema = {"not": {}}


class SchemaShape:
    """A schema with all its subschemas by JSON Pointer, or the first of them if it has more than `most`."""

    def __init__(self, root: Schema, most: int | None = None) -> None:
        self.root = root
        self.subschemas: dict[str, Schema] = dict(islice(_walk(root, ""), most))
        anchored = ((s.get(k), s) for s in self.subschemas.values() for k in ("$anchor", "$dynamicAnchor"))
        self._anchors = {anchor: schema for anchor, schema in anchored if isinstance(anchor, str)}

    def target(self, reference: str) -> Schema | None:
        """Return the target of `#`, `#/a/pointer` or `#anchor`; None if it is not in this schema."""
        if not reference.startswith("#"):
            return None
        fragment = unquote(reference[1:])
        return self.subschemas.get(fragment) if fragment[:1] in ("", "/") else self._anchors.get(fragment)

    def in_place(self, *starts: Schema) -> Iterator[Schema]:
        """Yield the given schemas, or the root, and all that apply to the same value by combination or reference, each
        once."""
        waiting, seen = list(starts or [self.root]), set[int]()
        while waiting:
            current = waiting.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            yield current
            waiting.extend(child for keyword, _, child in children(current) if keyword in _IN_PLACE)
            waiting.extend(self._referred(current))

    def declares(self, pointer: str) -> bool:
        """Return whether the schema declares the value at a JSON Pointer: a property by its name, an array item by any
        index, `-` or `*`."""
        level = [self.root]
        for token in steps_of(pointer):
            wanted = [("properties", token)]
            if token in ("-", "*") or token.isdigit():
                wanted += [("items", ""), ("prefixItems", token)]
            below = self.below(*level)
            level = [child for step in wanted for child in below.get(step, ())]
            if not level:
                return False
        return True

    def below(self, *starts: Schema) -> Mapping[tuple[str, str], list[Schema]]:
        """Return the subschemas of schemas and all that apply to the same value, by keyword and key."""
        subschemas: dict[tuple[str, str], list[Schema]] = {}
        for schema in self.in_place(*starts):
            for keyword, key, child in children(schema):
                # A property with the schema `false` is forbidden, not declared.
                if child is not _NOTHING:
                    subschemas.setdefault((keyword, key), []).append(child)
        return subschemas

    def evaluations(self, limit: int, own_cost: Callable[[Schema], int] = lambda _: 1) -> int:
        """Return how many subschemas one evaluation visits with all references followed, at most `limit`; or the sum
        of their own costs.

        References that fan out double with every level, so a small schema can keep a validator busy for years. A
        recursive schema is counted once, because its depth is that of the value.
        """
        known: dict[int, int] = {}

        def cost(schema: Schema, depth: int) -> int:
            if depth > _DEEPEST_CHAIN:
                return limit
            if id(schema) not in known:
                known[id(schema)] = own_cost(schema)
                below = [child for keyword, _, child in children(schema) if keyword not in DEFINITIONS]
                total = sum(cost(child, depth + 1) for child in (*below, *self._referred(schema)))
                known[id(schema)] = min(limit, own_cost(schema) + total)
            return known[id(schema)]

        return cost(self.root, 0)

    def circular(self) -> bool:
        """Return whether a subschema applies itself to the same value, so that its evaluation does not end. Applying
        itself to a part of the value is allowed."""
        settled, path = set[int](), set[int]()
        for start in self.subschemas.values():
            waiting: list[tuple[Schema, bool]] = [(start, False)]
            while waiting:
                schema, done = waiting.pop()
                if done:
                    path.discard(id(schema))
                    settled.add(id(schema))
                elif id(schema) in path:
                    return True
                elif id(schema) not in settled:
                    path.add(id(schema))
                    waiting.append((schema, True))
                    waiting.extend((child, False) for child in self.same_value(schema))
        return False

    def same_value(self, schema: Schema) -> Iterator[Schema]:
        """Yield the direct subschemas and references that apply to the same value."""
        yield from (child for keyword, _, child in children(schema) if keyword == "not" or keyword in _IN_PLACE)
        yield from self._referred(schema)

    def _referred(self, schema: Schema) -> Iterator[Schema]:
        for reference in references(schema):
            target = self.target(reference)
            if target is not None:
                yield target


def references(schema: Schema) -> Iterator[str]:
    """Yield the references of one schema object."""
    for keyword in _REFERENCES:
        if isinstance(schema.get(keyword), str):
            yield schema[keyword]


def _walk(schema: Schema, pointer: str) -> Iterator[tuple[str, Schema]]:
    yield pointer, schema
    for keyword, key, child in children(schema):
        steps = (keyword, key) if key or keyword in _NAMED else (keyword,)
        yield from _walk(child, pointer + pointer_of(steps))


def children(schema: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Yield the direct subschemas: keyword, key or index where the keyword holds several, and schema."""
    for keyword in _ONE:
        yield from _child(keyword, "", schema.get(keyword))
    for keyword in _MANY:
        listed = schema.get(keyword)
        for index, child in enumerate(listed if isinstance(listed, list) else ()):
            yield from _child(keyword, str(index), child)
    for keyword in _NAMED:
        named = schema.get(keyword)
        for key, child in (named if isinstance(named, dict) else {}).items():
            yield from _child(keyword, key, child)


def _child(keyword: str, key: str, value: Any) -> Iterator[tuple[str, str, Schema]]:
    if value is True:
        yield keyword, key, _ANYTHING
    elif value is False:
        yield keyword, key, _NOTHING
    elif isinstance(value, dict):
        yield keyword, key, value
