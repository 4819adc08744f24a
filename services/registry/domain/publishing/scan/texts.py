"""Collects every text of a manifest with its field path and, inside embedded JSON, its JSON Pointer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.json.json_pointer import pointer_of

# Fields of the contract that embed JSON of the author.
_EMBEDDED = frozenset({"schema", "runtime_schema", "error_schema", "arguments", "result", "meta"})
# Machine-readable texts, which are not scanned as prose and may hold blobs.
_MACHINE = frozenset({"pattern", "digest", "descriptor_digest", "documentation_url", "source_code_url", "entry_point"})
# Digests, keys and signatures, whose patterns leave no room for prose.
_KEYS = frozenset(f"manifest.provenance.{name}" for name in ("pack_digest", "public_key", "signature"))


@dataclass(frozen=True, slots=True)
class Text:
    """One text, and whether it is prose."""

    path: str
    value: str
    prose: bool


def texts_of(document: Mapping[str, Any]) -> Iterator[Text]:
    """Yield the texts of a manifest, including property names."""
    for key, value in document.items():
        yield from _field(f"manifest.{key}", key, value)


def _field(path: str, key: str, value: Any) -> Iterator[Text]:
    if key in _EMBEDDED:
        yield from _embedded(f"{path}#", value)
    elif isinstance(value, str):
        yield Text(path, value, key not in _MACHINE and path not in _KEYS)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _field(f"{path}[{index}]", key, item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if key == "annotations":
                yield Text(f"{path}.{_shown(name)}", name, True)
            yield from _field(f"{path}.{_shown(name)}", name, item)


def _embedded(path: str, value: Any, key: str = "") -> Iterator[Text]:
    if isinstance(value, str):
        yield Text(path.removesuffix("#"), value, key not in _MACHINE)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _embedded(f"{path}/{index}", item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            place = f"{path}/{_shown(name)}"
            yield Text(place, name, True)
            yield from _embedded(place, item, name)


def _shown(name: str) -> str:
    """Return a name for display in a path: escaped, ASCII only and shortened."""
    return ascii(pointer_of([name])[1:])[1:-1][:80]
