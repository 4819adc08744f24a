"""Truncates the metadata of a result, so that the response always fits into one message. Pure.

gRPC messages are capped at 4 MiB, the result at 3 MiB. A run may change a hundred thousand files, and an obligation may
remove a field from every row: effects, changes and paths are truncated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from libs.common.json.json_pointer import EVERY
from services.executor.domain.argument_spec import Change
from services.executor.domain.model import Result
from services.executor.domain.tool import Effect

EFFECTS_BYTES = 256 * 1024
UNDO_BYTES = 256 * 1024
CHANGES_BYTES = 192 * 1024
PATHS_BYTES = 64 * 1024
CONTEXT_BYTES = 128 * 1024
_INDEX = re.compile(r"/[0-9]+(?=/|$)")
# The most bytes that Protobuf adds to each entry.
_AROUND = 16
T = TypeVar("T")


def truncate_effects(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return the first effects, as many as fit."""
    return _first(effects, _effect_size, EFFECTS_BYTES)


def truncate_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the first context texts of hooks, as many as fit."""
    return _first(texts, _path_size, CONTEXT_BYTES)


def truncate_paths(pointers: Sequence[str]) -> tuple[str, ...]:
    """Return JSON Pointers; if they are too many, with `*` for list entries; if still too many, the root."""
    if _fit(pointers, _path_size, PATHS_BYTES):
        return tuple(pointers)
    general = tuple(dict.fromkeys(_INDEX.sub(f"/{EVERY}", pointer) for pointer in pointers))
    return general if _fit(general, _path_size, PATHS_BYTES) else ("",)


def truncate_changes(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return argument changes, truncated like paths; the root stands for all changes of one rule or hook."""
    if _fit(changes, _change_size, CHANGES_BYTES):
        return tuple(changes)
    general = _renamed(changes, lambda path: _INDEX.sub(f"/{EVERY}", path))
    if not _fit(general, _change_size, CHANGES_BYTES):
        general = _renamed(general, lambda path: "")
    return _first(general, _change_size, CHANGES_BYTES)


def size_beside(result: Result) -> int:
    """Return roughly how many bytes a result takes beside its content."""
    texts = [*result.context, result.rendered.model, result.rendered.ui, result.rendered.search]
    lists = (
        sum(map(_effect_size, result.effects)),
        sum(map(_effect_size, result.declared)),
        sum(map(_path_size, result.changed)),
        sum(map(_change_size, result.changes)),
    )
    stored = 0 if result.stored is None else len(result.stored.preview)
    return len(result.undo) + stored + sum(len(text.encode()) for text in texts) + sum(lists)


def _renamed(changes: Iterable[Change], name: Callable[[str], str]) -> tuple[Change, ...]:
    return tuple(dict.fromkeys(Change(name(each.path), each.source, each.reason) for each in changes))


def _fit(entries: Sequence[T], size: Callable[[T], int], room: int) -> bool:
    return not entries or sum(map(size, entries)) <= room


def _first(entries: Sequence[T], size: Callable[[T], int], room: int) -> tuple[T, ...]:
    for index, entry in enumerate(entries):
        room -= size(entry)
        if room < 0:
            return tuple(entries[:index])
    return tuple(entries)


def _effect_size(effect: Effect) -> int:
    return len(effect.resource.encode()) + len(effect.operation) + len(effect.before) + len(effect.after) + _AROUND


def _path_size(pointer: str) -> int:
    return len(pointer.encode()) + _AROUND


def _change_size(change: Change) -> int:
    # Sent twice: as an adjusted path, and as a change with its source.
    return 2 * len(change.path.encode()) + len(change.source) + len(change.reason.encode()) + _AROUND
