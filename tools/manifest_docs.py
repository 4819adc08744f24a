"""Render the fields of a manifest as docs/manifest.md, from the contract, its comments and the defaults."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# The fields of a manifest

Written by `make proto` from `proto/toolmesh/registry/v1/tool_manifest.proto` and the defaults in
`sdk/toolmesh_sdk/manifests/defaults.py`; edit them there.
[Manifests](manifests.md) says what is admitted and how to check a manifest.

This is a whole manifest. What it leaves out takes the default of its field, which allows the least:

```json
{
  "namespace": "acme",
  "tool_id": "word_count",
  "description": "Counts the words of a text.",
  "mutation_class": "read_only",
  "input": {"schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
  "execution": {"entry_point": "acme/words:count"}
}
```

Enums are lower-case words, schemas and examples are JSON, and a length of time is a string such as `5s` or `0.25s`.
A field `$schema` at the top may name the JSON Schema for your editor, which `toolmesh tools schema manifest` prints.
"""
COLUMNS = "| field | value | left out | meaning |\n|---|---|---|---|"


def render() -> str:
    """Render the whole page; the comments are read from gen/, so generate the stubs first."""
    sys.path[:0] = [str(ROOT / "gen"), str(ROOT / "sdk")]
    from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

    sections = [HEAD, *(_section(path, message) for path, message in _sections(ToolManifest.DESCRIPTOR, "", set()))]
    return "\n".join(sections) + "\n" + _enums(ToolManifest.DESCRIPTOR)


def _sections(message: Any, path: str, seen: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield each message once, with the path where a document has it first."""
    from toolmesh_sdk.manifests.json_schema import is_duration, is_map

    yield path, message
    for field in message.fields:
        inner = field.message_type
        if inner is not None and not is_map(field) and not is_duration(field) and inner.full_name not in seen:
            seen.add(inner.full_name)
            yield from _sections(inner, f"{path}.{field.name}".lstrip("."), seen)


def _section(path: str, message: Any) -> str:
    from toolmesh.comments import COMMENTS

    title = f"`{path}`" if path else "The manifest"
    rows = "\n".join(_row(path, field) for field in message.fields)
    return f"## {title}\n\n{COMMENTS[message.full_name]}\n\n{COLUMNS}\n{rows}\n"


def _row(path: str, field: Any) -> str:
    from toolmesh.comments import COMMENTS
    from toolmesh_sdk.manifests.defaults import DEFAULTS
    from toolmesh_sdk.manifests.json_schema import REQUIRED

    place = f"{path}.{field.name}".lstrip(".")
    default = next((each.words for each in DEFAULTS if each.path == place), "")
    left_out = "**required**" if place in REQUIRED else default
    meaning = COMMENTS.get(field.full_name, "").replace("|", "\\|")
    return f"| `{field.name}` | {_value(field)} | {left_out} | {meaning} |"


def _value(field: Any) -> str:
    from toolmesh_sdk.manifests.json_schema import is_duration, is_map

    if is_map(field):
        return "object of strings"
    kinds = {field.TYPE_BYTES: "JSON", field.TYPE_BOOL: "true or false", field.TYPE_STRING: "text"}
    if is_duration(field):
        kind = "time"
    elif field.message_type is not None:
        kind = "object"
    elif field.enum_type is not None:
        kind = f"[{field.enum_type.name}](#{field.enum_type.name.lower()})"
    else:
        kind = kinds.get(field.type, "number")
    return f"list of {kind}" if field.is_repeated else kind


def _enums(root: Any) -> str:
    from toolmesh.comments import COMMENTS
    from toolmesh_sdk.manifests.labels import label_of

    parts = []
    for enum in _enums_of(root):
        names = [value.name for value in enum.values if value.number]
        rows = "\n".join(f"| `{label_of(enum, name)}` | {COMMENTS[f'{enum.full_name}.{name}']} |" for name in names)
        parts.append(f"## {enum.name}\n\n| value | meaning |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _enums_of(root: Any) -> list[Any]:
    messages = [message for _, message in _sections(root, "", set())]
    enums = {f.enum_type.name: f.enum_type for message in messages for f in message.fields if f.enum_type is not None}
    return [enums[name] for name in sorted(enums)]
