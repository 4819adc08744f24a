"""Renders tools as text for a model. Every piece consists of whole lines that begin with a visible character, so that
token counts of pieces add up; the caller counts the joined text anyway."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from libs.common.json.jsonio import dump
from libs.common.tool_names import ToolName
from services.registry.domain.discovery.results import Listing
from services.registry.domain.publishing.manifest import Manifest, MutationClass
from services.registry.domain.trust.look_alikes import LookAlike

# The suffix of a tool name for its mutation class.
MARKS: Mapping[MutationClass, str] = {
    MutationClass.READ_ONLY: "",
    MutationClass.WRITE_REVERSIBLE: "~",
    MutationClass.WRITE_IRREVERSIBLE: "!",
}
# The suffix of a tool name whose calls need an approval.
APPROVAL_MARK = "?"
_SHOWN_DEPTH = 2
# The marker in a schema for an omitted part.
TRUNCATED_MARKER = "x-truncated"
_EXAMPLES = 3


def pointer(tools: int) -> str:
    """Return the shortest form of the index."""
    return f"{tools} tools; search to find one.\n"


def heading(tools: int, *, approvals: bool) -> str:
    """Return the first line of an index; with the mark of approvals if a tool needs one."""
    marks = f"~ undoable, ! permanent{', ? needs approval' if approvals else ''}"
    return f"{tools} tools as namespace: name ({marks}). Search for more; load a schema to call.\n"


def index_lines(listings: Iterable[Listing], *, titles: bool, approvals: Container[ToolName] = ()) -> str:
    """Return one line for each tool, grouped under its namespace. Tools in `approvals` are marked."""
    ordered = sorted(listings, key=lambda listing: listing.name.qualified)
    lines = []
    for namespace, members in groupby(ordered, key=lambda listing: listing.name.namespace):
        lines.append(f"{namespace}:\n")
        lines.extend(_line(listing, titles, listing.name in approvals) for listing in members)
    return "".join(lines)


def category_line(category: str, tools: int) -> str:
    """Return the line of a category."""
    return f"{_flat(category)} ({tools})\n"


def schema_text(manifest: Manifest, *, needs_approval: bool = False, look_alikes: Sequence[LookAlike] = ()) -> str:
    """Return the schema tier: description and the top levels of the input schema."""
    shown = _heading_fields(manifest, needs_approval, look_alikes)
    return _json({**shown, "input_schema": _shallow(manifest.input.get("schema", {}), _SHOWN_DEPTH)})


def detail_text(manifest: Manifest, *, needs_approval: bool = False, look_alikes: Sequence[LookAlike] = ()) -> str:
    """Return the detail tier: the whole input and output schema, examples and the mutation class."""
    examples = [example.arguments for example in manifest.examples[:_EXAMPLES]]
    shown: dict[str, Any] = {
        **_heading_fields(manifest, needs_approval, look_alikes),
        "mutation_class": manifest.mutation_class.value,
        "input_schema": manifest.input.get("schema", {}),
        "output_schema": manifest.output.get("schema", {}),
    }
    return _json({**shown, "examples": examples} if examples else shown)


def _heading_fields(manifest: Manifest, needs_approval: bool, look_alikes: Sequence[LookAlike]) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": manifest.name.qualified, "description": manifest.text("description")}
    if needs_approval:
        shown["needs_approval"] = True
    if look_alikes:
        shown["not_to_be_confused_with"] = [alike.name.partition("/")[2] for alike in look_alikes]
    return shown


def _line(listing: Listing, titles: bool, needs_approval: bool) -> str:
    name = listing.name.tool_id + MARKS[listing.mutation_class] + (APPROVAL_MARK if needs_approval else "")
    return f"{name} {_flat(listing.title)}\n" if titles else f"{name}\n"


def _flat(text: str) -> str:
    # A title with a line break could be mistaken for another entry.
    return " ".join(text.split())


def _json(shown: Mapping[str, Any]) -> str:
    return dump(shown).decode() + "\n"


def _shallow(schema: Any, depth: int) -> Any:
    """Return a schema without the parts below a depth, with markers for them."""
    if isinstance(schema, Mapping):
        nested = ("properties", "items", "anyOf", "oneOf", "allOf", "$defs", "prefixItems")
        if depth == 0 and any(part in schema for part in nested):
            summary = {key: value for key, value in schema.items() if key in ("type", "description", "title")}
            return {**summary, TRUNCATED_MARKER: True}
        return {key: _part(key, value, depth) for key, value in schema.items()}
    return schema


def _part(key: str, value: Any, depth: int) -> Any:
    if key in ("properties", "$defs") and isinstance(value, Mapping):
        return {name: _shallow(part, depth - 1) for name, part in value.items()}
    if key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, Sequence) and not isinstance(value, str):
        return [_shallow(part, depth - 1) for part in value]
    return _shallow(value, depth - 1) if key == "items" else value
