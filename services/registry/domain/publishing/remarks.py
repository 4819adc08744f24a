"""What a manifest should say better. It is admitted all the same; `toolmesh tools check` shows these remarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from libs.common.errors import Violation
from libs.common.json.json_pointer import pointer_of
from services.registry.domain.publishing.manifest import Manifest

_INPUT = "manifest.input.schema"
# More say nothing more.
_MOST = 20
_DEEPEST = 8


def remarks(manifest: Manifest) -> list[Violation]:
    """Return the remarks about a manifest."""
    found = [*_undescribed(manifest.input.get("schema"), "", 0)]
    return [
        Violation(f"{_INPUT}#{pointer}", "description.missing", "has no description, by which a model fills it in")
        for pointer in found[:_MOST]
    ]


def _undescribed(schema: Any, pointer: str, depth: int) -> Iterator[str]:
    """Yield the pointers of arguments without a description, those inside of others too."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or depth > _DEEPEST:
        return
    for name, part in properties.items():
        below = f"{pointer}/properties{pointer_of([name])}"
        # A reference is described where it leads.
        if isinstance(part, Mapping) and not str(part.get("description", "")).strip() and "$ref" not in part:
            yield below
        yield from _undescribed(part, below, depth + 1)
