"""Differences between two JSON values. Pure.

A difference is JSON too: `[0, value]` replaces a value; `[1, changed, removed, added]` changes members of an object;
`[2, head, tail, middle]` keeps the first `head` and the last `tail` items of a list and puts `middle` between them;
`[3, index, difference]` changes one item of a list.
"""

from __future__ import annotations

from typing import Any

_REPLACE, _OBJECT, _SPLICE, _ITEM = range(4)


class DeltaError(Exception):
    """A difference does not fit the value that it is applied to."""


def difference(old: Any, new: Any) -> list[Any] | None:
    """Return the difference that makes `new` of `old`; None where they are the same."""
    if is_same(old, new):
        return None
    if type(old) is dict and type(new) is dict:
        return _object_difference(old, new)
    if type(old) is list and type(new) is list:
        return _list_difference(old, new)
    return [_REPLACE, new]


def apply(old: Any, delta: list[Any] | None) -> Any:
    """Return the new value. The old one is not changed. Raises DeltaError."""
    try:
        return old if delta is None else _apply(old, delta)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        raise DeltaError from None


def is_same(old: Any, new: Any) -> bool:
    """Return whether two values have the same JSON text: 1, 1.0 and true are different."""
    if type(old) is not type(new):
        return False
    if type(old) is dict:
        return len(old) == len(new) and all(key in new and is_same(value, new[key]) for key, value in old.items())
    if type(old) is list:
        return len(old) == len(new) and all(map(is_same, old, new))
    return repr(old) == repr(new) if type(old) is float else bool(old == new)


def _object_difference(old: dict[str, Any], new: dict[str, Any]) -> list[Any]:
    changed = {
        key: delta for key, value in old.items() if key in new and (delta := difference(value, new[key])) is not None
    }
    removed = [key for key in old if key not in new]
    added = {key: value for key, value in new.items() if key not in old}
    return [_OBJECT, changed, removed, added]


def _list_difference(old: list[Any], new: list[Any]) -> list[Any]:
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and is_same(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and is_same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    if len(old) == len(new) and head + tail == len(new) - 1:
        return [_ITEM, head, difference(old[head], new[head])]
    return [_SPLICE, head, tail, new[head : len(new) - tail]]


def _apply(old: Any, delta: list[Any]) -> Any:
    match delta:
        case [0, value]:
            return value
        case [1, changed, removed, added]:
            gone = set(removed)
            value = {key: item for key, item in old.items() if key not in gone}
            for key, change in changed.items():
                value[key] = _apply(old[key], change)
            return {**value, **added}
        case [2, head, tail, middle]:
            if head + tail > len(old):
                raise DeltaError
            return [*old[:head], *middle, *old[len(old) - tail :]]
        case [3, index, change]:
            return [*old[:index], _apply(old[index], change), *old[index + 1 :]]
    raise DeltaError
