"""What an answer tells beside its result, as much of it as one message holds. Pure.

A message of the mesh has 4 MiB, and a result may take three of them. A run may change a hundred thousand files and a decision may remove a
field from every row: whoever told all of that could not be heard at all, after everything was done.
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
PLACES_BYTES = 64 * 1024
CONTEXT_BYTES = 128 * 1024
_INDEX = re.compile(r"/[0-9]+(?=/|$)")
# What Protobuf writes around each of them, at most.
_AROUND = 16
T = TypeVar("T")


def truncate_effects(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return the first effects, as many as there is room for."""
    return _first(effects, _effect_size, EFFECTS_BYTES)


def truncate_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the first of what hooks have to say to the model, as many texts as there is room for."""
    return _first(texts, _place_size, CONTEXT_BYTES)


def truncate_paths(pointers: Sequence[str]) -> tuple[str, ...]:
    """Return JSON Pointers, with `*` for every entry of a list where they are too many; the root alone where that does not help."""
    if _fit(pointers, _place_size, PLACES_BYTES):
        return tuple(pointers)
    general = tuple(dict.fromkeys(_INDEX.sub(f"/{EVERY}", pointer) for pointer in pointers))
    return general if _fit(general, _place_size, PLACES_BYTES) else ("",)


def truncate_changes(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return changes to arguments, fewer in the same way; the root stands for all that one rule or hook changed."""
    if _fit(changes, _change_size, CHANGES_BYTES):
        return tuple(changes)
    general = _renamed(changes, lambda path: _INDEX.sub(f"/{EVERY}", path))
    if not _fit(general, _change_size, CHANGES_BYTES):
        general = _renamed(general, lambda path: "")
    return _first(general, _change_size, CHANGES_BYTES)


def size_beside(result: Result) -> int:
    """Return how many bytes a result takes beside its content, near enough."""
    texts = [*result.context, result.rendered.model, result.rendered.ui, result.rendered.search]
    lists = (
        sum(map(_effect_size, result.effects)),
        sum(map(_place_size, result.changed)),
        sum(map(_change_size, result.changes)),
    )
    stored = 0 if result.stored is None else len(result.stored.preview)
    return len(result.undo) + stored + sum(len(text.encode()) for text in texts) + sum(lists)


def _renamed(changes: Iterable[Change], name: Callable[[str], str]) -> tuple[Change, ...]:
    return tuple(dict.fromkeys(Change(name(each.path), each.source, each.reason) for each in changes))


def _fit(entries: Sequence[T], size: Callable[[T], int], room: int) -> bool:
    return not entries or sum(map(size, entries)) <= room


def _first(entries: Sequence[T], size: Callable[[T], int], room: int) -> tuple[T, ...]:
    for place, entry in enumerate(entries):
        room -= size(entry)
        if room < 0:
            return tuple(entries[:place])
    return tuple(entries)


def _effect_size(effect: Effect) -> int:
    return len(effect.resource.encode()) + len(effect.operation) + _AROUND


def _place_size(pointer: str) -> int:
    return len(pointer.encode()) + _AROUND


def _change_size(change: Change) -> int:
    # Told twice: as a place that was adjusted, and as a change with its source.
    return 2 * len(change.path.encode()) + len(change.source) + len(change.reason.encode()) + _AROUND
