"""Random schemas, mutations of them, and documents that nearly satisfy them, from one seed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

NAMES = ["a", "b", "ab", "c", "x1"]
PATTERNS = ["^a", "b", "^x[0-9]$", "^[a-c]*$"]
TEXTS = ["", "a", "b", "ab", "abc", "x1", "x", "2020-01-01", "10.0.0.1", "é"]
NUMBERS: list[Any] = [-1, 0, 1, 2, 3, 4, 5, 7, 10, 1.0, 0.5, 1.5, 2.5, -0.5]
TYPES = ["null", "boolean", "object", "array", "string", "integer", "number"]
FORMATS = ["date", "ipv4", "email"]


def schema(rng: Random, depth: int = 3) -> Any:
    """A random schema; sometimes a recursive one."""
    made = _schema(rng, depth)
    if isinstance(made, dict) and rng.random() < 0.25:
        made["$defs"] = {"d": _schema(rng, depth - 1, recursive=True)}
        if rng.random() < 0.5:
            made.setdefault("properties", {})["a"] = {"$ref": "#/$defs/d"}
        else:
            made["$ref"] = "#/$defs/d"
    return made


def pair(rng: Random) -> tuple[Any, Any]:
    """A schema and a mutated one; sometimes an unrelated one."""
    if rng.random() < 0.25:
        return edge(rng)
    old = schema(rng)
    if rng.random() < 0.05:
        return old, schema(rng)
    new = copy.deepcopy(old)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        new = change(rng, new)
    return old, new


def edge(rng: Random) -> tuple[Any, Any]:
    """Two schemas with adjacent limits, to find off-by-one errors."""
    kind = rng.choice(["integer", "number", "string", "array", "object"])
    words = [word for word in _PLAIN[kind] if word.startswith(("min", "max", "exclusive"))]
    old: dict[str, Any] = {"type": kind, **{word: rng.randint(0, 4) for word in rng.sample(words, rng.randint(1, 2))}}
    new = dict(old)
    word = rng.choice([word for word in old if word != "type"])
    limit = new.pop(word)
    step = rng.choice([-1, 0, 1, *([0.5, -0.5] if kind in ("integer", "number") else [])])
    other = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}.get(word, word)
    new[rng.choice([word, other])] = max(limit + step, 0)
    return old, new


def change(rng: Random, old: Any) -> Any:
    """Mutate one part of a schema."""
    places = list(_dicts(old))
    if not places or rng.random() < 0.03:
        return rng.choice([True, _schema(rng, 1), {"anyOf": [old, _schema(rng, 1)]}, {"allOf": [old]}])
    target = rng.choice(places)
    action = rng.random()
    if action < 0.3 and target:
        del target[rng.choice(list(target))]
    elif action < 0.65:
        _add(rng, target, 1)
    elif action < 0.9:
        _loosen(rng, target)
    else:
        target["type"] = rng.choice(TYPES)
    return old


def _dicts(value: Any, named: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the subschemas of a schema."""
    if not isinstance(value, dict):
        return
    if not named:
        yield value
    for key, item in value.items():
        if named or key in _ONE:
            yield from _dicts(item)
        elif key in _NAMED:
            yield from _dicts(item, named=True)
        elif key in ("allOf", "anyOf", "oneOf", "prefixItems"):
            for each in item:
                yield from _dicts(each)


_ONE = {"not", "if", "then", "else", "items", "contains", "additionalProperties", "unevaluatedProperties",
        "unevaluatedItems", "propertyNames"}  # fmt: skip
_NAMED = {"properties", "patternProperties", "dependentSchemas", "$defs"}


def _schema(rng: Random, depth: int, recursive: bool = False) -> Any:
    if rng.random() < 0.04:
        return rng.random() < 0.8
    made: dict[str, Any] = {}
    if rng.random() < 0.7:
        made["type"] = rng.choice(TYPES) if rng.random() < 0.8 else rng.sample(TYPES, 2)
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3])):
        _add(rng, made, depth)
    if recursive and rng.random() < 0.7:
        if rng.random() < 0.5:
            made.setdefault("properties", {})["b"] = {"$ref": "#/$defs/d"}
        else:
            made["items"] = {"$ref": "#/$defs/d"}
    return made


def _add(rng: Random, made: dict[str, Any], depth: int) -> None:
    kinds = made.get("type", rng.choice(TYPES))
    kind = rng.choice(kinds) if isinstance(kinds, list) else kinds
    options = _PLAIN.get(kind, []) * 3 + ["enum", "const"]
    if depth > 0:
        options += _NESTED.get(kind, []) * 4 + ["allOf", "anyOf", "anyOf", "oneOf", "not", "if"]
    keyword = rng.choice(options)
    made[keyword] = _VALUES[keyword](rng, depth)
    if keyword == "if":
        made[rng.choice(["then", "else"])] = _schema(rng, depth - 1)
    if keyword == "contains" and rng.random() < 0.4:
        made[rng.choice(["minContains", "maxContains"])] = rng.randint(0, 2)


def _loosen(rng: Random, target: dict[str, Any]) -> None:
    for keyword in list(target):
        value = target[keyword]
        if isinstance(value, bool) or rng.random() < 0.3:
            continue
        if isinstance(value, int | float) and keyword not in ("const", "multipleOf"):
            loose = keyword.startswith(("max", "exclusiveMax"))
            target[keyword] = value + (1 if loose or rng.random() < 0.2 else -1 if value > 0 else 0)
        elif keyword == "multipleOf":
            target[keyword] = rng.choice([value / 2, value, 1])
        elif keyword == "enum":
            target[keyword] = [*value, rng.choice([*TEXTS, *NUMBERS])]
        elif keyword == "type" and isinstance(value, str):
            target[keyword] = "number" if value == "integer" else sorted({value, rng.choice(TYPES)})
        elif keyword == "required" and value:
            target[keyword] = value[1:]
        elif keyword in ("anyOf", "oneOf"):
            target[keyword] = [*value, _schema(rng, 1)]


def _named(pool: list[str]) -> Callable[[Random, int], Any]:
    return lambda rng, depth: {name: _schema(rng, depth - 1) for name in rng.sample(pool, rng.randint(1, 3))}


def _several(rng: Random, depth: int) -> Any:
    return [_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]


def _below(rng: Random, depth: int) -> Any:
    return _schema(rng, depth - 1)


def _closing(rng: Random, depth: int) -> Any:
    return False if rng.random() < 0.6 else _schema(rng, depth - 1)


def _small(rng: Random, depth: int) -> Any:
    return rng.randint(0, 4)


def _number(rng: Random, depth: int) -> Any:
    return rng.choice(NUMBERS)


def _some_names(rng: Random, depth: int) -> Any:
    return rng.sample(NAMES, rng.randint(0, 2))


_VALUES: dict[str, Callable[[Random, int], Any]] = {
    "minimum": _number, "maximum": _number, "exclusiveMinimum": _number, "exclusiveMaximum": _number,
    "multipleOf": lambda rng, depth: rng.choice([1, 2, 3, 4, 0.5, 0.1, 2.0]),
    "minLength": _small, "maxLength": _small, "minItems": _small, "maxItems": _small,
    "minProperties": _small, "maxProperties": _small,
    "pattern": lambda rng, depth: rng.choice(PATTERNS), "format": lambda rng, depth: rng.choice(FORMATS),
    "uniqueItems": lambda rng, depth: rng.random() < 0.8,
    "required": _some_names, "dependentRequired": lambda rng, depth: {rng.choice(NAMES): _some_names(rng, depth)},
    "enum": lambda rng, depth: [value(rng, 1) for _ in range(rng.randint(1, 4))],
    "const": lambda rng, depth: value(rng, 1),
    "properties": _named(NAMES), "patternProperties": _named(PATTERNS), "dependentSchemas": _named(NAMES),
    "additionalProperties": _closing, "unevaluatedProperties": _closing, "unevaluatedItems": _closing,
    "propertyNames": lambda rng, depth: rng.choice(
        [{"enum": NAMES[:3]}, {"maxLength": 1}, {"pattern": "^a"}, {"minLength": 2}]
    ),
    "items": _closing, "prefixItems": _several, "contains": _below,
    "allOf": _several, "anyOf": _several, "oneOf": _several, "not": _below, "if": _below,
}  # fmt: skip
_NUMERIC = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
_PLAIN = {
    "integer": _NUMERIC, "number": _NUMERIC, "string": ["minLength", "maxLength", "pattern", "format"],
    "array": ["minItems", "maxItems", "uniqueItems"],
    "object": ["required", "dependentRequired", "minProperties", "maxProperties", "propertyNames"],
}  # fmt: skip
_NESTED = {
    "array": ["items", "prefixItems", "contains", "unevaluatedItems"],
    "object": ["properties", "properties", "patternProperties", "additionalProperties", "unevaluatedProperties",
               "dependentSchemas"],
}  # fmt: skip


def value(rng: Random, depth: int = 3) -> Any:
    """A random value from the same pools as the schemas."""
    kind = rng.choice(TYPES)
    if depth > 0 and kind == "object":
        return {name: value(rng, depth - 1) for name in rng.sample(NAMES, rng.randint(0, 3))}
    if depth > 0 and kind == "array":
        return [value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if kind in ("integer", "number"):
        return rng.choice(NUMBERS)
    return rng.choice(TEXTS) if kind in ("string", "object", "array") else rng.choice([None, True, False])


def near(rng: Random, wanted: Any, root: Any, depth: int = 5) -> Any:
    """A value that nearly satisfies a schema."""
    if not isinstance(wanted, dict) or depth <= 0:
        return value(rng, 1)
    if "$ref" in wanted and rng.random() < 0.8:
        return near(rng, root["$defs"]["d"], root, depth - 1)
    listed = [*wanted.get("enum", ()), *([wanted["const"]] if "const" in wanted else ())]
    if listed and rng.random() < 0.9:
        return rng.choice(listed)
    inner = [part for word in ("allOf", "anyOf", "oneOf") for part in wanted.get(word, ())]
    inner += [wanted[word] for word in ("then", "else", "if") if word in wanted]
    if inner and rng.random() < 0.5:
        return near(rng, rng.choice(inner), root, depth - 1)
    kinds = wanted.get("type") or _likely(rng, wanted)
    kind = rng.choice(kinds) if isinstance(kinds, list) else kinds
    return _of_kind(rng, kind, wanted, root, depth)


def _likely(rng: Random, wanted: dict[str, Any]) -> str:
    fitting = [
        kind for kind in TYPES if any(word in wanted for word in [*_PLAIN.get(kind, []), *_NESTED.get(kind, [])])
    ]
    return rng.choice(fitting) if fitting and rng.random() < 0.8 else rng.choice(TYPES)


def _of_kind(rng: Random, kind: str, wanted: dict[str, Any], root: Any, depth: int) -> Any:
    if kind == "object":
        return _near_object(rng, wanted, root, depth)
    if kind == "array":
        return _near_array(rng, wanted, root, depth)
    if kind == "string":
        return "a" * rng.randint(0, 5) if rng.random() < 0.3 else rng.choice(TEXTS)
    if kind in ("integer", "number"):
        edges = [wanted[word] for word in _NUMERIC if word in wanted]
        if edges and rng.random() < 0.5:
            return rng.choice(edges) + rng.choice([-1, -0.5, 0, 0.5, 1])
        return rng.choice([*NUMBERS, *edges, *(edge + step for edge in edges for step in (-1, 1, 0.5))])
    return None if kind == "null" else rng.random() < 0.5


def _near_object(rng: Random, wanted: dict[str, Any], root: Any, depth: int) -> Any:
    properties = wanted.get("properties", {})
    names = {name for name in [*NAMES, *properties] if rng.random() < (0.6 if name in properties else 0.15)}
    names |= {name for name in wanted.get("required", ()) if rng.random() < 0.95}
    names |= (
        set(rng.sample(NAMES, rng.randint(0, 5))) if "minProperties" in wanted or "maxProperties" in wanted else set()
    )
    others = [*wanted.get("patternProperties", {}).values(), wanted.get("additionalProperties", True)]
    return {n: near(rng, properties.get(n, rng.choice(others)), root, depth - 1) for n in sorted(names)}


def _near_array(rng: Random, wanted: dict[str, Any], root: Any, depth: int) -> Any:
    prefix = wanted.get("prefixItems", [])
    length: int = rng.choice([0, 1, 2, 3, wanted.get("minItems", 0), wanted.get("maxItems", 1), len(prefix)])
    rest = [wanted.get("items", True), wanted.get("contains", True)]
    return [near(rng, prefix[i] if i < len(prefix) else rng.choice(rest), root, depth - 1) for i in range(length)]
