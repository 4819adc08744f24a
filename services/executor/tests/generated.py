"""Arguments generated from a schema: those that keep it, and those that break it in one known way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse

_OF_ANOTHER_TYPE: dict[str, list[Any]] = {
    "string": [7, True, None, ["a"], {"a": "b"}],
    "integer": ["seven", True, None, 0.5, [1], {"a": 1}],
    "number": ["seven", True, None, [1], {"a": 1}],
    "boolean": ["yes", 1, None, [True], {}],
    "array": ["a", 7, None, {}],
    "object": ["a", 7, None, []],
}


ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


class Broken(NamedTuple):
    """Arguments that break their schema in one way: which, and where."""

    how: str
    path: str
    arguments: dict[str, Any]


def keeping(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Generate arguments that keep a schema of an object.

    Built member by member, because the generator of whole objects leans on inner parts of Hypothesis that come and go.
    """
    required = set(schema.get("required", ()))
    members = {name: _value(part) for name, part in schema.get("properties", {}).items()}
    return st.fixed_dictionaries(
        {name: value for name, value in members.items() if name in required},
        optional={name: value for name, value in members.items() if name not in required},
    )


def at_the_bounds(schema: dict[str, Any], sample: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yield a member's name, a value just within or just beyond one of its bounds, and whether it is within."""
    for name, part in schema.get("properties", {}).items():
        if "maxLength" in part:
            # One letter that is known to be allowed there.
            longest = (str(sample.get(name, "")) or "a")[0] * (part["maxLength"] + 1)
            yield name, longest[:-1], True
            yield name, longest, False
        if part.get("minLength", 0) > 0:
            yield name, "", False
        for bound, step in (("minimum", -1), ("maximum", 1)):
            if bound in part:
                yield name, part[bound], True
                yield name, part[bound] + step, False


def breaking(schema: dict[str, Any], sample: dict[str, Any]) -> Iterator[Broken]:
    """Yield arguments that differ from a good sample in one way: something missing, something extra, something of
    another type.
    """
    for name in schema.get("required", ()):
        rest = {key: value for key, value in sample.items() if key != name}
        yield Broken("missing", f"/{name}", rest)
    for extra in ("undeclared", "__proto__", "", "a/b", "x" * 300):
        pointer = "/" + extra.replace("~", "~0").replace("/", "~1")
        yield Broken("extra", pointer, {**sample, extra: 1})
    for name, part in schema.get("properties", {}).items():
        for wrong in _OF_ANOTHER_TYPE.get(part.get("type", ""), ()):
            yield Broken("type", f"/{name}", {**sample, name: wrong})


def _value(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, dict) and schema.get("type") == "object":
        return keeping(schema)
    if not any(keyword in schema for keyword in ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")):
        return ANY_JSON
    return from_schema(schema).filter(_has_a_form)


def _has_a_form(value: Any) -> bool:
    """Say whether the contract's JSON can hold a value: integers past 64 bits and lone surrogates it cannot."""
    try:
        return parse(dump(value)) == value
    except MeshError:
        return False
