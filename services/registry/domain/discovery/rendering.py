"""What a model reads about tools. Every piece is whole lines that begin with a visible character, so that the tokens of
a text are those of its pieces together; the caller counts the whole all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from libs.common.json.jsonio import dump
from services.registry.domain.discovery.results import Listing
from services.registry.domain.publishing.manifest import Manifest, MutationClass

# What a tool does to the world, behind its name.
MARKS: Mapping[MutationClass, str] = {
    MutationClass.READ_ONLY: "",
    MutationClass.WRITE_REVERSIBLE: "~",
    MutationClass.WRITE_IRREVERSIBLE: "!",
}
_SHOWN_DEPTH = 2
# Stands in a schema where a part of it was left out.
CUT = "x-truncated"
_EXAMPLES = 3


def pointer(tools: int) -> str:
    """Return the least that can be said."""
    return f"{tools} tools; search to find one.\n"


def heading(tools: int) -> str:
    """Return the first line above an index."""
    return f"{tools} tools as namespace: name (~ undoable, ! permanent). Search for more; load a schema to call.\n"


def index_lines(listings: Iterable[Listing], *, titles: bool) -> str:
    """Return a line for each tool beneath a line for its namespace."""
    ordered = sorted(listings, key=lambda listing: listing.name.qualified)
    lines = []
    for namespace, members in groupby(ordered, key=lambda listing: listing.name.namespace):
        lines.append(f"{namespace}:\n")
        lines.extend(_line(listing, titles) for listing in members)
    return "".join(lines)


def category_line(category: str, tools: int) -> str:
    """Return the line of a category."""
    return f"{_flat(category)} ({tools})\n"


def schema_text(manifest: Manifest) -> str:
    """Return tier 1: what the tool is for, and the top of its input schema."""
    shown = {"name": manifest.name.qualified, "description": manifest.text("description")}
    return _json({**shown, "input_schema": _shallow(manifest.input.get("schema", {}), _SHOWN_DEPTH)})


def detail_text(manifest: Manifest) -> str:
    """Return tier 2: the whole input and output schema, examples, and what matters to a caller."""
    examples = [example.arguments for example in manifest.examples[:_EXAMPLES]]
    shown: dict[str, Any] = {
        "name": manifest.name.qualified,
        "description": manifest.text("description"),
        "mutation_class": manifest.mutation_class.value,
        "input_schema": manifest.input.get("schema", {}),
        "output_schema": manifest.output.get("schema", {}),
    }
    return _json({**shown, "examples": examples} if examples else shown)


def _line(listing: Listing, titles: bool) -> str:
    name = listing.name.tool_id + MARKS[listing.mutation_class]
    return f"{name} {_flat(listing.title)}\n" if titles else f"{name}\n"


def _flat(text: str) -> str:
    # A title with a line break could pass for a line of its own.
    return " ".join(text.split())


def _json(shown: Mapping[str, Any]) -> str:
    return dump(shown).decode() + "\n"


def _shallow(schema: Any, depth: int) -> Any:
    """Return a schema whose parts below a depth are left out, and say where."""
    if isinstance(schema, Mapping):
        nested = ("properties", "items", "anyOf", "oneOf", "allOf", "$defs", "prefixItems")
        if depth == 0 and any(part in schema for part in nested):
            kept = {key: value for key, value in schema.items() if key in ("type", "description", "title")}
            return {**kept, CUT: True}
        return {key: _part(key, value, depth) for key, value in schema.items()}
    return schema


def _part(key: str, value: Any, depth: int) -> Any:
    if key in ("properties", "$defs") and isinstance(value, Mapping):
        return {name: _shallow(part, depth - 1) for name, part in value.items()}
    if key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, Sequence) and not isinstance(value, str):
        return [_shallow(part, depth - 1) for part in value]
    return _shallow(value, depth - 1) if key == "items" else value
