"""What authors are asked to say better."""

from __future__ import annotations

from typing import Any

from libs.common.json.jsonio import dump
from services.registry.convert.manifest import manifest_of
from services.registry.domain.publishing.remarks import remarks
from services.registry.tests.manifests import reader

DESCRIBED = {"type": "string", "description": "A text such as `a`."}


def about(properties: dict[str, Any]) -> list[tuple[str, str]]:
    message = reader()
    message.input.schema = dump({"type": "object", "properties": properties})
    return [(remark.path, remark.rule) for remark in remarks(manifest_of(message))]


def test_arguments_without_a_description_are_named_at_every_depth() -> None:
    inner = {"type": "object", "description": "d", "properties": {"b": {"type": "string", "description": " "}}}
    assert about({"a/b": {"type": "string"}, "o": inner, "ok": DESCRIBED, "ref": {"$ref": "#/$defs/x"}}) == [
        ("manifest.input.schema#/properties/a~1b", "description.missing"),
        ("manifest.input.schema#/properties/o/properties/b", "description.missing"),
    ]
    assert about({"ok": DESCRIBED, "any": True}) == []


def test_very_many_are_not_all_named() -> None:
    assert len(about({f"a{n}": {"type": "string"} for n in range(100)})) == 20
