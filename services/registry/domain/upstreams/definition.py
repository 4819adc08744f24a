"""Names, digests and texts of the definitions of upstreams' tools, of every kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from libs.common.errors import MeshError, Violation
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from services.registry.domain.publishing.manifest import Manifest, MutationClass
from services.registry.domain.upstreams.upstream import Upstream

MAX_DEFINITION_BYTES = 64 * 1024
_MAX_NAME, _MAX_TITLE, _MAX_DESCRIPTION = 128, 255, 2000
_SHORTEST_NAME, _SHORTEST_TITLE, _SHORTEST_DESCRIPTION = 3, 3, 10
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHER_CHARACTERS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class MappedTool:
    """The manifest of a definition, and what it says differently."""

    manifest: Manifest
    digest: str
    notes: tuple[str, ...]


class UnusableDefinitionError(Exception):
    """A definition cannot become a manifest. The violations say why."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__()
        self.violations = violations


def parse_definition(definition: bytes) -> dict[str, Any]:
    """Parse a definition. Raises UnusableDefinitionError if it is no JSON object or too large."""
    if len(definition) > MAX_DEFINITION_BYTES:
        message = f"has more than {MAX_DEFINITION_BYTES} bytes"
        raise UnusableDefinitionError(Violation("definition", "definition.size", message))
    try:
        return parse_object(definition)
    except MeshError as error:
        raise UnusableDefinitionError(Violation("definition", "definition.json", error.message)) from None


def definition_digest(definition: bytes) -> str:
    """Return the digest of a definition, equal for definitions that differ only in JSON formatting.

    Raises UnusableDefinitionError if it is no JSON object or too large.
    """
    return digest(parse_definition(definition))


def tool_id(native_name: str) -> str:
    """Return the id of a native name: `getCurrentTime` and `get-current-time` become `get_current_time`."""
    spaced = _WORD_STARTS.sub("_", native_name)
    text = _OTHER_CHARACTERS.sub("_", spaced.lower()).strip("_")[:_MAX_NAME]
    return text if len(text) >= _SHORTEST_NAME and text[0].isalpha() else f"tool_{text}".rstrip("_")


def title_of(titles: Iterable[Any], native_name: str) -> str:
    """Return the first usable title, or one made of the native name."""
    usable = (each for each in (*titles, native_name) if isinstance(each, str) and len(each.strip()) >= _SHORTEST_TITLE)
    return (next(usable, "").strip() or f"Tool {native_name}")[:_MAX_TITLE]


def description_of(text: Any, upstream: Upstream, native_name: str, notes: list[str]) -> str:
    """Return a description of the length that manifests have."""
    described = text.strip() if isinstance(text, str) else ""
    if len(described) < _SHORTEST_DESCRIPTION:
        return f"{described or native_name} (a tool of the upstream {upstream.upstream_id})"
    if len(described) > _MAX_DESCRIPTION:
        notes.append(f"the description is cut after {_MAX_DESCRIPTION} characters")
    return described[:_MAX_DESCRIPTION]


def safety_of(mutation: MutationClass) -> dict[str, Any]:
    """Return the safety claims of a tool."""
    claims = {"read_only": True, "non_destructive": True} if mutation is MutationClass.READ_ONLY else {}
    return {"concurrency_safe": True, "sandbox_tier": "process", **claims}


def effects_of(upstream: Upstream, native_name: str, mutation: MutationClass, *, repeatable: bool) -> dict[str, Any]:
    """Return what a manifest says about effects. `repeatable` is whether the effect of two calls is that of one."""
    if mutation is MutationClass.READ_ONLY:
        return {"idempotency": {"mode": "natural", "uncertain_outcome": "repeat"}}
    overlay = upstream.overlay_of(native_name)
    return {
        "side_effects": [{"resource": f"upstream:{upstream.upstream_id}", "operation": "update"}],
        "idempotency": {
            "mode": "natural" if repeatable else "key_required",
            "uncertain_outcome": "repeat" if repeatable else "fail",
        },
        # The mesh previews it from the manifest: which server would be sent what, and the declared effects.
        "dry_run_supported": True,
        **({"compensation_tool": overlay.compensation_tool} if overlay and overlay.compensation_tool else {}),
    }
