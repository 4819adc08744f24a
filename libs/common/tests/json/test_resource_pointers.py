"""The resources that a payload names."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.resource_pointers import ResourcePointers

FILE = {"type": "string", "x-resource": "file"}


@pytest.mark.parametrize(
    ("schema", "payload", "named"),
    [
        ({"properties": {"path": FILE, "text": {"type": "string"}}}, {"path": "/a", "text": "b"}, ("file:/a",)),
        ({"properties": {"path": FILE}}, {}, ()),
        ({"properties": {"paths": {"items": FILE}}}, {"paths": ["/a", "/b", "/a"]}, ("file:/a", "file:/b")),
        # On a list or an object the mark holds for everything below.
        ({"properties": {"paths": {"x-resource": "file"}}}, {"paths": ["/a", {"k": "/b"}]}, ("file:/a", "file:/b")),
        ({"properties": {"pair": {"prefixItems": [{}, FILE]}}}, {"pair": ["x", "/a", "y"]}, ("file:/a",)),
        ({"properties": {"deep": {"properties": {"path": FILE}}}}, {"deep": {"path": "/a"}}, ("file:/a",)),
        ({"additionalProperties": FILE}, {"whatever": "/a"}, ("file:/a",)),
        ({"patternProperties": {"^p": FILE}}, {"q": "/a"}, ("file:/a",)),
        ({"$defs": {"f": FILE}, "properties": {"path": {"$ref": "#/$defs/f"}}}, {"path": "/a"}, ("file:/a",)),
        ({"oneOf": [{"properties": {"a": FILE}}, {"properties": {"a": {"x-resource": "url"}}}]}, {"a": "x"}, None),
        # Recursive schemas end with the payload.
        ({"$defs": {"n": {"properties": {"path": FILE, "next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
         {"path": "/a", "next": {"path": "/b"}}, ("file:/a", "file:/b")),
        ({"properties": {"account": {"x-resource": "account"}}}, {"account": 42}, ("account:42",)),
        ({"properties": {"flag": {"x-resource": "flag"}}}, {"flag": True}, ()),
        # A pointer that cannot be followed is an unknown resource.
        ({"properties": {"a": {"$ref": "#name"}, "b": FILE}}, {"a": "/a"}, ("unknown:/a",)),
        ({"properties": {"a": {"x-resource": 5}}}, {"a": "/a"}, ("unknown:/a",)),
    ],
)  # fmt: skip
def test_what_is_named(schema: dict[str, Any], payload: Any, named: tuple[str, ...] | None) -> None:
    places = ResourcePointers.of(schema)
    assert places is not None
    if named is None:
        assert sorted(places(payload)) == ["file:x", "url:x"]
    else:
        assert places(payload) == named


def test_a_schema_that_marks_nothing_has_no_places() -> None:
    assert ResourcePointers.of({"properties": {"path": {"type": "string"}}}) is None


def test_a_schema_that_never_ends_names_everything() -> None:
    schema = {"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}, "b": FILE}}
    places = ResourcePointers.of(schema)
    assert places is not None
    assert places({"a": "/a"}) == ("unknown:/a",)
